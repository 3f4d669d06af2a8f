"""Requests that a client sends before it has its answers: all are served, in their order."""

import asyncio
from pathlib import Path

import pytest

from tests.server.test_streaming import WEBSOCKET
from tests.support import (
    PATIENCE,
    RunningProxy,
    ScriptedUpstream,
    answer,
    one_route,
    request,
    response,
    running,
)
from tests.support.keys import keyed, new_key, post

TWO_KEYS = ("Idempotency-Key: a", "Idempotency-Key: b")
LAST = "Connection: close"


def paying(name: str, *fields: str) -> bytes:
    """A payment that is known by its *name*."""
    return request("POST", "/", f"X-Request-Id: {name}", *fields, body=b"pay")


async def answers(proxy: RunningProxy, *requests: bytes) -> list[tuple[str | None, int]]:
    """The id and the status of each answer to *requests*, which are sent at once."""
    async with proxy.client() as client:
        await client.send(b"".join(requests))
        given = await client.responses("POST" for _ in requests)
    return [(each.get("X-Request-Id"), each.status) for each in given]


# An answer that is given at once must not overtake one that waits for the iteration's end.


@pytest.mark.parametrize("last", [(), (LAST,)], ids=["goes on", "closes"])
async def test_refusal_does_not_overtake_a_replay(last: tuple[str, ...]) -> None:
    key = new_key()
    async with keyed() as (_, proxy):
        assert (await post(proxy, key)).status == 200
        given = await answers(proxy, paying("one", key), paying("two", *TWO_KEYS, *last))
        assert given == [("one", 200), ("two", 400)]


async def test_large_replay_does_not_overtake_a_small_one() -> None:
    small, large = new_key(), new_key()
    async with keyed() as (upstream, proxy):
        upstream.script(answer(response(200, b"small")), answer(response(200, b"x" * 100_000)))
        for key in (small, large):
            assert (await post(proxy, key)).status == 200
        given = await answers(proxy, paying("one", small), paying("two", large))
        assert given == [("one", 200), ("two", 200)]


@pytest.mark.parametrize("last", [(), (LAST,)], ids=["goes on", "closes"])
@pytest.mark.parametrize(
    ("store", "status"),
    [("{{url: 'sqlite:{}/keys.db', timeout: 5s}}", 200), ("memory", 503)],
    ids=["sqlite", "memory"],
)
async def test_refusal_does_not_overtake_the_end_of_a_response_that_waited_for_the_store(
    store: str, status: int, last: tuple[str, ...], tmp_path: Path
) -> None:
    async with keyed(top=f"store: {store.format(tmp_path)}") as (upstream, proxy):
        upstream.script(answer(response(status, b"first")))
        given = await answers(proxy, paying("one", new_key()), paying("two", *TWO_KEYS, *last))
        assert given == [("one", status), ("two", 400)]


# The parser goes on.


@pytest.mark.parametrize("count", [31, 32, 33, 130])
async def test_all_are_served_behind_a_body_that_came_later_than_its_head(count: int) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        for _ in range(2):  # what is counted wrongly must not add up
            await client.send(request("POST", "/first", "Content-Length: 5"))
            await _is_being_served(proxy)
            await client.send(b"hello" + request("GET", "/") * count)
            given = await client.responses(["POST", *["GET"] * count])
            assert [each.status for each in given] == [200] * (count + 1)


async def _is_being_served(proxy: RunningProxy) -> None:
    """The request whose head was sent is being served."""
    async with asyncio.timeout(PATIENCE):
        while (await proxy.metrics()).total("holdfast_requests_in_flight") != 1:
            pass


async def test_connection_goes_on_after_an_upgrade_that_the_upstream_declined() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer(response(403, b"no")))
        async with proxy.client() as client:
            assert (await client.get("/ws", *WEBSOCKET)).status == 403
            assert (await client.get("/next")).status == 200


async def test_connection_goes_on_after_an_upgrade_that_we_declined() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get("/ws", *WEBSOCKET, "Expect: gold")).status == 417
        assert (await client.get("/next")).status == 200
