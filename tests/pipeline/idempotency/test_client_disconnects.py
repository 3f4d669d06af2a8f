"""Clients of keyed requests that leave, wherever they are, and a proxy that shuts down.

An owner that has sent nothing yet gives its key to the oldest waiter, or releases it.
Who has sent finishes, and its result is kept. Nobody is left behind, and every request has
one line in the log.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.support import (
    PATIENCE,
    REFUSES_503,
    End,
    RawClient,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_hang,
    both_loops,
    chunked,
    eventually,
    ok,
    one_route,
    request,
    response,
    running,
    running_together,
)
from tests.support.clock import FakeClock
from tests.support.keys import KEY, Gate, is_replayed, new_key, post
from tests.support.leftovers import is_discarding, leftovers, nothing_left
from tests.support.records import last_logged, outcomes
from tests.support.witness import Stopwatch

LONG_WAIT = "retry: {backoff: {strategy: constant, base: 20s, jitter: none}}"
ONE_AT_A_TIME = "throttle: {concurrency: 1, max_wait: 20s}"
PAY = request("POST", "/", KEY, body=b"pay")

unavailable = answer(response(503, b"not now"))


class KeyedProxy:
    """A proxy, what is behind it, and who has come to it."""

    def __init__(self, upstream: ScriptedUpstream, proxy: RunningProxy) -> None:
        self.upstream = upstream
        self.proxy = proxy
        self.stack = AsyncExitStack()
        self._clients: list[RawClient] = []
        self.gate = Gate()
        """For a request with another key, which is in the way."""

    async def client(self, receive_buffer: int | None = None) -> RawClient:
        client = self.proxy.client(receive_buffer=receive_buffer)
        self._clients.append(await self.stack.enter_async_context(client))
        return client

    async def until_one_has_left(self) -> None:
        """Wait until a client has closed its connection, and the proxy knows."""

        def is_known() -> bool:
            left = [client for client in self._clients if not client.wire.is_open]
            return self.proxy.client_connections == len(self._clients) - len(left) and bool(left)

        await eventually(is_known)

    async def pays(self, *fields: str) -> RawClient:
        """One more client that has sent the same request."""
        client = await self.client()
        await client.send(request("POST", "/", KEY, *fields, body=b"pay"))
        return client

    async def waiters(self, count: int) -> list[RawClient]:
        """So many who wait for the first one, in this order."""
        clients = []
        for _ in range(count):
            expected = self.proxy.waiting_for_keys + 1
            clients.append(await self.pays())
            await self.until_waiting(expected)
        return clients

    async def until_waiting(self, count: int) -> None:
        await eventually(lambda: self.proxy.waiting_for_keys == count)

    async def other_request(self) -> None:
        """Send another request, which stays at the upstream until the gate is opened."""
        self.upstream.script(self.gate.behaviour)
        client = await self.client()
        await client.send(request("POST", "/other", new_key(), body=b"pay"))
        await self.gate.reached.wait()

    @property
    def paid(self) -> int:
        """How often the upstream was asked."""
        return [one.target for one in self.upstream.requests].count("/")


@asynccontextmanager
async def keyed_proxy(
    settings: str = "true", route: str = "", *, options: str = "", top: str = ""
) -> AsyncIterator[KeyedProxy]:
    async with ScriptedUpstream() as upstream:
        config = one_route(upstream, f"idempotency: {settings}\n{route}", options=options, top=top)
        async with running(config) as proxy:
            there = KeyedProxy(upstream, proxy)
            async with there.stack:
                yield there


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Lock the store: no other process can write to it meanwhile."""
    db = sqlite3.connect(file, isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
    finally:
        db.close()


def states(file: Path) -> list[str]:
    """What the store says of its keys."""
    db = sqlite3.connect(file)
    try:
        return [state for (state,) in db.execute("SELECT state FROM keys")]
    finally:
        db.close()


def patient(file: Path) -> str:
    """A store that may take its time."""
    return f"store: {{url: 'sqlite:{file}', timeout: 5s}}"


async def departed(there: KeyedProxy, phase: str, count: int = 1) -> None:
    """So many clients have left, during that *phase*, and nothing is left of them."""
    await nothing_left(there.proxy)
    metrics = await there.proxy.metrics()
    assert metrics.total("holdfast_client_disconnects_total", phase=phase) == count
    assert metrics.total("holdfast_client_disconnects_total") == count


async def codes(there: KeyedProxy, lines: int) -> list[int]:
    """What the log says, once it has so many lines; checks that the metrics say the same."""
    await last_logged(there.proxy, lines)
    return sorted(record["code"] for record in there.proxy.log)


# Those who have sent nothing.


@pytest.mark.parametrize("leave", ["reset", "close"])
async def test_who_leaves_while_its_body_is_read_has_claimed_nothing(leave: str) -> None:
    async with keyed_proxy() as there:
        client = await there.client()
        await client.send(PAY[:-1])
        await eventually(lambda: leftovers(there.proxy).get("requests in flight"))
        getattr(client.wire, leave)()
        await departed(there, "body")
        assert await codes(there, 1) == [499]
        assert not is_replayed(await post(there.proxy))
        assert there.paid == 1


async def test_who_leaves_during_the_claim_leaves_the_key_free(tmp_path: Path) -> None:
    file = tmp_path / "keys.db"
    async with keyed_proxy(top=patient(file)) as there:
        with locked(file):
            client = await there.pays()
            await asyncio.sleep(0.05)
            client.wire.reset()
            await eventually(lambda: not leftovers(there.proxy).get("requests in flight"))
        await departed(there, "upstream")
        assert await codes(there, 1) == [499]
        assert states(file) == []
        assert not is_replayed(await post(there.proxy))
        assert there.paid == 1


async def in_queue(there: KeyedProxy) -> RawClient:
    await there.other_request()
    owner = await there.pays()
    await eventually(lambda: leftovers(there.proxy).get("requests in the queue"))
    return owner


async def between_attempts(there: KeyedProxy) -> RawClient:
    there.upstream.script(unavailable)
    owner = await there.pays()
    await eventually(lambda: there.proxy.waiting_requests == 1)
    return owner


async def with_a_failure_in_hand(there: KeyedProxy) -> RawClient:
    """The response is given up, and its rest is being read: until its client has left."""

    async def behave(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\npart")
        await there.until_one_has_left()
        visit.wire.close()

    there.upstream.script(behave)
    owner = await there.pays()
    await eventually(is_discarding)
    return owner


@pytest.fixture(autouse=True)
def _reads_the_rest_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the rest of a response that was given up until the upstream ends it."""
    monkeypatch.setattr("proxy.upstream.call.DISCARD_TIME", PATIENCE)


async def without_a_connection(there: KeyedProxy) -> RawClient:
    """There may be one only, and somebody else has it."""
    await there.other_request()
    owner = await there.pays()
    await eventually(lambda: len(there.proxy.app._in_flight_keys) == 2)
    return owner


Owner = Callable[[KeyedProxy], Awaitable[RawClient]]

NOTHING_UNDER_WAY = [
    pytest.param(in_queue, ONE_AT_A_TIME, "", "queue", id="in the queue"),
    pytest.param(between_attempts, LONG_WAIT, REFUSES_503, "backoff", id="between attempts"),
    pytest.param(
        with_a_failure_in_hand, LONG_WAIT, REFUSES_503, "upstream", id="with a failure in hand"
    ),
    pytest.param(without_a_connection, "", "max_connections: 1", "upstream", id="dialling"),
]


@both_loops
@pytest.mark.parametrize(("stage", "route", "options", "phase"), NOTHING_UNDER_WAY)
async def test_who_leaves_with_no_attempt_under_way_sets_its_key_free(
    stage: Owner, route: str, options: str, phase: str
) -> None:
    async with keyed_proxy("{on_ambiguous: hold}", route, options=options) as there:
        owner = await stage(there)
        asked, others = there.paid, len(there.upstream.requests) - there.paid
        owner.wire.reset()
        await eventually(lambda: len(there.proxy.app._in_flight_keys) == others)
        assert there.paid == asked
        there.gate.open()
        await departed(there, phase)
        assert await codes(there, 1 + others) == [200] * others + [499]
        assert not is_replayed(await post(there.proxy))
        assert there.paid == asked + 1


@both_loops
@pytest.mark.parametrize(("stage", "route", "options", "phase"), NOTHING_UNDER_WAY)
async def test_who_has_waited_longest_takes_its_place(
    stage: Owner, route: str, options: str, phase: str
) -> None:
    async with keyed_proxy("true", route, options=options) as there:
        owner = await stage(there)
        asked, others = there.paid, len(there.upstream.requests) - there.paid
        waiters = await there.waiters(3)
        owner.wire.reset()
        await eventually(lambda: there.proxy.waiting_for_keys < 3)
        there.gate.open()
        answers = [await client.response("POST") for client in waiters]
        assert [one.status for one in answers] == [200] * 3
        assert [is_replayed(one) for one in answers] == [False, True, True]
        assert there.paid == asked + 1
        await departed(there, phase)
        assert await codes(there, 4 + others) == [200] * (3 + others) + [499]


async def test_one_after_the_other_they_take_its_place() -> None:
    async with keyed_proxy(route=ONE_AT_A_TIME) as there:
        owner = await in_queue(there)
        waiters = await there.waiters(20)
        for number, leaving in enumerate((owner, *waiters[:-1]), start=1):
            leaving.wire.reset()
            await there.until_waiting(20 - number)
        there.gate.open()
        last = await waiters[-1].response("POST")
        assert (last.status, is_replayed(last), there.paid) == (200, False, 1)
        await departed(there, "queue", count=20)
        assert await codes(there, 22) == [200] * 2 + [499] * 20


@both_loops
async def test_all_of_them_leave_at_once() -> None:
    async with keyed_proxy(route=ONE_AT_A_TIME) as there:
        everybody = [await in_queue(there), *await there.waiters(20)]
        for client in everybody:
            client.wire.reset()
        await eventually(lambda: len(there.proxy.app._in_flight_keys) == 1)
        assert there.proxy.waiting_for_keys == 0
        there.gate.open()
        await departed(there, "queue", count=21)
        assert there.paid == 0
        assert await codes(there, 22) == [200] + [499] * 21


async def test_whose_time_is_up_in_the_moment_of_its_turn_passes_it_on() -> None:
    # In whatever order the two come: again and again around the same moment.
    async with keyed_proxy(route=f"{ONE_AT_A_TIME}\ntimeout: 20s") as there:
        await there.other_request()
        for early in range(-3, 4):
            key = new_key()
            async with there.proxy.client() as owner:
                await owner.send(request("POST", "/", key, body=b"pay"))
                await eventually(lambda: leftovers(there.proxy).get("requests in the queue"))
                async with there.proxy.client() as hurried, there.proxy.client() as patient_one:
                    quick = "Holdfast-Timeout: 50ms"
                    await hurried.send(request("POST", "/", key, quick, body=b"pay"))
                    await there.until_waiting(1)
                    since = time.monotonic()
                    await patient_one.send(request("POST", "/", key, body=b"pay"))
                    # On a busy machine the time of the first is up before the second waits.
                    wire = hurried.wire
                    await eventually(
                        lambda: there.proxy.waiting_for_keys == (1 if wire.received else 2)  # noqa: B023 - called at once
                    )
                    await asyncio.sleep(0.05 + early * 0.001 - (time.monotonic() - since))
                    owner.wire.reset()
                    got = await hurried.response("POST")
                    assert (got.status, got.reason_word) in {
                        (409, "key_in_flight"),  # it waited in vain
                        (429, "throttled"),  # its turn came, and there was no time left
                        (504, "timeout"),
                    }
        there.gate.open()
        await nothing_left(there.proxy)
        assert there.paid == 0


async def test_whose_turn_comes_too_late_sends_nothing() -> None:
    clock = FakeClock()
    async with ScriptedUpstream() as upstream:
        route = f"idempotency: true\n{LONG_WAIT}\ntimeout: 30s"
        config = one_route(upstream, route, options=REFUSES_503)
        async with running(config, clock=clock) as proxy:
            there = KeyedProxy(upstream, proxy)
            async with there.stack:
                owner = await between_attempts(there)
                [waiter] = await there.waiters(1)
                clock.advance(31)  # of which no timer knows
                owner.wire.reset()
                got = await waiter.response("POST")
                assert (got.status, got.reason_word) == (409, "key_in_flight")
                await departed(there, "backoff")
                assert there.paid == 1
                assert not is_replayed(await post(proxy))


# Those who wait for somebody else.


@both_loops
async def test_who_waits_and_leaves_is_missed_by_nobody() -> None:
    async with keyed_proxy() as there:
        there.upstream.script(there.gate.behaviour)
        owner = await there.pays()
        first, second = await there.waiters(2)
        first.wire.reset()
        await there.until_waiting(1)
        there.gate.open()
        answers = [await client.response("POST") for client in (owner, second)]
        assert [is_replayed(one) for one in answers] == [False, True]
        await departed(there, "queue")
        assert await codes(there, 3) == [200, 200, 499]
        assert there.paid == 1


async def test_who_waits_for_another_process_and_leaves_is_missed_by_nobody(
    tmp_path: Path,
) -> None:
    gate = Gate()
    async with ScriptedUpstream() as upstream:
        config = one_route(upstream, "idempotency: true", top=patient(tmp_path / "keys.db"))
        async with running_together(config, config) as (here, there):
            upstream.script(gate.behaviour)
            owner = asyncio.create_task(post(here))
            await gate.reached.wait()
            async with there.client() as leaving, there.client() as staying:
                for client in (leaving, staying):
                    await client.send(PAY)
                await eventually(lambda: there.waiting_for_keys == 2)
                leaving.wire.reset()
                await eventually(lambda: there.waiting_for_keys == 1)
                gate.open()
                assert is_replayed(await staying.response("POST"))
                assert not is_replayed(await owner)
            for proxy in (here, there):
                await nothing_left(proxy)
            assert sorted(record["code"] for record in await there.logged(2)) == [200, 499]
            assert len(upstream.requests) == 1


async def test_an_owner_that_gives_up_is_followed_by_who_waits_elsewhere(tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        config = one_route(
            upstream,
            f"idempotency: true\n{LONG_WAIT}",
            options=REFUSES_503,
            top=patient(tmp_path / "keys.db"),
        )
        async with running_together(config, config) as (here, there), here.client() as owner:
            upstream.script(unavailable)
            await owner.send(PAY)
            await eventually(lambda: here.waiting_requests == 1)
            elsewhere = asyncio.create_task(post(there))
            await eventually(lambda: there.waiting_for_keys == 1)
            owner.wire.reset()
            got = await elsewhere
            assert (got.status, is_replayed(got), len(upstream.requests)) == (200, False, 2)
            for proxy in (here, there):
                await nothing_left(proxy)


# Those who have sent.


async def at_work(there: KeyedProxy) -> RawClient:
    there.upstream.script(there.gate.behaviour)
    owner = await there.pays()
    await there.gate.reached.wait()
    return owner


async def half_answered(there: KeyedProxy) -> RawClient:
    there.gate = Gate(b"two\r\n0\r\n\r\n")

    async def behave(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(chunked(b"one", last=False) + b"3\r\n")
        await there.gate.behaviour(visit)

    there.upstream.script(behave)
    owner = await there.pays()
    await eventually(lambda: b"one" in owner.wire.unread)
    return owner


@both_loops
@pytest.mark.parametrize(
    ("stage", "phase", "body"),
    [
        pytest.param(at_work, "upstream", b"ok", id="before the answer"),
        pytest.param(half_answered, "response", b"onetwo", id="in the middle of it"),
    ],
)
async def test_what_was_sent_is_finished_and_kept(stage: Owner, phase: str, body: bytes) -> None:
    async with keyed_proxy("{on_ambiguous: hold}") as there:
        owner = await stage(there)
        waiters = await there.waiters(2)
        owner.wire.reset()
        waiters[0].wire.reset()
        await there.until_waiting(1)
        assert len(there.proxy.app._in_flight_keys) == 1
        there.gate.open()
        shared = await waiters[1].response("POST")
        assert (shared.body, is_replayed(shared)) == (body, True)
        later = await post(there.proxy)
        assert (later.body, is_replayed(later), there.paid) == (body, True, 1)
        await nothing_left(there.proxy)
        assert await codes(there, 4) == [200, 200, 499, 499]
        metrics = await there.proxy.metrics()
        assert metrics.total("holdfast_client_disconnects_total", phase=phase) == 1


async def test_no_attempt_follows_the_one_under_way() -> None:
    fallback = "fallback: {status: 202, body: later}"
    async with keyed_proxy(route=f"{LONG_WAIT}\n{fallback}") as there:
        there.gate = Gate(response(503, b"not now"))
        owner = await at_work(there)
        [waiter] = await there.waiters(1)
        owner.wire.reset()
        await eventually(lambda: there.proxy.client_connections == 1)
        there.gate.open()
        assert (await waiter.response("POST")).body == b"not now"
        await departed(there, "upstream")
        assert there.paid == 1
        assert not is_replayed(await post(there.proxy))


@pytest.mark.parametrize("route", ["", LONG_WAIT])
@pytest.mark.parametrize("settings", ["max_response: 1000B", "max_response: 5B"])
async def test_what_turns_out_too_large_is_not_read_to_its_end(route: str, settings: str) -> None:
    async with keyed_proxy(f"{{{settings}, on_ambiguous: release}}", route) as there:
        there.gate = Gate(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

        async def behave(visit: Visit) -> None:
            await there.gate.behaviour(visit)
            while visit.wire.is_open and visit.wire.end is None:
                await visit.send(b"64\r\n" + b"x" * 100 + b"\r\n")
                await asyncio.sleep(0.001)

        there.upstream.script(behave)
        owner = await there.pays()
        await there.gate.reached.wait()
        [waiter] = await there.waiters(1)
        owner.wire.reset()
        await eventually(lambda: there.proxy.client_connections == 1)
        there.gate.open()
        for got in (await waiter.response("POST"), await post(there.proxy)):
            assert (got.status, got.reason_word) == (409, "result_not_stored")
        await departed(there, "upstream")
        assert await codes(there, 3) == [409, 409, 499]
        assert there.paid == 1
        assert (await there.proxy.metrics()).total(
            "holdfast_idempotency_total", result="lease_lost"
        ) == 0


async def test_what_is_too_large_to_keep_ends_with_its_client() -> None:
    async with keyed_proxy("{max_response: 5B, on_ambiguous: release}") as there:
        there.upstream.script(answer_and_hang(ok(b"x" * 500)[:400]))
        owner = await there.pays()
        await eventually(lambda: b"xxx" in owner.wire.unread)
        owner.wire.reset()
        await departed(there, "response")
        assert (await post(there.proxy)).reason_word == "result_not_stored"
        assert there.paid == 1


async def test_who_leaves_while_the_store_is_told_has_its_result_kept(tmp_path: Path) -> None:
    file = tmp_path / "keys.db"
    async with keyed_proxy(top=patient(file)) as there:
        owner = await at_work(there)
        with locked(file):
            there.gate.open()
            await eventually(lambda: there.proxy.idle_upstream_connections == 1)
            assert owner.is_silent  # the end waits for the store
            owner.wire.reset()
            await eventually(lambda: there.proxy.client_connections == 0)
        await departed(there, "upstream")
        assert is_replayed(await post(there.proxy))
        assert there.paid == 1


@pytest.mark.parametrize("size", [3000, 6 << 20])
async def test_who_leaves_while_it_gets_the_end_has_its_result_kept(size: int) -> None:
    async with keyed_proxy("{max_response: 8MiB}") as there:
        there.upstream.script(answer(ok(b"x" * size)))
        owner = await there.client(receive_buffer=4096)
        owner.wire.stall()
        await owner.send(PAY)
        await eventually(
            lambda: there.upstream.requests and not len(there.proxy.app._in_flight_keys)
        )
        owner.wire.reset()
        await nothing_left(there.proxy)
        assert (await post(there.proxy)).body == b"x" * size
        assert there.paid == 1


# At any moment.


@both_loops
@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("route", ["", "retry: {backoff: {base: 1ms}}", ONE_AT_A_TIME])
async def test_whenever_it_leaves_it_runs_once(store: str, route: str, tmp_path: Path) -> None:
    top = "" if store == "memory" else patient(tmp_path / "keys.db")
    async with keyed_proxy("{on_ambiguous: hold}", route, top=top) as there:
        proxy, upstream = there.proxy, there.upstream
        upstream.usual = answer(chunked(b"one", last=False), b"3\r\ntwo\r\n0\r\n\r\n")
        for turns in range(0, 50, 2):
            pay = request("POST", "/", new_key(), body=b"pay")
            async with proxy.client() as owner, proxy.client() as other:
                await owner.send(pay)
                await other.send(pay)
                for turn in range(turns):
                    await asyncio.sleep(0 if turn % 4 else 0.0002)
                owner.wire.reset()
                assert (await other.response("POST")).body == b"onetwo"
                await other.send(pay)
                assert is_replayed(await other.response("POST"))
            await nothing_left(proxy)
            assert there.paid == turns // 2 + 1
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_idempotency_total", result="lease_lost") == 0
        assert len(await proxy.logged(75)) == metrics.total("holdfast_requests_total") == 75


# We shut down.


async def cut_off(there: KeyedProxy) -> None:
    """The drain runs out of time."""
    await there.proxy.app.drain()
    await nothing_left(there.proxy)


CUT = "drain_timeout: 100ms"


@pytest.mark.parametrize(("stage", "route", "options", "phase"), NOTHING_UNDER_WAY)
async def test_cut_off_with_no_attempt_under_way_a_key_is_free(
    stage: Owner, route: str, options: str, phase: str, tmp_path: Path
) -> None:
    file = tmp_path / "keys.db"
    top = f"{CUT}\n{patient(file)}"
    async with keyed_proxy("{on_ambiguous: hold}", route, options=options, top=top) as there:
        owner = await stage(there)
        others = len(there.upstream.requests) - there.paid
        [waiter] = await there.waiters(1)
        await cut_off(there)
        for client in (owner, waiter):
            got = await client.response("POST")
            assert (got.status, got.reason_word) == (503, "draining")
        assert len(await there.proxy.logged(2 + others)) == 2 + others
        assert states(file) == ["held"] * others  # at work, it may have run
        assert phase


@pytest.mark.parametrize("policy", ["release", "hold"])
@pytest.mark.parametrize(
    ("stage", "states_by_policy"),
    [
        pytest.param(at_work, {"release": [], "hold": ["held"]}, id="before the answer"),
        pytest.param(
            *(half_answered, {"release": ["unstored"], "hold": ["unstored"]}),
            id="in the middle of it",
        ),
    ],
)
@pytest.mark.parametrize("leaves", [False, True])
async def test_cut_off_at_work_a_key_is_what_its_policy_says(
    stage: Owner,
    states_by_policy: dict[str, list[str]],
    policy: str,
    leaves: bool,  # noqa: FBT001 - pytest's way
    tmp_path: Path,
) -> None:
    file = tmp_path / "keys.db"
    top = f"{CUT}\n{patient(file)}"
    async with keyed_proxy(f"{{on_ambiguous: {policy}}}", top=top) as there:
        owner = await stage(there)
        if leaves:
            owner.wire.reset()
            await eventually(lambda: there.proxy.client_connections == 0)
        await cut_off(there)
        assert states(file) == states_by_policy[policy]
        [record] = await there.proxy.logged()
        assert outcomes(record) == ["cancelled"]
        if leaves:
            assert record["code"] == 499
        elif stage is half_answered:
            assert await owner.ended() is End.RESET
        else:
            assert (await owner.response("POST")).reason_word == "draining"


@pytest.mark.parametrize("leaves", [False, True])
async def test_cut_off_while_the_store_is_told_a_result_is_kept(
    leaves: bool,  # noqa: FBT001 - pytest's way
    tmp_path: Path,
) -> None:
    file = tmp_path / "keys.db"
    async with keyed_proxy(top=f"{CUT}\n{patient(file)}") as there:
        owner = await at_work(there)
        with locked(file):
            there.gate.open()
            await eventually(lambda: there.proxy.idle_upstream_connections == 1)
            if leaves:
                owner.wire.reset()
            draining = asyncio.create_task(there.proxy.app.drain())
            await asyncio.sleep(0.4)
        await draining
        assert states(file) == ["done"]
        assert len(await there.proxy.logged()) == 1


async def test_a_drain_waits_for_those_whose_clients_have_left(tmp_path: Path) -> None:
    file = tmp_path / "keys.db"
    async with keyed_proxy(top=patient(file)) as there:
        owner = await at_work(there)
        owner.wire.reset()
        await eventually(lambda: there.proxy.client_connections == 0)
        draining = asyncio.create_task(there.proxy.app.drain())
        await asyncio.sleep(0.05)
        assert not draining.done()
        there.gate.open()
        await draining
        assert states(file) == ["done"]
        [record] = await there.proxy.logged()
        assert (record["code"], outcomes(record)) == (499, ["2xx"])


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_store_that_does_not_answer_does_not_hold_up_the_end(
    leaves: bool,  # noqa: FBT001 - pytest's way
    tmp_path: Path,
) -> None:
    file = tmp_path / "keys.db"
    top = f"{CUT}\nstore: {{url: 'sqlite:{file}', timeout: 100ms}}"
    async with keyed_proxy(top=top) as there:
        owner = await at_work(there)
        if leaves:
            owner.wire.reset()
            await eventually(lambda: there.proxy.client_connections == 0)
        with locked(file):
            watch = Stopwatch()
            await there.proxy.app.drain()
            assert watch.seconds < 2
        await owner.ended()
        assert states(file) == ["in_flight"]
        assert len(await there.proxy.logged()) == 1
