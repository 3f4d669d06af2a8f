import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from proxy.core.exchange import Exchange
from proxy.http.refusal import Refusal, RefusalReason
from proxy.observe.logs.access_log import AccessLog
from proxy.observe.logs.line_writer import LineWriter
from proxy.observe.notable import hook
from proxy.observe.recent import Recent
from proxy.policy.attempt import FailureKind, RetryDelay
from proxy.policy.reasons import KeyResult, VerdictReason
from tests.observe.conftest import MakeAttempt, MakeExchange, metrics_of

Line = dict[str, object]


class StoppedClock:
    """A quarter past a full second, for ever."""

    def monotonic(self) -> float:
        return 100.0

    def wall(self) -> float:
        return 1700000000.25

    def roll(self) -> float:
        raise AssertionError("nothing is left to chance in a log")


class Written:
    """A log into a file, and what stands there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.writer = LineWriter(fd)
        os.close(fd)
        self.log = AccessLog(self.writer, StoppedClock())

    def text(self) -> str:
        self.writer.close()
        return self._path.read_text("ascii")

    def lines(self) -> list[Line]:
        return [json.loads(line) for line in self.text().splitlines()]


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path / "access.log")
    yield made
    made.writer.close()


async def test_a_line_tells_the_whole_story(
    written: Written, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    first = attempt(1, status=0, kind=FailureKind.RESET, duration=0.25)
    second = attempt(2, status=503, duration=0.5)
    second.reused = True
    written.log.write(
        "charges",
        exchange(
            method="POST",
            target="/v1/charges?card=4242",
            code=503,
            duration=2.5,
            attempts=[first, second],
        ),
    )
    assert written.lines() == [
        {
            "time": "2023-11-14T22:13:20.250Z",
            "request_id": "0af7651916cd43dd8448eb211c80319c",
            "route": "charges",
            "method": "POST",
            "path": "/v1/charges",
            "code": 503,
            "duration_ms": 2500.0,
            "bytes": 1234,
            "client": "192.0.2.9",
            "attempts": [
                {
                    "n": 1,
                    "upstream": "payments",
                    "address": "10.0.0.7:8443",
                    "start_ms": 1000.0,
                    "ms": 250.0,
                    "outcome": "reset",
                    "status": None,
                    "sent": True,
                    "received": False,
                    "reused": False,
                },
                {
                    "n": 2,
                    "upstream": "payments",
                    "address": "10.0.0.7:8443",
                    "start_ms": 2000.0,
                    "ms": 500.0,
                    "outcome": "5xx",
                    "status": 503,
                    "sent": True,
                    "received": True,
                    "reused": True,
                },
            ],
        }
    ]


async def test_an_answer_of_our_own_names_its_reason(
    written: Written, exchange: MakeExchange
) -> None:
    refusal = Refusal(RefusalReason.NO_ROUTE, "See the routes.")
    written.log.write("_unmatched", exchange(code=404, refusal=refusal))
    [line] = written.lines()
    assert line["refusal"] == "no_route"
    assert line["attempts"] == []


async def test_a_refusal_says_which_limit_it_was_where_there_are_several(
    written: Written, exchange: MakeExchange
) -> None:
    for cause in ("max_wait", ""):
        refusal = Refusal(RefusalReason.THROTTLED, "Come back later.", cause=cause)
        written.log.write("charges", exchange(code=429, refusal=refusal))
    one_of_several, only_one = written.lines()
    assert one_of_several["refusal"] == only_one["refusal"] == "throttled"
    assert one_of_several["cause"] == "max_wait"
    assert "cause" not in only_one


async def test_an_attempt_tells_how_long_it_waited_and_why_it_was_the_last_or_not(
    written: Written, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    attempts = [
        attempt(1, status=503, why=VerdictReason.RETRIED),
        attempt(2, status=429, pause=RetryDelay(0.0725, "backoff"), why=VerdictReason.RETRIED),
        attempt(3, status=429, pause=RetryDelay(2.0, "hint"), why=VerdictReason.ATTEMPTS_EXHAUSTED),
    ]
    written.log.write("charges", exchange(code=429, attempts=attempts))
    [line] = written.lines()
    logged = line["attempts"]
    assert isinstance(logged, list)
    shown = ("wait_ms", "wait_for", "why")
    assert [{field: each[field] for field in shown if field in each} for each in logged] == [
        {"why": "retried"},
        {"wait_ms": 72.5, "wait_for": "backoff", "why": "retried"},
        {"wait_ms": 2000.0, "wait_for": "hint", "why": "attempts_exhausted"},
    ]


async def test_an_attempt_tells_how_long_it_waits_in_queue_if_it_did(
    written: Written, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    attempts = [
        attempt(1, status=503, queued=0.0125, why=VerdictReason.RETRIED),
        attempt(
            2, status=503, pause=RetryDelay(0.25, "backoff"), queued=1.5, why=VerdictReason.RETRIED
        ),
        attempt(3, why=VerdictReason.RECOVERED),
    ]
    written.log.write("charges", exchange(attempts=attempts))
    [line] = written.lines()
    logged = line["attempts"]
    assert isinstance(logged, list)
    waits = [(each.get("wait_ms"), each.get("queue_ms")) for each in logged]
    assert waits == [(None, 12.5), (250.0, 1500.0), (None, None)]


@pytest.mark.parametrize("why", VerdictReason)
async def test_every_verdict_is_logged_by_its_word(
    written: Written, exchange: MakeExchange, attempt: MakeAttempt, why: VerdictReason
) -> None:
    written.log.write("charges", exchange(attempts=[attempt(why=why)]))
    assert f'"why":"{why.value}"' in written.text()


async def test_a_fallback_is_told_from_an_answer(
    written: Written, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    first = attempt(1, status=503, why=VerdictReason.ATTEMPTS_EXHAUSTED)
    other = attempt(2, upstream="payments-eu")
    written.log.write("charges", exchange(attempts=[first, other], fallback=True))
    written.log.write("charges", exchange(attempts=[attempt()]))
    in_its_place, plain = written.lines()
    assert in_its_place["fallback"] is True
    assert "fallback" not in plain


CASES: list[tuple[str, bool, Callable[[MakeExchange, MakeAttempt], Exchange]]] = [
    ("a plain success", False, lambda e, a: e(attempts=[a()])),
    ("the upstream's own 404", False, lambda e, a: e(code=404, attempts=[a(status=404)])),
    ("the upstream's own 500", True, lambda e, a: e(code=500, attempts=[a(status=500)])),
    (
        "refused by us",
        True,
        lambda e, _: e(code=413, refusal=Refusal(RefusalReason.BODY_TOO_LARGE, "Send less.")),
    ),
    ("the client left", True, lambda e, _: e(code=499)),
    (
        "broken off after its head",
        True,
        lambda e, a: e(attempts=[a(kind=FailureKind.TRUNCATED)]),
    ),
    (
        "saved by a second attempt",
        True,
        lambda e, a: e(attempts=[a(1, status=0, kind=FailureKind.RESET), a(2)]),
    ),
    ("waited in a queue", True, lambda e, a: e(attempts=[a(queued=0.001)])),
    (
        "refused by a throttle",
        True,
        lambda e, _: e(
            code=429, refusal=Refusal(RefusalReason.THROTTLED, "Later.", cause="queue_full")
        ),
    ),
    (
        "the client left during a wait",
        True,
        lambda e, a: e(code=499, attempts=[a(status=503, why=VerdictReason.RETRIED)]),
    ),
    (
        "a wait that a drain ended",
        True,
        lambda e, a: e(
            code=503,
            attempts=[a(status=429, why=VerdictReason.RETRIED)],
            refusal=Refusal(RefusalReason.DRAINING, "Going away."),
        ),
    ),
    (
        "a fixed answer instead of the upstream's 503",
        True,
        lambda e, a: e(attempts=[a(status=503, why=VerdictReason.NOT_REPEATABLE)], fallback=True),
    ),
    (
        "judged and found good at the first attempt",
        False,
        lambda e, a: e(attempts=[a(why=VerdictReason.SUCCESS)]),
    ),
    ("nothing was attempted, nothing failed", False, lambda e, _: e(code=204)),
]


@pytest.mark.parametrize(
    ("notable", "make"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
@pytest.mark.parametrize("mode", ["all", "notable", "none"])
async def test_which_requests_get_a_line(
    *,
    written: Written,
    exchange: MakeExchange,
    attempt: MakeAttempt,
    mode: str,
    notable: bool,
    make: Callable[[MakeExchange, MakeAttempt], Exchange],
) -> None:
    recent = Recent(StoppedClock())
    log = hook(mode, written.log, recent)
    recorder = metrics_of().route("charges", ["payments"], log, retries=True)
    recorder.started()
    recorder.finished(make(exchange, attempt))
    expected = mode == "all" or (mode == "notable" and notable)
    assert [line["route"] for line in written.lines()] == ["charges"] * expected
    assert len(recent) == (notable and mode != "none"), "what /attempts tells of"


def test_no_log_costs_no_call(written: Written) -> None:
    assert hook("none", written.log, Recent(StoppedClock())) is None


async def test_what_is_not_notable_costs_one_call(
    written: Written, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    log = hook("notable", written.log, Recent(StoppedClock()))
    recorder = metrics_of().route("charges", ["payments"], log, retries=True)
    plain = exchange(attempts=[attempt()])
    recorder.finished(plain)  # the first of its kind costs more
    calls: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    recorder.finished(plain)
    sys.setprofile(None)
    assert calls == ["RouteRecorder.finished", "Histogram.observe", "Notable.finished"]


async def test_secrets_stay_out(written: Written, exchange: MakeExchange) -> None:
    carrying = exchange(target="/v1/charges?api_key=hunter2&x=hunter2#hunter2", code=500)
    carrying.raw_headers = (
        (b"Authorization", b"Bearer hunter2"),
        (b"Cookie", b"session=hunter2"),
        (b"Idempotency-Key", b"hunter2"),
    )
    carrying.refusal = Refusal(RefusalReason.BAD_REQUEST, "hunter2 is no header")
    written.log.write("charges", carrying)
    assert "hunter2" not in written.text()


@pytest.mark.parametrize(
    ("target", "path"),
    [
        pytest.param("/plain", "/plain", id="a plain path as it is"),
        pytest.param("/a?b?c", "/a", id="the query begins at the first question mark"),
        pytest.param('/"quoted\\', '/"quoted\\', id="quotes and backslashes come back whole"),
        pytest.param("/a\r\n{}", "/a\r\n{}", id="a line break cannot forge a line"),
        pytest.param("/\x1b[31m\x7f", "/\x1b[31m\x7f", id="terminal escapes are escaped"),
        pytest.param("/smør", "/smør", id="other letters survive"),
        pytest.param("/\udcff\udc80", "/\\xff\\x80", id="bytes that are no UTF-8 are spelled out"),
        pytest.param("/" + "a" * 9000, "/" + "a" * 2047, id="a long path is clipped"),
        pytest.param("", "", id="nothing was read of it"),
    ],
)
async def test_text_of_a_client_is_escaped(
    written: Written, exchange: MakeExchange, target: str, path: str
) -> None:
    written.log.write("charges", exchange(target=target))
    text = written.text()
    assert text.count("\n") == 1
    assert all(" " <= letter <= "~" for letter in text.rstrip("\n"))
    assert json.loads(text)["path"] == path


async def test_a_made_up_method_is_escaped_too(written: Written, exchange: MakeExchange) -> None:
    written.log.write("charges", exchange(method='X"\n' * 5000))
    [line] = written.lines()
    assert str(line["method"]).startswith('X"\nX')


async def test_what_a_key_meant(written: Written, exchange: MakeExchange) -> None:
    record = "0ecdee3e7d9ed66ea44ebc5f160748ec"
    written.log.write("charges", exchange(key_result=KeyResult.REPLAYED, record=record))
    written.log.write("charges", exchange(key_result=KeyResult.MISSING))
    written.log.write("charges", exchange())
    lines = written.lines()
    assert (lines[0]["idempotency"], lines[0]["record"]) == ("replayed", record)
    assert lines[1]["idempotency"] == "missing"
    assert "record" not in lines[1]
    assert "idempotency" not in lines[2]
    assert "record" not in lines[2]


async def test_a_duplicate_that_left_while_it_waited_names_its_record(
    written: Written, exchange: MakeExchange
) -> None:
    record = "0ecdee3e7d9ed66ea44ebc5f160748ec"
    written.log.write("charges", exchange(code=499, record=record))
    [line] = written.lines()
    assert line["record"] == record
    assert "idempotency" not in line


@pytest.mark.parametrize(
    ("result", "notable"),
    [
        (KeyResult.NEW, False),
        (KeyResult.REPLAYED, True),
        (KeyResult.JOINED, True),
        (KeyResult.BYPASSED, True),
    ],
)
async def test_repeated_answers_are_notable(
    written: Written,
    exchange: MakeExchange,
    result: KeyResult,
    notable: bool,  # noqa: FBT001 - pytest's way
) -> None:
    log = hook("notable", written.log, Recent(StoppedClock()))
    assert log is not None
    log("charges", exchange(key_result=result))
    assert len(written.lines()) == notable
