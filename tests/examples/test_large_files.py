"""Large uploads and downloads."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.examples.example import Example
from tests.support import (
    End,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_reset,
    hang_up,
    ok,
    request,
    response,
    virtual_time,
)
from tests.support.records import last_logged

pytestmark = virtual_time


EXAMPLE = Example("large-files.yaml")

MEBIBYTE = 1024 * 1024
PART = os.urandom(MEBIBYTE) * 8
LARGE = os.urandom(MEBIBYTE) * 24


@asynccontextmanager
async def stage() -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    async with ScriptedUpstream() as files:
        overlay = f"upstreams: {{files: {{urls: [{files.url}]}}}}"
        async with EXAMPLE.running(overlay) as proxy:
            yield files, proxy


async def test_a_part_is_sent_again() -> None:
    async with stage() as (files, proxy), proxy.client() as client:
        files.script(hang_up, answer(response(201)))
        assert (await client.request("PUT", "/files/part", body=PART)).status == 201
        assert [seen.body == PART for seen in files.requests] == [True, True]


async def test_a_larger_one_streams_once() -> None:
    async with stage() as (files, proxy), proxy.client() as client:
        files.script(hang_up)
        assert (await client.request("PUT", "/files/large", body=LARGE)).status == 502
        assert len(files.requests) == 1
        assert (await last_logged(proxy))["attempts"][0]["why"] == "body_too_large"


async def test_a_large_upload_reaches_the_upstream_while_it_is_sent() -> None:
    got_half = asyncio.Event()

    async def half(visit: Visit) -> None:
        await visit.wire.read_exactly(len(LARGE) // 2)
        got_half.set()
        await visit.wire.read_exactly(len(LARGE) - len(LARGE) // 2)
        visit.request.complete = True
        await visit.send(response(201))

    async with stage() as (files, proxy), proxy.client() as client:
        files.script(half)
        head = request("PUT", "/files/large", f"Content-Length: {len(LARGE)}")
        await client.send(head, LARGE[: len(LARGE) // 2])
        async with asyncio.timeout(5):
            await got_half.wait()
        await client.send(LARGE[len(LARGE) // 2 :])
        assert (await client.response("PUT")).status == 201


async def test_an_upload_may_take_long_but_not_fall_silent() -> None:
    async with stage() as (_, proxy):
        [uploads, _] = proxy.app.settings.routes
        assert uploads.retry is not None
        assert (uploads.timeout, uploads.retry.attempt_timeout) == (3600, None)
        assert uploads.idle_timeout == 60


async def test_what_is_beyond_the_limit_is_refused_before_it_is_sent() -> None:
    async with stage() as (files, proxy), proxy.client() as client:
        await client.send(request("PUT", "/files/huge", f"Content-Length: {6 * 1024**3}"))
        got = await client.response("PUT")
        assert (got.status, got.reason_word) == (413, "body_too_large")
        assert not files.requests


async def test_a_download_may_take_longer_than_the_timeout() -> None:
    gate = asyncio.Event()

    async def slowly(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nfir")
        await gate.wait()
        await visit.send(b"st.")

    async with stage() as (files, proxy), proxy.client() as client:
        files.script(slowly)
        await client.send(request("GET", "/files/a", "Holdfast-Timeout: 100ms"))
        await client.wire.read_until(b"fir")
        await asyncio.sleep(0.2)
        gate.set()
        assert await client.wire.read_exactly(3) == b"st."


async def test_the_client_can_tell_that_a_download_broke_off_and_ask_for_the_rest() -> None:
    async with stage() as (files, proxy):
        files.script(
            answer_and_reset(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nfir"),
            answer(response(206, b"st.", "Content-Range: bytes 3-5/6")),
        )
        async with proxy.client() as client:
            await client.send(request("GET", "/files/a"))
            assert await client.ended() == End.RESET
        rest = await proxy.get("/files/a", "Range: bytes=3-")
        assert (rest.status, rest.body) == (206, b"st.")
        assert files.requests[1].get("Range") == "bytes=3-"


async def test_a_download_that_did_not_begin_is_asked_for_again() -> None:
    async with stage() as (files, proxy):
        files.script(hang_up, answer(ok(LARGE)))
        assert (await proxy.get("/files/a")).body == LARGE
