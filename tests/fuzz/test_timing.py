"""Everything at once, at random moments; afterwards nothing is left and the numbers agree.

Forty clients send, stall, leave and come back, while the upstream answers, dawdles, breaks off
and hangs, and the configuration is reloaded. Each request bears an id of its own, so what the
clients got, what the upstream saw, the access log and the metrics can be held together.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest

from tests.support import (
    RawClient,
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    WireEnded,
    chunked,
    eventually,
    ok,
    one_route,
    request,
    running,
)
from tests.support.depth import DEEP
from tests.support.records import outcomes

CLIENTS = 40
SECONDS = 5.0 if DEEP else 1.2
SEEDS = range(60) if DEEP else range(3)
LARGE = 300_000


# The upstream: what it does follows from chance alone.


class Moody(ScriptedUpstream):
    """Answers with the request's own id, if it answers."""

    def __init__(self, random: Random) -> None:
        super().__init__(self._behave)
        self._random = random

    async def _behave(self, visit: Visit) -> None:
        mood = self._random.choice(
            [self._answer] * 6
            + [self._dawdle, self._large, self._break_off, self._leave, self._hang, self._babble]
        )
        await mood(visit)

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.choice([0, 0, 0.001, 0.01, 0.03]))

    async def _answer(self, visit: Visit) -> None:
        await visit.read_body()
        await self._pause()
        await visit.send(_fit(visit, ok(_name(visit))))

    async def _dawdle(self, visit: Visit) -> None:
        await visit.read_body()
        interim = b"HTTP/1.1 103 Early Hints\r\n\r\n"
        message = chunked(_name(visit), b"x" * self._random.randrange(1, 2000))
        for piece in _cut(interim + _fit(visit, message), self._random):
            await self._pause()
            await visit.send(piece)

    async def _large(self, visit: Visit) -> None:
        await visit.read_body()
        await visit.send(_fit(visit, ok(_name(visit).ljust(LARGE, b"L"))))

    async def _break_off(self, visit: Visit) -> None:
        await visit.read_body()
        message = _fit(visit, ok(_name(visit) * 3))
        await visit.send(message[: self._random.randrange(len(message))])
        await self._pause()
        await self._leave(visit)

    async def _leave(self, visit: Visit) -> None:
        if self._random.random() < 0.5:
            visit.wire.reset()
        visit.wire.close()

    async def _hang(self, visit: Visit) -> None:
        await visit.until_the_peer_leaves()

    async def _babble(self, visit: Visit) -> None:
        await visit.read_body()
        await visit.send(ok(_name(visit)) + ok(b"nobody asked for this"))


def _name(visit: Visit) -> bytes:
    return f"[{visit.request.get('X-Request-Id')}]".encode()


def _fit(visit: Visit, message: bytes) -> bytes:
    """To HEAD only the head: bytes that come later can only be taken for the next response."""
    head, end, _ = message.partition(b"\r\n\r\n")
    return head + end if visit.request.method == "HEAD" else message


def _cut(data: bytes, random: Random) -> list[bytes]:
    edges = sorted({0, len(data), *(random.randrange(len(data)) for _ in range(3))})
    return [data[a:b] for a, b in pairwise(edges)]


# The clients.


class Crowd:
    """What all clients together have sent, and what came back."""

    def __init__(self, proxy: RunningProxy, random: Random) -> None:
        self._proxy = proxy
        self._random = random
        self._until = asyncio.get_running_loop().time() + SECONDS
        self.sent: set[str] = set()
        """Ids of requests of which at least a part went out."""
        self.answered: Counter[str] = Counter()
        """Ids of requests that got a complete response."""

    async def client(self) -> None:
        """Come and go until the time is up."""
        while asyncio.get_running_loop().time() < self._until:
            async with self._proxy.client(receive_buffer=4096) as client:
                visit = self._random.choice(
                    [self._polite, self._polite, self._uploading, self._pipelining, self._leaving]
                )
                with suppress(WireEnded):  # cut: the upstream broke off
                    await visit(client)

    def _new(self, method: str, *fields: str, body: bytes | None = None) -> tuple[str, bytes]:
        name = f"r-{len(self.sent)}"
        self.sent.add(name)
        return name, request(method, f"/{name}", f"X-Request-Id: {name}", *fields, body=body)

    async def _take(self, client: RawClient, name: str, method: str = "GET") -> Response:
        if self._random.random() < 0.2 and client.wire.is_open:
            client.wire.stall()
            await asyncio.sleep(0.02)
            if client.wire.is_open:
                client.wire.go_on()
        response = await client.response(method)
        assert response.get("X-Request-Id") == name, "somebody else's answer"
        if response.complete:
            self.answered[name] += 1
        if "proxy-status" not in response.names and method != "HEAD" and len(response.body) > 20:
            assert response.body.startswith(f"[{name}]".encode())
        if not response.complete or response.get("Connection") == "close":
            raise WireEnded(await client.ended(), b"")
        return response

    async def _polite(self, client: RawClient) -> None:
        for _ in range(self._random.randrange(1, 6)):
            method = self._random.choice(["GET", "POST", "HEAD", "PUT"])
            body = b"b" * 100 if method in ("POST", "PUT") else None
            name, data = self._new(method, body=body)
            await client.send(data)
            await self._take(client, name, method)

    async def _uploading(self, client: RawClient) -> None:
        body = b"u" * self._random.randrange(1, 200_000)
        if self._random.random() < 0.5:
            name, head = self._new("POST", f"Content-Length: {len(body)}")
        else:
            name, head = self._new("POST", "Transfer-Encoding: chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        for piece in _cut(head + body, self._random):
            await client.send(piece)
            await asyncio.sleep(self._random.choice([0, 0.001, 0.01]))
        await self._take(client, name, "POST")

    async def _pipelining(self, client: RawClient) -> None:
        several = [self._new("GET") for _ in range(4)]
        await client.send(b"".join(data for _, data in several))
        for name, _ in several:
            await self._take(client, name)

    async def _leaving(self, client: RawClient) -> None:
        body = b"l" * self._random.randrange(1, 50_000)
        _, data = self._new(self._random.choice(["POST", "PUT"]), body=body)
        await client.send(data[: self._random.randrange(1, len(data))])
        await asyncio.sleep(self._random.choice([0, 0.001, 0.005, 0.02]))
        if self._random.random() < 0.5:
            client.wire.reset()


def _config(upstream: ScriptedUpstream, random: Random) -> str:
    options = f"idle_connections: {random.randrange(1, 40)}\nkeepalive: {random.randrange(1, 9)}s"
    route = (
        f"timeout: {random.choice([150, 200])}ms\nidle_timeout: 200ms\n"
        f"headers: {{response: {{set: {{X-Variant: {random.randrange(9)}}}}}}}"
    )
    top = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\naccess_log: all\ndrain_timeout: 2s"
    return one_route(upstream, route, options=options, top=top)


async def _reload_at_random(
    proxy: RunningProxy, upstream: ScriptedUpstream, random: Random
) -> None:
    while True:
        await asyncio.sleep(random.uniform(0.01, 0.1))
        proxy.config.write_text(_config(upstream, random))
        assert (await proxy.app.reload()).in_force


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_books_balance_after_a_storm(seed: int) -> None:
    random = Random(seed)
    async with (
        Moody(random) as upstream,
        running(_config(upstream, random)) as proxy,
    ):
        crowd = Crowd(proxy, random)
        reloads = asyncio.create_task(_reload_at_random(proxy, upstream, random))
        try:
            async with asyncio.TaskGroup() as clients:
                for _ in range(CLIENTS):
                    clients.create_task(crowd.client())
        finally:
            reloads.cancel()
            await asyncio.wait([reloads])
        assert reloads.cancelled()
        await eventually(lambda: proxy.client_connections == 0)
        await _assert_books_balance(proxy, upstream, crowd)


async def _assert_books_balance(
    proxy: RunningProxy, upstream: ScriptedUpstream, crowd: Crowd
) -> None:
    metrics = await proxy.metrics()
    assert metrics.total("holdfast_requests_in_flight") == 0
    log = await proxy.logged(int(metrics.total("holdfast_requests_total")))
    assert len(log) == metrics.total("holdfast_requests_total")
    ended = Counter(outcome for record in log for outcome in outcomes(record))
    for outcome, count in ended.items():
        assert metrics.total("holdfast_upstream_attempts_total", outcome=outcome) == count
    assert metrics.total("holdfast_upstream_attempts_total") == ended.total()

    logged = {record["request_id"]: record for record in log if record["route"] == "all"}
    assert len(logged) == sum(record["route"] == "all" for record in log), "one line each"
    assert logged.keys() <= crowd.sent
    assert crowd.answered.keys() <= logged.keys()
    assert set(crowd.answered.values()) <= {1}
    seen = Counter(request.get("X-Request-Id") for request in upstream.requests)
    assert seen.keys() <= logged.keys()
    for name, record in logged.items():
        attempts = record["attempts"]
        heard_back = sum(attempt["received"] for attempt in attempts)
        sent = sum(attempt["sent"] for attempt in attempts)
        assert heard_back <= seen[name] <= sent, attempts
