"""Room for deliveries: what is refused, before its body is read, and for how long."""

import asyncio
import json

import pytest

from tests.delivery.test_reload import reload
from tests.support import (
    REFUSES_503,
    Response,
    RunningProxy,
    ScriptedUpstream,
    answer,
    ok,
    one_route,
    request,
    response,
    running,
    virtual_time,
)
from tests.support.handed_off import ASYNC, HONOURED, KEY, ended, send

pytestmark = [virtual_time, pytest.mark.usefixtures("files_at_once")]

ALWAYS = "idempotency: {required: true}\nhand_off: {when: always, retry: {backoff: [10m]}}"
OPTIONS = f"{HONOURED}\n{REFUSES_503}"
unavailable = answer(response(503))


def config(upstream: ScriptedUpstream, deliveries: str, route: str = ALWAYS) -> str:
    return one_route(upstream, route, options=OPTIONS, top=f"deliveries: {{{deliveries}}}")


async def keyed(proxy: RunningProxy, number: int, body: bytes = b"x", source: str = "") -> Response:
    async with proxy.client(source=source) as client:
        return await client.request("POST", "/", f"Idempotency-Key: k{number}", body=body)


async def fill(proxy: RunningProxy, body: bytes = b"x") -> tuple[int, Response]:
    for number in range(1000):
        given = await keyed(proxy, number, body)
        if given.status != 202:
            return number, given
    raise AssertionError("nothing is refused")


@pytest.mark.parametrize(
    ("deliveries", "body", "cause"),
    [("entries: 8", b"x", "entries"), ("bytes: 64KiB", b"x" * 8000, "bytes")],
)
async def test_what_does_not_fit_is_refused_and_admitted_again_later(
    deliveries: str, body: bytes, cause: str
) -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(config(upstream, deliveries)) as proxy,
    ):
        count, refused = await fill(proxy, body)
        assert count >= 4
        told = json.loads(refused.body)
        assert (refused.status, told["type"]) == (503, "urn:holdfast:problem:queue_full")
        assert told["cause"] in {cause, "caller"}
        assert int(refused.get("Retry-After") or 0) >= 1
        duplicate = await keyed(proxy, 0, body)
        assert (duplicate.status, duplicate.get("Idempotent-Replayed")) == (202, "true")
        assert (await proxy.metrics()).total(
            "holdfast_deliveries_refused_total", reason="queue_full"
        ) == 1
        upstream.usual = answer(ok())
        for number in range(count):
            given = await keyed(proxy, number, body)
            await ended(proxy, given.get("Holdfast-Delivery") or "", within=2000)
        assert (await keyed(proxy, 5000, body)).status == 202


async def test_it_is_refused_before_the_body_is_read() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(config(upstream, "entries: 4")) as proxy,
    ):
        await fill(proxy)
        async with proxy.client() as client:
            head = request("POST", "/", "Idempotency-Key: new", "Content-Length: 1000")
            await client.send(head)
            assert (await client.response()).status == 503


async def test_who_asked_and_finds_no_room_is_served_as_ever() -> None:
    route = "hand_off: {retry: {backoff: [10m]}}"
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(config(upstream, "entries: 4", route)) as proxy,
    ):
        while (await send(proxy, ASYNC)).status == 202:
            pass
        upstream.usual = answer(ok())
        given = await send(proxy, ASYNC, KEY)
        assert (given.status, given.get("Preference-Applied")) == (200, None)
        assert upstream.requests[-1].get("Prefer") == "respond-async"


async def test_nobody_takes_more_than_a_quarter_beside_others() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(config(upstream, "entries: 40")) as proxy,
    ):
        assert (await keyed(proxy, 9999, source="127.0.0.2")).status == 202
        count, refused = await fill(proxy)
        assert count == 10
        assert json.loads(refused.body)["cause"] == "caller"
        assert (await keyed(proxy, 9998, source="127.0.0.2")).status == 202


async def test_a_caller_cannot_make_up_names_to_have_more() -> None:
    route = (
        'idempotency: {required: true, scope: ["header:X-Tenant"]}\n'
        "hand_off: {when: always, retry: {backoff: [10m]}}"
    )
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(config(upstream, "entries: 40", route)) as proxy,
    ):
        assert (await keyed(proxy, 9999, source="127.0.0.2")).status == 202
        statuses = [
            (await send(proxy, KEY, f"X-Tenant: made-up-{number}")).status for number in range(40)
        ]
        assert statuses.count(202) == 10


async def test_a_reload_changes_the_room_and_loses_nothing() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(config(upstream, "entries: 8")) as proxy,
    ):
        count, _ = await fill(proxy)
        await reload(proxy, config(upstream, "entries: 2"))
        assert (await keyed(proxy, 5001)).status == 503
        await reload(proxy, config(upstream, "entries: 100"))
        assert (await keyed(proxy, 5001)).status == 202
        await asyncio.sleep(1)
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_deliveries", state="retrying") + metrics.total(
            "holdfast_deliveries", state="waiting"
        ) in {count, count + 1}


async def test_an_upload_of_unknown_length() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(config(upstream, "bytes: 100KiB")) as proxy,
    ):

        async def upload(pieces: int, key: str) -> Response:
            async with proxy.client() as client:
                fields = (f"Idempotency-Key: {key}", "Transfer-Encoding: chunked")
                await client.send(request("POST", "/", *fields))
                for _ in range(pieces):
                    await client.send(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
                await client.send(b"0\r\n\r\n")
                return await client.response()

        small = await upload(2, "small")
        assert small.status == 202
        await ended(proxy, small.get("Holdfast-Delivery") or "")
        assert upstream.requests[0].body == b"x" * 0x4000
        assert (await upload(20, "large")).status == 503
        assert (await upload(2, "again")).status == 202
        await asyncio.sleep(1)
