"""What the rules allow, what was on the wire and what we say about it: all three agree.

For every way to fail, each combination of method, key, promise and body goes through one
running proxy. ``retry_rules.py`` says how many attempts each may have; the upstream
counts those that came; access log, metrics and answer must claim the same number.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from tests.pipeline.retry_rules import ATTEMPTS, BUFFER, USUAL_KEY, Body, Case, Fault, expected
from tests.support import (
    Behaviour,
    Certificates,
    Metrics,
    Request,
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_close,
    answer_and_reset,
    close_at_once,
    hang,
    hang_up,
    ok,
    real_time,
    request,
    reset,
    response,
    running,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.ports import refusing_port
from tests.support.proxies import LogRecord

pytestmark = virtual_time


OTHER_KEY = "X-Order-Id"
PROMISES = {"": "false", USUAL_KEY: "true", OTHER_KEY: OTHER_KEY}
"""``honours_key`` as the file has it, by the header that it stands for."""
METHODS = ("GET", "PUT", "DELETE", "POST", "PATCH", "PURGE")
SIZES = (10, BUFFER, BUFFER + 1)
BODIES = (Body(), *(Body(size, framing) for framing in ("length", "chunked") for size in SIZES))
SMALL = Body(10, "length")
PAIRS = (("", ""), (USUAL_KEY, ""), (USUAL_KEY, USUAL_KEY))
"""Key and promise: neither, a key without a promise, a key that is honoured."""

CASES = (
    *(Case(*row) for row in product(METHODS, ("", USUAL_KEY), PROMISES, ["auto"], BODIES)),
    *(Case(method, OTHER_KEY, promise, body=SMALL) for method in METHODS for promise in PROMISES),
    *(
        Case(method, *pair, unsafe, SMALL)
        for method, pair, unsafe in product(METHODS, PAIRS, ("never", "always"))
    ),
    *(Case(method, *pair, failures=1) for method, pair in product(METHODS, PAIRS)),
    *(Case(method, body=Body(BUFFER, "chunked"), failures=2) for method in METHODS),
)
ATTEMPTED = "holdfast_upstream_attempts_total"
JUDGED = "holdfast_retry_verdicts_total"
MISDIRECTED = 421
AT_A_TIME = 64
"""Requests under way at once."""

CUT_SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"
NONSENSE = b"HTTP/1.1 two hundred\r\n\r\n"


@dataclass(frozen=True)
class Trial:
    """A fault, how the upstream brings it about, and under which policy."""

    fault: Fault
    behave: Behaviour | None = None
    """None: it answers with the fault's status."""
    code: int = 0
    """What the client gets when the fault lasts; 0: the fault's own status."""
    on: str = "default"
    retry: str = ""
    fields: tuple[str, ...] = ()
    """More header fields of each request."""


def status(number: int, *, on: str = "default", listed: bool = True) -> Trial:
    return Trial(Fault("status", number, listed), on=on)


def refused(number: int) -> Trial:
    return Trial(Fault("refused", number))


TRIALS = {
    "429 says that it was refused": refused(429),
    "421 says that this connection was wrong": refused(421),
    "425 says that it was too early": refused(425),
    "425 to what came as early data is for the client to repeat": Trial(
        Fault("refused", 425, to_early_data=True), fields=("Early-Data: 1",)
    ),
    "RST once the request was read": Trial(Fault("reset"), reset, 502),
    "FIN before a response": Trial(Fault("reset"), hang_up, 502),
    "no response within attempt_timeout": Trial(
        Fault("timeout"), hang, 504, retry="attempt_timeout: 400ms"
    ),
    "408": status(408),
    "500 is not listed": status(500, listed=False),
    "500 is listed": status(500, on="default, 500"),
    "502": status(502),
    "503": status(503),
    "504": status(504),
    "409 is not listed": status(409, listed=False),
    "409 is listed": status(409, on="default, 409"),
    "nonsense": Trial(Fault("protocol", listed=False), answer_and_close(NONSENSE), 502),
    "nonsense is listed": Trial(
        Fault("protocol"), answer_and_close(NONSENSE), 502, on="default, protocol"
    ),
    "the body breaks off": Trial(Fault("truncated"), answer_and_reset(CUT_SHORT), 200),
}


class Troubled:
    """Treats each request as its case says: so many failures, then a success."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._arrived: Counter[str] = Counter()

    async def __call__(self, visit: Visit) -> None:
        name = visit.request.get("X-Request-Id") or ""
        self._arrived[name] += 1
        told = b"attempt %d" % self._arrived[name]
        if self._arrived[name] > CASES[int(name)].failures:
            # Closed, because a used connection that is reset is another matter.
            await answer(ok(told, "Connection: close"))(visit)
        elif self._trial.behave is None:
            await answer(response(self._trial.fault.status, told))(visit)
        else:
            await self._trial.behave(visit)


@pytest.mark.parametrize("trial", [pytest.param(trial, id=name) for name, trial in TRIALS.items()])
async def test_the_wire_shows_the_attempts_that_the_rules_allow(trial: Trial) -> None:
    async with (
        ScriptedUpstream(Troubled(trial)) as upstream,
        running(configuration(upstream.url, trial), clock=impatient()) as proxy,
    ):
        answers = await ask_all(proxy, trial)
        await assert_all_agree(proxy, trial, answers)
        assert_wire_agrees(upstream, trial)
        assert_last_response_was_handed_over(trial, answers)


async def test_a_connection_that_is_refused_is_tried_again_whatever_the_request() -> None:
    trial = Trial(Fault("connect", lasts=True), code=502)
    with refusing_port() as port:
        url = f"http://127.0.0.1:{port}"
        async with running(configuration(url, trial), clock=impatient()) as proxy:
            await assert_all_agree(proxy, trial, await ask_all(proxy, trial))


@real_time  # TLS
async def test_a_handshake_that_fails_is_tried_again_whatever_the_request() -> None:
    trial = Trial(Fault("connect", lasts=True), code=502)
    async with ScriptedUpstream() as upstream:
        upstream.greet(*[close_at_once] * (len(CASES) * ATTEMPTS))
        url = f"https://127.0.0.1:{upstream.port}"
        async with running(configuration(url, trial), clock=impatient()) as proxy:
            await assert_all_agree(proxy, trial, await ask_all(proxy, trial))
        assert len(upstream.connections) == len(CASES) * ATTEMPTS
        assert upstream.requests == []


@real_time  # TLS
async def test_an_upstream_that_is_not_trusted_is_not_tried_again(tmp_path: Path) -> None:
    trial = Trial(Fault("certificate", lasts=True), code=502)
    async with (
        ScriptedUpstream(tls=Certificates(tmp_path).for_server()) as upstream,
        running(configuration(upstream.url, trial), clock=impatient()) as proxy,
    ):
        await assert_all_agree(proxy, trial, await ask_all(proxy, trial))
        assert len(upstream.connections) == len(CASES)
        assert upstream.requests == []


async def test_waiting_in_vain_for_a_free_connection_is_not_repeated() -> None:
    trial = Trial(Fault("busy", lasts=True), code=503)
    options = "max_connections: 1, connect_timeout: 50ms, "
    async with (
        ScriptedUpstream(hang) as upstream,
        running(configuration(upstream.url, trial, options), clock=impatient()) as proxy,
        AsyncExitStack() as stack,
    ):
        for promise in PROMISES:
            occupant = await stack.enter_async_context(proxy.client())
            await occupant.send(request("GET", f"/{route_name(promise, 'auto')}/occupied"))
        await upstream.seen(len(PROMISES))
        await assert_all_agree(proxy, trial, await ask_all(proxy, trial))
        assert len(upstream.requests) == len(PROMISES)


# One proxy for all cases of a trial.


def impatient() -> FakeClock:
    """A clock under which every jittered wait is over at once."""
    clock = FakeClock()
    clock.chance = 0.0
    return clock


def route_name(honours: str, unsafe: str) -> str:
    return f"{honours or 'none'}-{unsafe}"


def configuration(url: str, trial: Trial, options: str = "") -> str:
    """An upstream for each promise, at the same *url*, and a route for each way to be unsafe."""
    lines = ["upstreams:"]
    for honours, told in PROMISES.items():
        lines.append(f"  {honours or 'none'}:")
        lines.append(f"    {{urls: [{url}], {options}honours_key: {told}, budget: false}}")
    lines.append("routes:")
    for honours, unsafe in product(PROMISES, ("auto", "never", "always")):
        name = route_name(honours, unsafe)
        lines.append(f"  - match: /{name}/**")
        lines.append(f"    name: {name}")
        lines.append(f"    upstream: {honours or 'none'}")
        lines.append(f"    buffer: {BUFFER}B")
        lines.append(f"    retry: {{on: [{trial.on}], unsafe: {unsafe}, {trial.retry}}}")
    return "\n".join(lines)


async def ask_all(proxy: RunningProxy, trial: Trial) -> list[Response]:
    """The answers to all cases."""
    at_once = asyncio.Semaphore(AT_A_TIME)

    async def ask(number: int, case: Case) -> Response:
        async with at_once, proxy.client() as client:
            await client.send(*written(number, case, trial.fields))
            return await client.response(case.method)

    return await asyncio.gather(*(ask(number, case) for number, case in enumerate(CASES)))


def content(case: Case) -> bytes:
    return bytes(range(case.body.size))


def written(number: int, case: Case, fields: Iterable[str]) -> list[bytes]:
    """A case as a client sends it: a chunked body comes after its head, the others with it."""
    target = f"/{route_name(case.honours, case.unsafe)}/{number}"
    lines = [*fields, f"X-Request-Id: {number}"]
    if case.key:
        lines.append(f"{case.key}: key-of-{number}")
    body = content(case)
    match case.body.framing:
        case "none":
            return [request(case.method, target, *lines)]
        case "length":
            return [request(case.method, target, *lines, body=body)]
        case "chunked":
            head = request(case.method, target, *lines, "Transfer-Encoding: chunked")
            first, second = body[:7], body[7:]
            chunks = [b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (first, second)]
            return [head, *chunks, b"0\r\n\r\n"]


# What must agree.


@dataclass(frozen=True)
class Story:
    """The attempts at one request: by the rules, or as one of the witnesses tells it."""

    outcomes: tuple[str, ...]
    whys: tuple[str, ...]
    code: int
    claimed: int
    """Attempts that the answer tells of: ``Holdfast-Attempts``, or one if it is silent."""


def by_the_rules(case: Case, trial: Trial) -> Story:
    want = expected(case, trial.fault)
    label = trial.fault.label
    recovers = want.why == "recovered"
    return Story(
        outcomes=(label,) * (want.attempts - 1) + (("2xx",) if recovers else (label,)),
        whys=("retried",) * (want.attempts - 1) + (want.why,),
        code=200 if recovers else trial.code or trial.fault.status,
        claimed=want.attempts,
    )


def as_told(record: LogRecord, answered: Response) -> Story:
    attempts = record["attempts"]
    assert [attempt["n"] for attempt in attempts] == list(range(1, len(attempts) + 1))
    claimed = int(answered.get("Holdfast-Attempts") or 1)
    assert (answered.get("Holdfast-Attempts") is None) == (claimed == 1)
    if answered.get("Proxy-Status") is not None:
        assert answered.problem["attempts"] == claimed
    assert record["code"] == answered.status
    return Story(
        outcomes=tuple(attempt["outcome"] for attempt in attempts),
        whys=tuple(attempt["why"] for attempt in attempts),
        code=answered.status,
        claimed=claimed,
    )


async def assert_all_agree(proxy: RunningProxy, trial: Trial, answers: list[Response]) -> None:
    """Log, metrics and answers tell what the rules say."""
    log = await proxy.logged(len(CASES))
    records = {record["request_id"]: record for record in log}
    told = [as_told(records[str(n)], answered) for n, answered in enumerate(answers)]
    wanted = [by_the_rules(case, trial) for case in CASES]
    assert different(told, wanted) == {}
    await assert_metrics_agree(await proxy.metrics(), wanted)


def different(found: Sequence[object], wanted: Sequence[object]) -> dict[Case, tuple[object, ...]]:
    """The cases in which they differ."""
    rows = zip(CASES, found, wanted, strict=True)
    return {case: (one, other) for case, one, other in rows if one != other}


async def assert_metrics_agree(metrics: Metrics, stories: Sequence[Story]) -> None:
    counted: Counter[tuple[str, str, str, str]] = Counter()
    for case, story in zip(CASES, stories, strict=True):
        route = route_name(case.honours, case.unsafe)
        counted.update((ATTEMPTED, route, "outcome", outcome) for outcome in story.outcomes)
        counted.update((JUDGED, route, "reason", why) for why in story.whys)
    for (name, route, label, word), count in counted.items():
        assert metrics.total(name, route=route, **{label: word}) == count, (route, word)
    attempts = sum(len(story.outcomes) for story in stories)
    assert metrics.total(ATTEMPTED) == metrics.total(JUDGED) == attempts


def assert_wire_agrees(upstream: ScriptedUpstream, trial: Trial) -> None:
    """The upstream got as many requests as the rules allow, those of one case alike to the byte."""
    arrived: dict[int, list[Request]] = {number: [] for number in range(len(CASES))}
    for attempt in upstream.requests:
        arrived[int(attempt.get("X-Request-Id") or -1)].append(attempt)
    allowed = [expected(case, trial.fault).attempts for case in CASES]
    assert different([len(attempts) for attempts in arrived.values()], allowed) == {}
    for case, attempts in zip(CASES, arrived.values(), strict=True):
        assert {(attempt.raw_head, attempt.body) for attempt in attempts} == {
            (attempts[0].raw_head, content(case))
        }
        if trial.fault.status == MISDIRECTED:
            assert len({attempt.connection for attempt in attempts}) == len(attempts)


def assert_last_response_was_handed_over(trial: Trial, answers: Sequence[Response]) -> None:
    """Each response names its attempt: the client got the one of the last."""
    for case, answered in zip(CASES, answers, strict=True):
        want = expected(case, trial.fault)
        if want.why == "recovered" or trial.behave is None:
            assert answered.body == b"attempt %d" % want.attempts
        assert answered.complete == (trial.fault.kind != "truncated")
