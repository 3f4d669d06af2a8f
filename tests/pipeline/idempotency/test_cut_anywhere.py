"""Clients that leave at any moment leave no flight, lease, key or byte behind."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.pipeline.idempotency.keyed_storms import opened
from tests.support import RunningProxy, ScriptedUpstream, Visit, ok, one_route, request, response
from tests.support.clock import FakeClock
from tests.support.depth import DEEP
from tests.support.keys import Gate, is_replayed, new_key, post
from tests.support.leftovers import nothing_left
from tests.support.proxies import running, running_together
from tests.support.redis_server import PATIENT, redis_server
from tests.support.waiting import eventually

KEYS, CALLERS = (400, 2000) if DEEP else (40, 160)
ROUTE = (
    "idempotency: {lease: 1s, on_ambiguous: hold}\n"
    "retry: {backoff: {base: 5ms, jitter: none}}\n"
    "throttle: {concurrency: 8, max_wait: 10s}"
)


class Upstream:
    """Refuses now and then, and takes a few milliseconds for the rest."""

    def __init__(self) -> None:
        self._chance = Random(7)
        self.ran: list[str | None] = []

    async def __call__(self, visit: Visit) -> None:
        await visit.read_body()
        await asyncio.sleep(self._chance.random() * 0.01)
        if self._chance.random() < 0.4:
            await visit.send(response(421))
            return
        self.ran.append(visit.request.get("Idempotency-Key"))
        await visit.send(ok(b"x" * 2000))


async def leave_after(proxy: RunningProxy, key: str, seconds: float) -> None:
    """Ask, and close the connection whatever goes on."""
    async with proxy.client() as client:
        await client.send(request("POST", "/", key, body=b"pay"))
        await asyncio.sleep(seconds)


@pytest.mark.parametrize("store", ["memory", "sqlite", "redis"])
@pytest.mark.timeout(300)
async def test_clients_that_leave_at_any_moment(store: str, tmp_path: Path) -> None:
    chance = Random(11)
    upstream_behaviour = Upstream()
    keys = [new_key() for _ in range(KEYS)]
    async with ScriptedUpstream(upstream_behaviour) as upstream, opened(store, tmp_path) as top:
        config = one_route(upstream, ROUTE, top=top)
        async with running(config) as proxy:
            for at in range(0, CALLERS, 40):
                await asyncio.gather(
                    *(
                        leave_after(proxy, chance.choice(keys), chance.random() ** 3 * 0.08)
                        for _ in range(at, at + 40)
                    )
                )
            await nothing_left(proxy)
            assert proxy.app._in_flight_keys.unreported == 0
            # Each of them is free, done, or held because it may have run; none is in flight.
            for key in keys:
                got = await post(proxy, key)
                assert got.status in {200, 409, 421}
                assert got.status != 409 or got.reason_word == "outcome_unknown"
            await nothing_left(proxy)
    assert len(upstream_behaviour.ran) == len(set(upstream_behaviour.ran)), "none ran twice"


async def test_setting_the_date_does_not_run_anything_twice(tmp_path: Path) -> None:
    gate, clock = Gate(response(201, b"the first")), FakeClock()
    async with ScriptedUpstream() as upstream, opened("sqlite", tmp_path) as top:
        upstream.script(gate.behaviour)
        config = one_route(upstream, "idempotency: {lease: 1s, ttl: 1h}", top=top)
        async with running_together(config, config, clock=clock) as (first, other):
            owner = asyncio.create_task(post(first))
            await gate.reached.wait()
            waiting = []
            for wrong in (1e6, -1e6, 1e7):
                clock.set_wall_wrong_by(wrong)
                waiting.append(asyncio.create_task(post(other)))
                await eventually(lambda: other.waiting_for_keys == len(waiting))
                await asyncio.sleep(0.4)  # the lease is renewed
            gate.open()
            assert (await owner).body == b"the first"
            for got in await asyncio.gather(*waiting, post(other)):
                assert (got.body, is_replayed(got)) == (b"the first", True)
        assert len(upstream.requests) == 1


async def test_an_owner_that_is_cut_off_while_the_store_hangs_leaves_nothing() -> None:
    gate = Gate(response(201, b"the first"))
    async with redis_server() as server, ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour)
        hasty, patient = (
            one_route(upstream, "idempotency: true", top=server.line(keys))
            for keys in ("timeout: 200ms", PATIENT)
        )
        async with running_together(hasty, patient) as (first, other):
            owner = asyncio.create_task(leave_after(first, "Idempotency-Key: k", 10))
            await gate.reached.wait()
            server.stall()
            gate.open()
            await eventually(lambda: first.idle_upstream_connections == 1)  # the end is being told
            owner.cancel()
            await asyncio.wait([owner])
            await eventually(lambda: first.app._in_flight_keys.unreported == 1)
            assert len(first.app._in_flight_keys) == 1, "it has the result, and nobody else"
            server.resume()
            await nothing_left(first)
            got = await post(other, "Idempotency-Key: k")
            assert (got.body, is_replayed(got)) == (b"the first", True)
        assert len(upstream.requests) == 1
