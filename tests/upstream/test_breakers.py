"""Breakers on real sockets: which address is left alone, when, and what callers notice."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.support import (
    Behaviour,
    Certificates,
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_hang,
    answer_and_reset,
    eventually,
    hang,
    hang_up,
    ok,
    one_route,
    request,
    reset,
    response,
    running,
)
from tests.support.clock import FakeClock
from tests.support.leftovers import leftovers, nothing_left
from tests.support.names import Names
from tests.support.ports import black_hole, refusing_port
from tests.support.records import last_logged, outcomes

CLOSED, HALF_OPEN, OPEN = 0, 1, 2
WORDS = ("closed", "half_open", "open")

bad = answer(response(503))


def breaker(**settings: object) -> str:
    """A breaker that opens at the first failure, unless *settings* say otherwise."""
    usual = {"min_requests": 1, "failure_ratio": 1.0, "open_for": "30s", "probes": 1}
    inside = ", ".join(f"{key}: {value}" for key, value in (usual | settings).items())
    return f"breaker: {{{inside}}}"


async def state_of(proxy: RunningProxy) -> int:
    """The state that the gauge shows; /status must say the same."""
    metrics = await proxy.metrics()
    state = int(metrics.total("holdfast_breaker_state", upstream="scripted"))
    status = json.loads((await proxy.admin("GET", "/status")).body)
    assert status["upstreams"]["scripted"]["breaker"] == WORDS[state]
    return state


async def addresses_by_state(proxy: RunningProxy) -> dict[str, int]:
    """How many addresses the gauge shows in each state."""
    metrics = await proxy.metrics()
    return {
        word: int(metrics.total("holdfast_breaker_addresses", upstream="scripted", state=word))
        for word in WORDS
    }


async def states(proxy: RunningProxy) -> dict[str, int]:
    """The state of each address's breaker, as /status tells it."""
    status = json.loads((await proxy.admin("GET", "/status")).body)
    addresses = status["addresses"]["scripted"]
    return {entry["address"]: WORDS.index(entry["breaker"]) for entry in addresses}


def at(port: int, host: str = "127.0.0.1") -> str:
    """What log and status call an address."""
    return f"{host}:{port}"


async def reload(proxy: RunningProxy, old: str, new: str) -> None:
    text = proxy.config.read_text()
    assert old in text
    proxy.config.write_text(text.replace(old, new))
    assert (await proxy.admin("POST", "/-/reload")).status == 200


class Gate:
    """Holds requests back until it is opened, then lets them be treated as told."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._then: Behaviour = answer(ok())

    def open(self, then: Behaviour) -> None:
        self._then = then
        self._opened.set()

    async def __call__(self, visit: Visit) -> None:
        await visit.read_body()
        await self._opened.wait()
        await self._then(visit)


# Opening.


@pytest.mark.parametrize(
    ("statuses", "state"),
    [
        pytest.param([503] * 3, CLOSED, id="three failures are fewer than min_requests"),
        pytest.param([503] * 4, OPEN, id="four failures are enough"),
        pytest.param([200, 200, 503, 503], OPEN, id="half of four is the ratio"),
        pytest.param([200, 200, 200, 503], CLOSED, id="a quarter of four is below the ratio"),
        pytest.param([503, 503, 200, 200], CLOSED, id="a success never opens it"),
        pytest.param([503, 503, 200, 200, 503], OPEN, id="three of five do"),
    ],
)
async def test_it_opens_at_the_ratio_and_not_before_min_requests(
    statuses: list[int], state: int
) -> None:
    options = breaker(min_requests=4, failure_ratio=0.5)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, options=options)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(*(answer(response(status)) for status in statuses))
        # Before it is open, callers get what the upstream says.
        assert [(await client.get()).status for _ in statuses] == statuses
        assert await state_of(proxy) == state
        assert (await client.get()).status == (503 if state == OPEN else 200)
        assert len(upstream.requests) == len(statuses) + (state == CLOSED)


async def test_the_log_says_when_it_opens_and_closes_and_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "holdfast")

    def said() -> list[tuple[str, str]]:
        """Level and text of what was logged of breakers since the last time."""
        records = [(one.levelname, one.getMessage()) for one in caplog.records]
        caplog.clear()
        return [record for record in records if "breaker" in record[1]]

    clock = FakeClock()
    options = breaker(min_requests=2, failure_ratio=0.5, window="10s", open_for="30s")
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, options=options), clock=clock) as proxy,
        proxy.client() as client,
    ):
        which = f"the breaker of upstream scripted at {at(upstream.port)} is"
        upstream.script(answer(ok()), bad, reset, answer(ok()))
        await client.get()
        assert said() == []
        await client.get()
        why = "1 of 2 attempts within 10 s failed, the last with 503"
        assert said() == [("WARNING", f"{which} open: {why}; nothing is sent there for 30 s")]
        await client.get()
        assert said() == [], "it says so once"
        clock.advance(30)
        await client.get()
        assert said() == [
            ("INFO", f"{which} half open: at most 1 probe at a time"),
            (
                "WARNING",
                f"{which} open: a probe failed, with reset; nothing is sent there for 30 s",
            ),
        ]
        clock.advance(30)
        assert (await client.get()).status == 200
        assert said() == [
            ("INFO", f"{which} half open: at most 1 probe at a time"),
            ("INFO", f"{which} closed: 1 probe succeeded"),
        ]


async def test_the_log_says_that_an_address_cannot_be_reached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with refusing_port() as port:
        config = one_route(f"http://127.0.0.1:{port}", options=breaker())
        async with running(config) as proxy:
            await proxy.get()
    (line,) = [one.getMessage() for one in caplog.records if "breaker" in one.getMessage()]
    assert (
        f"at {at(port)} is open: 1 of 1 attempt within 10 s failed, the last with connect" in line
    )


async def test_without_a_breaker_none_is_shown() -> None:
    async with ScriptedUpstream(bad) as upstream, running(one_route(upstream)) as proxy:
        await proxy.get()
        assert b"holdfast_breaker_state{" not in (await proxy.admin("GET", "/metrics")).body
        status = json.loads((await proxy.admin("GET", "/status")).body)
        assert "breaker" not in status["upstreams"]["scripted"]


@pytest.mark.parametrize("options", ["", "breaker: true"])
async def test_an_address_that_was_not_reached_is_shown_as_failing_for_a_minute(
    options: str,
) -> None:
    clock = FakeClock()

    async def failing(proxy: RunningProxy) -> bool:
        status = json.loads((await proxy.admin("GET", "/status")).body)
        [address] = status["addresses"]["scripted"]
        told = [one["text"] for one in status["trouble"] if one["about"] == "upstream"]
        assert told == ([f"it cannot be reached at {address['address']}"] * address["failing"])
        return bool(address["failing"])

    with refusing_port() as port:
        config = one_route(f"http://127.0.0.1:{port}", options=options)
        async with running(config, clock=clock) as proxy:
            assert (await proxy.get()).reason_word == "connect"
            assert await failing(proxy)
            clock.advance(59)
            assert await failing(proxy)
            clock.advance(2)
            assert not await failing(proxy), "nothing is known of it any more"


async def test_when_every_address_is_open_callers_are_told_when_to_come_back() -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream(bad) as one,
        ScriptedUpstream(bad) as other,
        running(one_route(f"{one.url}, {other.url}", options=breaker()), clock=clock) as proxy,
        proxy.client() as client,
    ):
        assert await addresses_by_state(proxy) == {"closed": 2, "half_open": 0, "open": 0}
        await client.get()
        assert await state_of(proxy) == CLOSED, "the best address counts"
        assert await addresses_by_state(proxy) == {"closed": 1, "half_open": 0, "open": 1}
        await client.get()
        assert await state_of(proxy) == OPEN
        assert await addresses_by_state(proxy) == {"closed": 0, "half_open": 0, "open": 2}
        for passed, retry_after in ((0.0, "30"), (10.5, "20"), (18.0, "2")):
            clock.advance(passed)
            refused = await client.get()
            assert (refused.status, refused.reason_word) == (503, "breaker_open")
            assert refused.get("Retry-After") == retry_after
            assert "attempts" not in refused.problem
        assert (len(one.requests), len(other.requests)) == (1, 1)
        record = await last_logged(proxy, 5)
        assert (record["refusal"], record["attempts"]) == ("breaker_open", [])


async def test_the_first_address_to_recover_says_when_to_come_back() -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream(bad) as one,
        ScriptedUpstream(bad) as other,
        running(one_route(f"{one.url}, {other.url}", options=breaker()), clock=clock) as proxy,
        proxy.client() as client,
    ):
        await client.get()
        clock.advance(20.5)
        await client.get()
        assert (await client.get()).get("Retry-After") == "10"
        clock.advance(10)
        assert await state_of(proxy) == HALF_OPEN
        assert sorted((await states(proxy)).values()) == [HALF_OPEN, OPEN]


@pytest.mark.parametrize("balance", ["round_robin", "first"])
async def test_an_open_address_is_skipped(balance: str) -> None:
    options = f"{breaker()}\nbalance: {balance}"
    async with (
        ScriptedUpstream(bad) as failing,
        ScriptedUpstream() as healthy,
        running(one_route(f"{failing.url}, {healthy.url}", options=options)) as proxy,
        proxy.client() as client,
    ):
        statuses = [(await client.get()).status for _ in range(8)]
        assert Counter(statuses) == {200: 7, 503: 1}
        assert (len(failing.requests), len(healthy.requests)) == (1, 7)
        assert await states(proxy) == {at(failing.port): OPEN, at(healthy.port): CLOSED}


# Closing again.


@asynccontextmanager
async def half_open(
    options: str = "", *, route: str = ""
) -> AsyncIterator[tuple[FakeClock, ScriptedUpstream, RunningProxy]]:
    """An upstream whose breaker has been open for its half minute."""
    clock = FakeClock()
    config = (route, options or breaker())
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, config[0], options=config[1]), clock=clock) as proxy,
    ):
        upstream.script(bad)
        await proxy.get()
        clock.advance(29.5)
        assert await state_of(proxy) == OPEN
        clock.advance(0.5)
        assert await state_of(proxy) == HALF_OPEN
        yield clock, upstream, proxy


async def test_half_open_it_lets_probes_through_and_no_more() -> None:
    gate = Gate()
    async with half_open(breaker(probes=2)) as (_, upstream, proxy), AsyncExitStack() as stack:
        upstream.script(gate, gate)
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(2)]
        for number, client in enumerate(clients):
            await client.send(request("GET", "/"))
            await upstream.seen(number + 2)
        for _ in range(3):
            refused = await proxy.get()
            assert (refused.reason_word, refused.get("Retry-After")) == ("breaker_open", "1")
        assert len(upstream.requests) == 3
        assert await state_of(proxy) == HALF_OPEN
        gate.open(answer(ok()))
        assert [(await client.response()).status for client in clients] == [200, 200]
        assert await state_of(proxy) == CLOSED
        assert (await proxy.get()).status == 200


async def test_probes_may_come_one_after_the_other() -> None:
    async with half_open(breaker(probes=3)) as (_, _upstream, proxy):
        for state in (HALF_OPEN, HALF_OPEN, CLOSED):
            assert (await proxy.get()).status == 200
            assert await state_of(proxy) == state


async def test_one_failed_probe_opens_it_for_the_whole_time() -> None:
    async with half_open(breaker(probes=3)) as (clock, upstream, proxy):
        upstream.script(answer(ok()), bad)
        assert (await proxy.get()).status == 200
        assert (await proxy.get()).status == 503
        assert await state_of(proxy) == OPEN
        assert (await proxy.get()).get("Retry-After") == "30"
        clock.advance(30)
        # The success of the time before does not count any more.
        for state in (HALF_OPEN, HALF_OPEN, CLOSED):
            assert (await proxy.get()).status == 200
            assert await state_of(proxy) == state


async def test_closed_again_it_starts_with_a_clean_slate() -> None:
    options = breaker(min_requests=2, failure_ratio=0.5)
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, options=options), clock=clock) as proxy,
    ):
        upstream.script(bad, bad, answer(ok()), bad)
        await proxy.get()
        await proxy.get()
        clock.advance(30)
        await proxy.get()
        assert await state_of(proxy) == CLOSED
        await proxy.get()
        assert await state_of(proxy) == CLOSED, "one failure alone, whatever was before"


async def test_results_of_attempts_that_began_before_it_opened_change_nothing() -> None:
    failing, succeeding = Gate(), Gate()
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, options=breaker()), clock=clock) as proxy,
        proxy.client() as one,
        proxy.client() as other,
    ):
        upstream.script(failing, succeeding, bad)
        await one.send(request("GET", "/one"))
        await upstream.seen(1)
        await other.send(request("GET", "/other"))
        await upstream.seen(2)
        await proxy.get()
        clock.advance(30)
        assert await state_of(proxy) == HALF_OPEN
        failing.open(bad)
        assert (await one.response()).status == 503
        assert await state_of(proxy) == HALF_OPEN
        succeeding.open(answer(ok()))
        assert (await other.response()).status == 200
        assert await state_of(proxy) == HALF_OPEN


async def test_a_streaming_response_counts_when_its_head_comes() -> None:
    async with half_open() as (_, upstream, proxy), proxy.client() as client:
        upstream.script(answer_and_hang(b"HTTP/1.1 200 OK\r\n\r\nfor hours"))
        await client.send(request("GET", "/"))
        await client.wire.read_until(b"for hours")
        assert await state_of(proxy) == CLOSED
        assert (await proxy.get()).status == 200


# What an attempt says of its address. After it two failures follow, under a breaker that
# opens when two of two have failed: how many it takes tells how the attempt was counted.

FAILURE, NOTHING, SUCCESS = 1, 2, None
JUDGE = breaker(min_requests=2, failure_ratio=1.0)


async def failures_until_open(proxy: RunningProxy, target: str = "/") -> int | None:
    """How many failures it takes to open the breaker; None if two are not enough."""
    assert await state_of(proxy) == CLOSED
    for number in (1, 2):
        await proxy.get(target)
        if await state_of(proxy) == OPEN:
            return number
    return None


@pytest.mark.parametrize(
    ("behaviour", "counts_as"),
    [
        pytest.param(answer(response(500)), FAILURE, id="500 is a failure"),
        pytest.param(answer(response(502)), FAILURE, id="502 is a failure"),
        pytest.param(answer(response(503)), FAILURE, id="503 is a failure"),
        pytest.param(answer(response(504)), FAILURE, id="504 is a failure"),
        pytest.param(reset, FAILURE, id="a reset is a failure"),
        pytest.param(hang_up, FAILURE, id="hanging up is a failure"),
        pytest.param(hang, FAILURE, id="silence is a failure"),
        pytest.param(answer(b"HTTP/9 what?\r\n\r\n"), FAILURE, id="nonsense is a failure"),
        pytest.param(answer(response(429)), NOTHING, id="429 says nothing: it is limiting us"),
        pytest.param(answer(response(421)), NOTHING, id="421 says nothing: it is not for it"),
        pytest.param(answer(ok()), SUCCESS, id="200 is a success"),
        pytest.param(answer(response(302)), SUCCESS, id="302 is a success"),
        pytest.param(answer(response(404)), SUCCESS, id="404 is a success"),
        pytest.param(answer(response(408)), SUCCESS, id="408 is a success"),
        pytest.param(answer(response(501)), SUCCESS, id="501 is a success"),
        pytest.param(
            answer_and_reset(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart"),
            SUCCESS,
            id="a body that breaks off is a success: its head had come",
        ),
    ],
)
async def test_what_an_outcome_says(behaviour: Behaviour, counts_as: int | None) -> None:
    async with (
        ScriptedUpstream(bad) as upstream,
        running(one_route(upstream, "timeout: 200ms", options=JUDGE)) as proxy,
    ):
        upstream.script(behaviour)
        await proxy.get()
        assert await failures_until_open(proxy) == counts_as


async def test_an_impatient_client_says_nothing() -> None:
    async with (
        ScriptedUpstream(bad) as upstream,
        running(one_route(upstream, options=JUDGE)) as proxy,
    ):
        upstream.script(hang)
        assert (await proxy.get("/", "Holdfast-Timeout: 30ms")).reason_word == "timeout"
        assert await failures_until_open(proxy) == NOTHING


async def test_503_says_nothing_where_the_upstream_refuses_by_it() -> None:
    options = f"{JUDGE}\nrefused: [429, 503]"
    async with (
        ScriptedUpstream(answer(response(500))) as upstream,
        running(one_route(upstream, options=options)) as proxy,
    ):
        upstream.script(answer(response(503)))
        await proxy.get()
        assert await failures_until_open(proxy) == NOTHING


Leave = Callable[[RunningProxy, ScriptedUpstream], Awaitable[None]]


async def leave_while_it_works(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    upstream.script(hang)
    async with proxy.client() as client:
        await client.send(request("GET", "/"))
        await upstream.seen()


async def leave_inside_the_upload(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    async with proxy.client() as client:
        await client.send(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\npart")
        await eventually(lambda: upstream.requests)


async def send_a_broken_body(proxy: RunningProxy, upstream: ScriptedUpstream) -> None:
    async with proxy.client() as client:
        await client.send(b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        await eventually(lambda: upstream.requests)
        await client.send(b"nonsense\r\n")
        assert (await client.response()).status == 400


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(leave_while_it_works, id="a client that leaves says nothing"),
        pytest.param(leave_inside_the_upload, id="nor does one that leaves inside its upload"),
        pytest.param(send_a_broken_body, id="nor does one that sends nonsense"),
    ],
)
async def test_what_a_client_does_says_nothing(leave: Leave) -> None:
    async with (
        ScriptedUpstream(bad) as upstream,
        running(one_route(upstream, options=JUDGE)) as proxy,
    ):
        await leave(proxy, upstream)
        await nothing_left(proxy)
        assert await failures_until_open(proxy) == NOTHING


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(leave_while_it_works, id="while the upstream works"),
        pytest.param(leave_inside_the_upload, id="inside its upload"),
        pytest.param(send_a_broken_body, id="after a broken body"),
    ],
)
async def test_a_client_that_leaves_half_open_gives_its_permit_back(leave: Leave) -> None:
    async with half_open() as (_, upstream, proxy):
        upstream.requests.clear()
        await leave(proxy, upstream)
        await nothing_left(proxy)
        assert await state_of(proxy) == HALF_OPEN
        assert (await proxy.get()).status == 200
        assert await state_of(proxy) == CLOSED


async def test_an_unknown_peer_says_nothing(tmp_path: Path) -> None:
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder in folders:
        folder.mkdir()
    old, new = (Certificates(folder) for folder in folders)
    options = f"{JUDGE}\ntls: {{ca: {old.ca}}}"
    async with (
        ScriptedUpstream(bad, tls=new.for_server()) as upstream,
        running(one_route(upstream, options=options)) as proxy,
    ):
        assert (await proxy.get()).reason_word == "certificate"
        # Trusted from now on, and its breaker is the same.
        old.ca.write_bytes(new.ca.read_bytes())
        assert (await proxy.admin("POST", "/-/reload")).status == 200
        assert await failures_until_open(proxy) == NOTHING


async def test_no_free_connection_says_nothing() -> None:
    options = f"{JUDGE}\nmax_connections: 1\nconnect_timeout: 30ms"
    async with (
        ScriptedUpstream(bad) as upstream,
        running(one_route(upstream, options=options)) as proxy,
    ):
        upstream.script(hang)
        async with proxy.client() as client:
            await client.send(request("GET", "/"))
            await upstream.seen()
            assert (await proxy.get()).reason_word == "busy"
        await nothing_left(proxy)
        assert await failures_until_open(proxy) == NOTHING


async def test_a_connection_that_ended_while_it_was_idle_says_nothing() -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream(bad) as upstream,
        running(one_route(upstream, options=JUDGE), clock=clock) as proxy,
    ):
        upstream.script(answer(ok()), reset, answer(response(429)))
        assert (await proxy.get()).status == 200
        clock.advance(15)  # out of the window, but the connection is kept
        assert (await proxy.get()).status == 429
        assert outcomes((await proxy.logged(2))[1]) == ["reset", "4xx"]
        assert await failures_until_open(proxy) == NOTHING


@pytest.mark.parametrize(
    ("fields", "route", "counts_as"),
    [
        pytest.param(
            ("Holdfast-Timeout: 20ms",), "", NOTHING, id="the request's own deadline says nothing"
        ),
        pytest.param((), "", FAILURE, id="connect_timeout is a failure"),
        pytest.param(
            (), "retry: {attempts: 1, attempt_timeout: 20ms}", FAILURE, id="so is attempt_timeout"
        ),
    ],
)
async def test_what_ends_a_dial(fields: tuple[str, ...], route: str, counts_as: int | None) -> None:
    with black_hole() as port:
        url = f"http://127.0.0.1:{port}"
        timeout = "5s" if "attempt_timeout" in route else "60ms"
        options = f"{JUDGE}\nconnect_timeout: {timeout}"
        async with running(one_route(url, route, options=options)) as proxy:
            await proxy.get("/", *fields)
            assert await failures_until_open(proxy) == counts_as


async def test_a_client_that_leaves_while_we_dial_says_nothing() -> None:
    with black_hole() as port:
        options = f"{JUDGE}\nconnect_timeout: 60ms"
        async with running(one_route(f"http://127.0.0.1:{port}", options=options)) as proxy:
            async with proxy.client() as client:
                await client.send(request("GET", "/"))
                await eventually(lambda: proxy.open_upstream_connections)
            await nothing_left(proxy)
            assert await failures_until_open(proxy) == NOTHING


async def test_a_connection_that_comes_after_the_deadline_says_nothing() -> None:
    names = Names(slow=["127.0.0.1"])
    async with ScriptedUpstream(bad) as upstream:
        config = one_route(f"http://slow:{upstream.port}", options=JUDGE)
        async with running(config) as proxy, proxy.client() as client:
            names.fall_silent()
            await client.send(request("GET", "/", "Holdfast-Timeout: 30ms"))
            await eventually(lambda: names.asked)
            # Answered in the moment in which the deadline has passed and nobody gave up yet.
            await eventually(lambda: "deadlines" not in leftovers(proxy))
            names.speak()
            assert (await client.response()).reason_word == "timeout"
            assert upstream.requests == []
            assert await failures_until_open(proxy) == NOTHING


# A route that retries.

RETRY = "retry: {backoff: {strategy: constant, base: 1ms}}"


async def test_a_retry_that_no_breaker_would_let_through_is_not_waited_for() -> None:
    async with (
        ScriptedUpstream(answer(response(503, b"its own words"))) as upstream,
        running(one_route(upstream, RETRY, options=breaker(min_requests=2))) as proxy,
    ):
        relayed = await proxy.get()
        assert (relayed.status, relayed.body) == (503, b"its own words")
        assert relayed.get("Holdfast-Attempts") == "2"
        record = await last_logged(proxy)
        assert [attempt["why"] for attempt in record["attempts"]] == ["retried", "breaker_open"]
        assert len(upstream.requests) == 2


async def test_a_breaker_that_opens_during_the_wait_ends_it_with_our_own_answer() -> None:
    clock = FakeClock()
    clock.chance = 0.5
    waiting = "retry: {backoff: {strategy: constant, base: 200ms, jitter: none}}"
    options = breaker(min_requests=2)
    async with (
        ScriptedUpstream(bad) as upstream,
        running(one_route(upstream, waiting, options=options), clock=clock) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("GET", "/waits"))
        await eventually(lambda: len(proxy.app._retry_waits) == 1)
        # One that is not repeatable fails meanwhile, and is not retried.
        async with proxy.client() as other:
            assert (await other.request("POST", "/fails")).status == 503
        refused = await client.response()
        assert (refused.status, refused.reason_word) == (503, "breaker_open")
        assert (refused.get("Retry-After"), refused.problem["attempts"]) == ("30", 1)
        record = (await proxy.logged(2))[1]
        assert [attempt["why"] for attempt in record["attempts"]] == ["breaker_open"]
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_retry_verdicts_total", reason="breaker_open") == 1
        # The retry was never made, so it costs nothing.
        assert metrics.total("holdfast_retry_budget_remaining") == pytest.approx(10.4)
        await nothing_left(proxy)
        assert len(upstream.requests) == 2


async def test_a_retry_that_comes_when_the_breaker_has_been_open_long_enough_probes_it() -> None:
    patient = "retry: {backoff: {strategy: constant, base: 60ms, jitter: none}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, patient, options=breaker(open_for="30ms"))) as proxy,
    ):
        upstream.script(bad)
        given = await proxy.get()
        assert (given.status, given.get("Holdfast-Attempts")) == (200, "2")
        assert await state_of(proxy) == CLOSED


async def test_each_address_of_a_name_has_a_breaker_of_its_own() -> None:
    Names(both=["::1", "127.0.0.1"])
    async with ScriptedUpstream() as upstream:
        url = f"http://both:{upstream.port}"
        clock = FakeClock()
        async with running(one_route(url, options=breaker(min_requests=2)), clock=clock) as proxy:
            # One attempt tries both: callers notice nothing, though nothing is retried.
            for _ in range(6):
                assert (await proxy.get()).status == 200
                clock.advance(2.5)
            assert await states(proxy) == {
                at(upstream.port, "[::1]"): OPEN,
                at(upstream.port): CLOSED,
            }


# Reloads.


async def test_a_reload_that_leaves_the_breaker_as_it_was_forgets_nothing() -> None:
    options = f"{breaker()}\nconnect_timeout: 3s"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, options=options)) as proxy,
    ):
        upstream.script(bad)
        await proxy.get()
        await reload(proxy, "connect_timeout: 3s", "connect_timeout: 4s")
        assert await state_of(proxy) == OPEN
        assert (await proxy.get()).reason_word == "breaker_open"


async def test_a_reload_forgets_nothing_of_a_name_either() -> None:
    Names(named=["127.0.0.1"])
    async with ScriptedUpstream() as upstream:
        config = one_route(
            f"http://named:{upstream.port}", options=f"{breaker()}\nconnect_timeout: 3s"
        )
        async with running(config) as proxy:
            upstream.script(bad)
            await proxy.get()
            await reload(proxy, "connect_timeout: 3s", "connect_timeout: 4s")
            # Looked up anew, it stands for the same address.
            refused = await proxy.get()
            assert (refused.reason_word, refused.get("Retry-After")) == ("breaker_open", "30")
            assert await state_of(proxy) == OPEN
            assert len(upstream.requests) == 1


async def test_a_reload_that_changes_the_breaker_starts_anew() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, options=breaker())) as proxy,
    ):
        upstream.script(bad)
        await proxy.get()
        await reload(proxy, "min_requests: 1", "min_requests: 2")
        assert await state_of(proxy) == CLOSED
        assert (await proxy.get()).status == 200


async def test_an_address_that_stays_keeps_its_breaker_when_others_come_and_go() -> None:
    async with (
        ScriptedUpstream() as stays,
        ScriptedUpstream() as goes,
        ScriptedUpstream() as comes,
        running(one_route(f"{stays.url}, {goes.url}", options=breaker())) as proxy,
    ):
        stays.script(bad)
        goes.script(bad)
        await proxy.get()
        await proxy.get()
        assert await state_of(proxy) == OPEN
        await reload(proxy, goes.url, comes.url)
        assert await states(proxy) == {at(stays.port): OPEN, at(comes.port): CLOSED}
        assert await state_of(proxy) == CLOSED


# One of three addresses dead: the judged case.

REQUESTS = 60


@asynccontextmanager
async def one_of_three(
    dead: str, retry: str = RETRY
) -> AsyncIterator[tuple[FakeClock, RunningProxy, list[ScriptedUpstream]]]:
    """Two that answer, and the *dead* URL between them."""
    clock = FakeClock()
    async with ScriptedUpstream() as one, ScriptedUpstream() as other:
        urls = f"{one.url}, {dead}, {other.url}"
        options = breaker(min_requests=4, failure_ratio=0.5)
        async with running(one_route(urls, retry, options=options), clock=clock) as proxy:
            yield clock, proxy, [one, other]


async def assert_callers_notice_nothing(
    clock: FakeClock, proxy: RunningProxy, healthy: list[ScriptedUpstream], port: int
) -> Counter[str]:
    """Send requests over some seconds; how the attempts at the dead address ended."""
    async with proxy.client() as client:
        for _ in range(REQUESTS):
            assert (await client.get()).status == 200
            clock.advance(0.1)
    log = await proxy.logged(REQUESTS)
    attempts = [attempt for record in log for attempt in record["attempts"]]
    at_the_dead = [a for a in attempts if a["address"] == at(port)]
    # Once its breaker is open nobody is sent there any more.
    assert len(at_the_dead) == 4
    assert (await states(proxy))[at(port)] == OPEN
    assert await state_of(proxy) == CLOSED
    assert sum(len(upstream.requests) for upstream in healthy) == REQUESTS
    metrics = await proxy.metrics()
    assert metrics.total("holdfast_requests_total", code="200") == REQUESTS
    assert metrics.total("holdfast_retry_verdicts_total", reason="recovered") == 4
    # 10 in reserve and a fifth of all requests, less the four retries.
    left = metrics.total("holdfast_retry_budget_remaining", upstream="scripted")
    assert left >= 10 + 0.2 * REQUESTS - 4 - 0.5
    return Counter(attempt["outcome"] for attempt in at_the_dead)


async def test_one_of_three_refuses_connections_and_no_caller_notices() -> None:
    with refusing_port() as port:
        async with one_of_three(f"http://127.0.0.1:{port}") as (clock, proxy, healthy):
            ended = await assert_callers_notice_nothing(clock, proxy, healthy, port)
            assert ended == {"connect": 4}


async def test_a_breaker_with_the_usual_settings_opens_too() -> None:
    clock = FakeClock()
    with refusing_port() as port:
        async with ScriptedUpstream() as one, ScriptedUpstream() as other:
            urls = f"{one.url}, http://127.0.0.1:{port}, {other.url}"
            config = one_route(urls, RETRY, options="breaker: true")
            async with running(config, clock=clock) as proxy, proxy.client() as client:
                # Twenty a second, for twelve seconds.
                for _ in range(240):
                    assert (await client.get()).status == 200
                    clock.advance(0.05)
                assert (await states(proxy))[at(port)] == OPEN
                metrics = await proxy.metrics()
                ended = "holdfast_upstream_attempts_total"
                assert metrics.total(ended, outcome="connect") == 20
                assert metrics.total("holdfast_retry_budget_remaining") > 10


async def test_one_of_three_always_answers_503_and_no_caller_notices() -> None:
    async with (
        ScriptedUpstream(bad) as dead,
        one_of_three(dead.url) as (clock, proxy, healthy),
    ):
        ended = await assert_callers_notice_nothing(clock, proxy, healthy, dead.port)
        assert ended == {"5xx": 4}
        assert len(dead.requests) == 4


async def test_one_of_three_never_answers_and_no_caller_notices() -> None:
    retry = "retry: {attempt_timeout: 150ms, backoff: {strategy: constant, base: 1ms}}"
    async with (
        ScriptedUpstream(hang) as dead,
        one_of_three(dead.url, retry) as (clock, proxy, healthy),
    ):
        ended = await assert_callers_notice_nothing(clock, proxy, healthy, dead.port)
        assert ended == {"timeout": 4}


async def test_one_of_three_is_dead_and_a_crowd_does_not_notice() -> None:
    with refusing_port() as port:
        async with one_of_three(f"http://127.0.0.1:{port}") as (_, proxy, healthy):

            async def caller() -> Response:
                async with proxy.client() as client:
                    return await client.get()

            answers = await asyncio.gather(*(caller() for _ in range(REQUESTS)))
            assert Counter(response.status for response in answers) == {200: REQUESTS}
            assert sum(len(upstream.requests) for upstream in healthy) == REQUESTS
            # Only those who were sent there before the first of them had failed.
            metrics = await proxy.metrics()
            failures = metrics.total("holdfast_upstream_attempts_total", outcome="connect")
            assert 1 <= failures <= REQUESTS / 3
            left = metrics.total("holdfast_retry_budget_remaining", upstream="scripted")
            assert left == pytest.approx(10 + 0.2 * REQUESTS - failures)


async def test_a_dead_address_that_recovers_is_used_again() -> None:
    with ExitStack() as dead:
        port = dead.enter_context(refusing_port())
        async with one_of_three(f"http://127.0.0.1:{port}") as (clock, proxy, healthy):
            await assert_callers_notice_nothing(clock, proxy, healthy, port)
            dead.close()
            clock.advance(30)
            async with ScriptedUpstream(port=port) as recovered:
                for _ in range(6):
                    assert (await proxy.get()).status == 200
                assert len(recovered.requests) == 2
                assert (await states(proxy))[at(port)] == CLOSED
