"""A body that came with its head: BufferedBody, a class for speed, and StreamingBody are as one."""

from itertools import product
from typing import cast

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import StreamReader

from proxy.server import admission
from proxy.server.aiohttp_adapter.protocol import READ_BUFFER
from proxy.server.body.streaming import StreamingBody, reserve_memory
from proxy.server.exchange import ClientExchange
from tests.support import (
    Behaviour,
    ScriptedUpstream,
    answer,
    hang_up,
    ok,
    one_route,
    response,
    running,
    virtual_time,
)
from tests.support.virtual import virtual_clock

pytestmark = virtual_time

METHODS = ("POST", "PUT")
SIZES = (1, 3000)
ANSWERED: list[list[Behaviour]] = [
    [answer(ok(b"fine"))],
    [answer(response(429))],
    [answer(response(503))],
    [answer(response(503)), hang_up, answer(ok())],
    [hang_up, answer(ok())],
]


def streaming(exchange: ClientExchange, data: bytes) -> StreamingBody:
    """The class for bodies that come in parts, with one of which all parts are here."""
    payload = StreamReader(cast("BaseProtocol", exchange.client), READ_BUFFER, loop=exchange.loop)
    payload.feed_data(data)
    payload.feed_eof()
    assert reserve_memory(exchange, exchange.head.length)
    return StreamingBody(exchange, payload, exchange.head.length, waits_for_continue=False)


async def outcomes(route: str, top: str) -> list[object]:
    """What becomes of uploads one after another: answers, attempts, and what the upstream got."""
    found: list[object] = []
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, top=top), clock=virtual_clock()) as proxy,
    ):
        number = 0
        for number, (method, size, behaviours) in enumerate(product(METHODS, SIZES, ANSWERED)):
            upstream.script(*behaviours)
            body = bytes(range(1, 251)) * 12
            async with proxy.client() as client:
                key = f"Idempotency-Key: {number}"
                got = await client.request(method, "/", key, body=body[:size])
            found.append((method, size, got.status, got.body))
            for behaviour in behaviours:
                upstream.has_played(behaviour)
        for record in await proxy.logged(number + 1):
            attempts = record.get("attempts", ())
            found.append([(a["outcome"], a["sent"], a.get("why")) for a in attempts])
        found += ((r.method, r.get("Content-Length"), r.body) for r in upstream.requests)
    return found


@pytest.mark.parametrize(
    ("route", "top"),
    [
        ("", ""),
        ("max_body: 2000B", ""),
        ("retry: {attempts: 3, unsafe: always}", ""),
        ("retry: {attempts: 3}\nbuffer: 2000B", ""),
        ("retry: {attempts: 3}\nbuffer: 2000B\nidempotency: true", ""),
        ("retry: {attempts: 3}", "limits: {replay_memory: 64KiB}"),
        ("fallback: {status: 200, body: instead}\nidempotency: true", ""),
    ],
)
async def test_both_classes_come_to_the_same(
    monkeypatch: pytest.MonkeyPatch, route: str, top: str
) -> None:
    in_one = await outcomes(route, top)
    monkeypatch.setattr(admission, "BufferedBody", streaming)
    assert await outcomes(route, top) == in_one
