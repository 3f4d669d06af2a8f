"""The process that owns a key is killed, or told to end: nothing runs twice that may not."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.pipeline.idempotency.keyed_storms import in_lasting_stores, opened
from tests.support import (
    ProxyProcess,
    RawClient,
    Response,
    RunningProxy,
    ScriptedUpstream,
    answer,
    eventually,
    hang,
    one_route,
    request,
    response,
    running,
    subprocess_proxy,
)
from tests.support.keys import KEY, Gate, is_replayed, new_key, post
from tests.support.proxies import ServedBy
from tests.support.redis_server import redis_server
from tests.support.witness import Stopwatch

FINISHED = [f"number-{number}".encode() for number in range(10)]
"""Keys, and what their requests are answered."""


def routes(upstream: ScriptedUpstream, top: str, **settings: str) -> str:
    """A file with a route for each of *settings*, which is called like it."""
    lines = "".join(
        f"  - {{match: /{name}, upstream: up, {what}}}\n" for name, what in settings.items()
    )
    return f"{top}\nupstreams: {{up: {upstream.url}}}\nroutes:\n{lines}"


async def begin(client: RawClient, target: str) -> None:
    await client.send(request("POST", target, KEY, body=b"pay"))


async def begin_each(
    stack: AsyncExitStack, proxy: ProxyProcess, targets: Sequence[str]
) -> list[RawClient]:
    """One request to each of *targets*, all with one key."""
    clients = [await stack.enter_async_context(proxy.client()) for _ in targets]
    for client, target in zip(clients, targets, strict=True):
        await begin(client, target)
    return clients


async def kill(proxy: ProxyProcess) -> None:
    proxy.signal(signal.SIGKILL)
    assert await proxy.exit_status() == -signal.SIGKILL


async def five(proxy: ServedBy, target: str) -> list[Response]:
    """What five duplicates get who come at once."""
    return await asyncio.gather(*(post(proxy, target=target) for _ in range(5)))


def ran(upstream: ScriptedUpstream, target: str) -> int:
    return sum(seen.target == target for seen in upstream.requests)


# Killed.


@asynccontextmanager
async def restarted_after_a_kill(
    store: str, folder: Path, **settings: str
) -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    """Another proxy on the store of a first, killed in the middle of a request to each route.

    Before, it has served :data:`FINISHED`, on the first route. What was sent to the upstream
    goes on there: it answers, and nobody is left to hear it.
    """
    gates = [Gate(response(201, b"of the first")) for _ in settings]
    targets = [f"/{name}" for name in settings]
    async with opened(store, folder) as top, ScriptedUpstream() as upstream:
        upstream.script(*(answer(response(201, body)) for body in FINISHED))
        config = routes(upstream, top, **settings)
        async with subprocess_proxy(config) as first, AsyncExitStack() as stack:
            for body in FINISHED:
                assert (await post_finished(first, body, targets[0])).body == body
            upstream.requests.clear()
            upstream.script(*(gate.behaviour for gate in gates))
            await begin_each(stack, first, targets)
            for gate in gates:
                await gate.reached.wait()
            await kill(first)
        for gate in gates:
            gate.open()
        upstream.usual = answer(response(201, b"of the second"))
        async with running(config) as second:
            yield upstream, second


async def post_finished(
    proxy: ServedBy, body: bytes, target: str, sent: bytes = b"pay"
) -> Response:
    return await post(proxy, f"Idempotency-Key: {body.decode()}", body=sent, target=target)


async def assert_what_is_finished_survived(proxy: ServedBy, target: str) -> None:
    for body in FINISHED:
        got = await post_finished(proxy, body, target)
        assert (got.status, got.body, is_replayed(got)) == (201, body, True)
        assert (await post_finished(proxy, body, target, b"other")).status == 422


@in_lasting_stores
async def test_nothing_runs_while_the_dead_owner_has_its_lease(store: str, tmp_path: Path) -> None:
    async with restarted_after_a_kill(
        store,
        tmp_path,
        reject="idempotency: {in_flight: reject}",
        reject_and_hold="idempotency: {in_flight: reject, on_ambiguous: hold}",
        wait="idempotency: true, timeout: 300ms",
    ) as (upstream, proxy):
        for target in ("/reject", "/reject_and_hold"):
            for got in await five(proxy, target):
                assert (got.status, got.reason_word) == (409, "key_in_flight")
                assert 1 <= int(got.get("Retry-After") or 0) <= 30
        began, watch = time.monotonic(), Stopwatch()
        for got in await five(proxy, "/wait"):
            assert (got.status, got.reason_word) == (409, "key_in_flight")
        assert time.monotonic() - began >= 0.3
        assert watch.seconds < 2.5
        assert (await post(proxy, body=b"other", target="/wait")).status == 422
        await assert_what_is_finished_survived(proxy, "/reject")
        assert len(upstream.requests) == 3
        assert (await post(proxy, new_key(), target="/wait")).status == 201


@in_lasting_stores
async def test_after_the_lease_it_runs_once_more_or_a_person_decides(
    store: str, tmp_path: Path
) -> None:
    async with restarted_after_a_kill(
        store,
        tmp_path,
        release="idempotency: {lease: 1s}",
        hold="idempotency: {lease: 1s, on_ambiguous: hold}",
    ) as (upstream, proxy):
        # They wait for the end of the lease.
        released, held = await asyncio.gather(five(proxy, "/release"), five(proxy, "/hold"))
        assert sum(map(is_replayed, released)) == 4
        released.append(await post(proxy, target="/release"))
        assert {(got.status, got.body) for got in released} == {(201, b"of the second")}
        assert is_replayed(released[-1])
        assert ran(upstream, "/release") == 2
        for got in (*held, await post(proxy, target="/hold")):
            assert (got.status, got.reason_word) == (409, "outcome_unknown")
            assert got.get("Retry-After") is None
            assert len(got.problem["record"]) == 32
        assert (await post(proxy, body=b"other", target="/hold")).status == 422
        assert ran(upstream, "/hold") == 1
        await assert_what_is_finished_survived(proxy, "/release")
        assert len(upstream.requests) == 3


# Told to end.


@in_lasting_stores
async def test_an_owner_whose_client_has_left_ends_first(store: str, tmp_path: Path) -> None:
    gate = Gate(response(201, b"of the first")[:-3], b"rst")
    async with opened(store, tmp_path) as top, ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour)
        config = one_route(upstream, "idempotency: true", top=top)
        async with subprocess_proxy(config) as first:
            async with first.client() as client:
                await begin(client, "/")
                await gate.reached.wait()
            first.signal(signal.SIGTERM)
            await eventually(lambda: '"draining"' in first.errors)
            assert first.process.returncode is None
            gate.open()
            assert await first.exit_status() == 0
        async with running(config) as second:
            got = await post(second)
        assert (got.status, got.body, is_replayed(got)) == (201, b"of the first", True)
        assert len(upstream.requests) == 1


@in_lasting_stores
async def test_an_owner_that_takes_too_long_leaves_nothing_in_flight(
    store: str, tmp_path: Path
) -> None:
    async with opened(store, tmp_path) as top, ScriptedUpstream(hang) as upstream:
        policies = dict.fromkeys(("release", "release_left"), "release")
        policies |= dict.fromkeys(("hold", "hold_left"), "hold")
        config = routes(
            upstream,
            f"{top}\ndrain_timeout: 200ms",
            **{
                name: f"idempotency: {{on_ambiguous: {policy}, in_flight: reject}}"
                for name, policy in policies.items()
            },
        )
        async with subprocess_proxy(config) as first, AsyncExitStack() as stack:
            clients = await begin_each(stack, first, [f"/{name}" for name in policies])
            await upstream.seen(4)
            for client, name in zip(clients, policies, strict=True):
                if name.endswith("left"):
                    client.wire.reset()
            first.signal(signal.SIGTERM)
            watch = Stopwatch()
            assert await first.exit_status() == 0
            assert watch.seconds < 2
        upstream.usual = answer(response(201))
        async with running(config) as second:
            for name, policy in policies.items():
                # The lease is thirty seconds, and nobody needs to wait for its end.
                got = await post(second, target=f"/{name}")
                if policy == "release":
                    assert (got.status, is_replayed(got)) == (201, False)
                else:
                    assert (got.status, got.reason_word) == (409, "outcome_unknown")
                assert ran(upstream, f"/{name}") == (2 if policy == "release" else 1)


@pytest.mark.parametrize("stays", [True, False], ids=["its client waits", "its client has left"])
@pytest.mark.parametrize("hangs", [True, False], ids=["it hangs", "it is down"])
async def test_a_store_that_is_gone_does_not_keep_it_from_ending(
    hangs: bool,  # noqa: FBT001 - pytest's way
    stays: bool,  # noqa: FBT001 - as above
) -> None:
    async with redis_server() as server, ScriptedUpstream(hang) as upstream:
        top = f"{server.line('timeout: 200ms')}\ndrain_timeout: 200ms"
        config = one_route(upstream, "idempotency: true", top=top)
        async with AsyncExitStack() as stack:
            async with running(config) as proxy:
                client = await stack.enter_async_context(proxy.client())
                await begin(client, "/")
                await upstream.seen()
                if not stays:
                    client.wire.reset()
                    await eventually(lambda: proxy.client_connections == 0)
                if hangs:
                    server.stall()
                else:
                    await server.stop()
                watch = Stopwatch()
            assert watch.seconds < 1.5


@in_lasting_stores
async def test_who_waits_elsewhere_gets_the_result_of_an_owner_that_ends(
    store: str, tmp_path: Path
) -> None:
    gate = Gate(response(201, b"of the first"))
    async with opened(store, tmp_path) as top, ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour)
        config = one_route(upstream, "idempotency: true", top=top)
        async with subprocess_proxy(config) as first, running(config) as second:
            owner = asyncio.create_task(post(first))
            await gate.reached.wait()
            waiting = asyncio.create_task(five(second, "/"))
            first.signal(signal.SIGTERM)
            await eventually(lambda: '"draining"' in first.errors)
            assert not waiting.done()
            gate.open()
            answers = [await owner, *await waiting]
            assert await first.exit_status() == 0
        assert {(got.status, got.body) for got in answers} == {(201, b"of the first")}
        assert [is_replayed(got) for got in answers] == [False, *[True] * 5]
        assert len(upstream.requests) == 1
