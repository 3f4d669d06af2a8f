"""Memory for bodies that may be needed again: never above its limit, and always given back."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from random import Random

import pytest

from tests.server.replaying import UNAVAILABLE, kept_by, watching
from tests.support import (
    Behaviour,
    RawClient,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_hang,
    answer_and_reset,
    answer_early,
    both_loops,
    eventually,
    hang,
    ok,
    one_route,
    request,
    reset,
    response,
    running,
)
from tests.support.ports import refusing_port

SIZE = 20_000
ROUTE = "retry: {backoff: {base: 1ms, max: 1ms}}"
COME_BACK_LATER = response(503, b"", "Retry-After: 20")
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


# A crowd.

CROWD = 200


async def upload(client: RawClient, number: int, pieces: int) -> tuple[int, bytes]:
    """PUT a body that no other has; returns the status, and what the body was."""
    chance = Random(number)
    body = chance.randbytes(SIZE)
    size = SIZE // pieces
    await client.send(request("PUT", f"/{number}", f"Content-Length: {SIZE}"))
    for start in range(0, SIZE, size):
        await client.send(body[start : start + size])
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
    return (await client.response("PUT")).status, body


@pytest.mark.parametrize(
    "pieces", [pytest.param(1, id="at once"), pytest.param(10, id="piece by piece")]
)
async def test_two_hundred_uploads_share_what_there_is(pieces: int) -> None:
    limit = 50 * SIZE
    everybody = asyncio.Event()

    async def fail_all_at_once(visit: Visit) -> None:
        body = await visit.read_body()
        bodies[visit.request.target].append(sha256(body).digest())
        if len(bodies) == CROWD and all(bodies.values()):
            everybody.set()
        is_first = len(bodies[visit.request.target]) == 1
        await everybody.wait()
        await visit.send(UNAVAILABLE if is_first else ok())

    bodies: dict[str, list[bytes]] = {f"/{number}": [] for number in range(CROWD)}
    async with (
        ScriptedUpstream(fail_all_at_once) as upstream,
        running(
            one_route(
                upstream,
                ROUTE,
                options="budget: false",
                top=f"limits: {{replay_memory: {limit}B}}",
            )
        ) as proxy,
        watching(proxy) as most,
    ):

        async def one(number: int) -> int:
            async with proxy.client() as client:
                status, body = await upload(client, number, pieces)
            attempts = 2 if status == 200 else 1
            assert bodies[f"/{number}"] == [sha256(body).digest()] * attempts
            return status

        statuses = Counter(await asyncio.gather(*(one(number) for number in range(CROWD))))
        assert most() <= limit
        assert kept_by(proxy) == 0
        await proxy.logged(CROWD)
        whys = Counter(attempt["why"] for line in proxy.log for attempt in line["attempts"])
        assert whys == {
            "retried": statuses[200],
            "recovered": statuses[200],
            "buffer_full": statuses[503],
        }
        if pieces == 1:
            assert statuses == {200: 50, 503: CROWD - 50}
        else:
            # Who comes too late gives back what was kept of it: others may have that.
            assert statuses[200] > 0


async def test_early_answers_to_a_crowd_keep_no_more_than_there_is() -> None:
    limit = 10 * SIZE

    async def often_early(visit: Visit) -> None:
        chance = Random(visit.number)
        if chance.random() < 0.7:
            for _ in range(chance.randrange(8)):
                await asyncio.sleep(0)
            visit.wire.write(UNAVAILABLE)
            # All of it may have come by now: then another request may follow.
            await visit.read_body()
            return
        body = await visit.read_body()
        bodies[visit.request.target] = sha256(body).digest()
        await visit.send(ok())

    bodies: dict[str, bytes] = {}
    route = "retry: {attempts: 10, backoff: {base: 1ms, max: 1ms}}"
    limits = f"limits: {{replay_memory: {limit}B}}"
    async with (
        ScriptedUpstream(often_early) as upstream,
        running(one_route(upstream, route, options="budget: false", top=limits)) as proxy,
        watching(proxy) as most,
    ):

        async def one(number: int) -> None:
            async with proxy.client() as client:
                status, body = await upload(client, number, 8)
            if status == 200:
                assert bodies[f"/{number}"] == sha256(body).digest()

        await asyncio.gather(*(one(number) for number in range(CROWD)))
        assert 0 < most() <= limit
        assert kept_by(proxy) == 0


# Every way in which a request can end.


@dataclass
class Stage:
    """A request, the proxy that keeps its body, and the upstream that decides its fate."""

    proxy: RunningProxy
    upstream: ScriptedUpstream
    client: RawClient

    async def put(self, *fate: Behaviour, field: str = "Accept: */*") -> None:
        """Send the request; its attempts end like *fate*, but not before its body is kept."""
        kept = asyncio.Event()

        async def first(visit: Visit) -> None:
            await kept.wait()
            await fate[0](visit)

        self.upstream.script(first, *fate[1:])
        await self.client.send(request("PUT", "/", field, body=bytes(SIZE)))
        await self.is_kept()
        kept.set()

    async def is_kept(self) -> None:
        await eventually(lambda: kept_by(self.proxy), what="keeping it")

    async def status(self) -> int:
        return (await self.client.response("PUT")).status


async def recovers(stage: Stage) -> None:
    await stage.put(answer(UNAVAILABLE))
    assert await stage.status() == 200


async def fails_for_good(stage: Stage) -> None:
    await stage.put(reset, reset, reset)
    assert await stage.status() == 502


async def runs_out_of_time(stage: Stage) -> None:
    await stage.put(hang, field="Holdfast-Timeout: 100ms")
    assert await stage.status() == 504


async def is_told_to_wait_for_too_long(stage: Stage) -> None:
    await stage.put(answer(response(503, b"", "Retry-After: 9999")))
    assert await stage.status() == 503


async def turns_out_too_large(stage: Stage) -> None:
    await stage.client.send(request("PUT", "/", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n")
    await stage.is_kept()
    await stage.client.send(b"%x\r\n" % (3 * SIZE) + bytes(3 * SIZE))
    assert await stage.status() == 413


async def breaks_off(stage: Stage) -> None:
    await stage.put(answer_and_reset(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"))
    assert not (await stage.client.response("PUT")).complete


async def client_leaves_during_its_upload(stage: Stage) -> None:
    await stage.client.send(request("PUT", "/", f"Content-Length: {SIZE}") + bytes(SIZE // 2))
    await stage.is_kept()
    stage.client.wire.reset()


async def client_leaves_during_the_attempt(stage: Stage) -> None:
    await stage.put(hang)
    stage.client.wire.reset()


async def client_leaves_during_the_wait(stage: Stage) -> None:
    await stage.put(answer(COME_BACK_LATER))
    await eventually(lambda: len(stage.proxy.app._retry_waits))
    stage.client.wire.reset()


async def client_leaves_during_the_response(stage: Stage) -> None:
    await stage.put(answer_and_hang(EVENTS))
    await stage.client.wire.read_until(b"\r\n\r\n")
    stage.client.wire.reset()


async def proxy_drains_during_the_wait(stage: Stage) -> None:
    await stage.put(answer(COME_BACK_LATER))
    await eventually(lambda: len(stage.proxy.app._retry_waits))
    drained = asyncio.create_task(stage.proxy.app.drain())
    assert await stage.status() == 503
    await drained


async def proxy_is_told_to_end_at_once(stage: Stage) -> None:
    await stage.put(hang)
    await stage.proxy.app.stop_at_once()


async def file_changes_meanwhile(stage: Stage) -> None:
    """With a limit that is lower than what is kept already."""
    await stage.put(answer(response(503, b"", "Retry-After: 1")))
    config = stage.proxy.config
    config.write_text(config.read_text().replace("replay_memory: 1MiB", "replay_memory: 1B"))
    assert (await stage.proxy.admin("POST", "/-/reload")).status == 200
    assert kept_by(stage.proxy) == SIZE
    assert await stage.status() == 200


@both_loops
@pytest.mark.parametrize(
    "ending",
    [
        recovers,
        fails_for_good,
        runs_out_of_time,
        is_told_to_wait_for_too_long,
        turns_out_too_large,
        breaks_off,
        client_leaves_during_its_upload,
        client_leaves_during_the_attempt,
        client_leaves_during_the_wait,
        client_leaves_during_the_response,
        proxy_drains_during_the_wait,
        proxy_is_told_to_end_at_once,
        file_changes_meanwhile,
    ],
    ids=lambda ending: ending.__name__.replace("_", " "),
)
async def test_nothing_is_kept_when_it_is_over(ending: Callable[[Stage], Awaitable[None]]) -> None:
    route = f"{ROUTE}\nmax_body: {2 * SIZE}B"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, top="limits: {replay_memory: 1MiB}")) as proxy,
        proxy.client() as client,
    ):
        await ending(Stage(proxy, upstream, client))
        await eventually(lambda: not kept_by(proxy), what="giving back the memory")


async def test_what_was_never_sent_is_not_kept_after_its_end() -> None:
    with refusing_port() as port:
        async with running(one_route(f"http://127.0.0.1:{port}", ROUTE)) as proxy:
            async with proxy.client() as client:
                assert (await client.request("PUT", "/", body=bytes(SIZE))).status == 502
            assert kept_by(proxy) == 0


async def test_an_empty_body_that_ends_while_it_waits_to_be_sent_leaves_nothing() -> None:
    """There is nothing to keep of it: it must not be asked to yield memory, then or later."""
    route = f"{ROUTE}\nthrottle: {{rate: 20/s, max_wait: 5s}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as first,
        proxy.client() as client,
    ):
        assert (await first.get()).status == 200
        await client.send(request("PUT", "/", "Transfer-Encoding: chunked"), b"0\r\n\r\n")
        assert (await client.response("PUT")).status == 200
        assert proxy.app._listener.server.replay_memory._uploads == {}


async def test_a_route_that_never_repeats_keeps_nothing() -> None:
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, "retry: 1")) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("PUT", "/", body=bytes(SIZE)))
        await upstream.seen()
        assert kept_by(proxy) == 0


# While the response is on its way the body is not needed any more.


@both_loops
@pytest.mark.parametrize(
    "failures", [0, 1], ids=["after its first attempt", "after its second attempt"]
)
async def test_a_long_answer_holds_no_memory(failures: int) -> None:
    async with (
        ScriptedUpstream(answer_and_hang(EVENTS)) as upstream,
        running(one_route(upstream, ROUTE)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(*[answer(UNAVAILABLE)] * failures)
        await client.send(request("PUT", "/", body=bytes(SIZE)))
        await client.wire.read_until(b"\r\n\r\n")
        assert kept_by(proxy) == 0


@both_loops
async def test_a_long_answer_that_begins_before_the_body_was_replayed_holds_none_either() -> None:
    """The rest of the body goes on to the upstream, and is forgotten on its way."""
    size = 5_000_000  # more than all buffers on the way can hold
    body = Random(size).randbytes(size)

    async def answer_first(visit: Visit) -> None:
        visit.wire.stall()
        await visit.send(EVENTS)
        await slowly.wait()
        visit.wire.go_on()
        await visit.read_body()
        await visit.until_the_peer_leaves()

    slowly = asyncio.Event()
    async with (
        ScriptedUpstream(answer_first, receive_buffer=4096) as upstream,
        running(one_route(upstream, f"buffer: 8MiB\n{ROUTE}")) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer_once_it_has(size // 2, response(503, b"", "Connection: close")))
        await client.send(request("PUT", "/", f"Content-Length: {size}"), body)
        await client.wire.read_until(b"\r\n\r\n")
        assert kept_by(proxy) > 0  # the upstream has not taken it yet
        slowly.set()
        assert (await upstream.seen()).body == body
        assert kept_by(proxy) == 0


def answer_once_it_has(size: int, data: bytes) -> Behaviour:
    """Read *size* bytes of the body, and answer."""

    async def behave(visit: Visit) -> None:
        await visit.wire.read_exactly(size)
        await answer_early(data)(visit)

    return behave
