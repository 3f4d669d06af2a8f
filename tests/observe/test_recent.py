import json
import sys
import tracemalloc
from collections.abc import Iterator

import pytest

from proxy.http.refusal import Refusal, RefusalReason
from proxy.observe.logs.access_log import AccessLog
from proxy.observe.recent import LONGEST, MOST_ATTEMPTS, Recent
from proxy.policy.attempt import Attempt, FailureKind, RetryDelay
from proxy.policy.explain_command import ExplainContext
from proxy.policy.reasons import KeyResult, VerdictReason
from proxy.policy.settings import Settings
from tests.observe.conftest import MakeAttempt, MakeExchange
from tests.support.clock import FakeClock

CONTEXT = ExplainContext((), Settings())
ID = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def recent() -> Recent:
    return Recent(FakeClock())


class Line:
    """Takes the place of the log's writer: the last line."""

    content: dict[str, object]

    def write(self, line: str) -> None:
        self.content = json.loads(line)


def test_it_tells_what_the_log_tells(
    recent: Recent, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    attempts = [
        attempt(1, status=0, kind=FailureKind.RESET, queued=0.25, why=VerdictReason.RETRIED),
        attempt(2, status=429, pause=RetryDelay(1.5, "hint"), why=VerdictReason.ATTEMPTS_EXHAUSTED),
    ]
    over = exchange(
        method="POST",
        target="/v1/charges?card=4242",
        code=429,
        duration=2.5,
        attempts=attempts,
        refusal=Refusal(RefusalReason.THROTTLED, "Later.", cause="max_wait"),
        fallback=True,
        key_result=KeyResult.NEW,
        record="0ecdee3e7d9ed66ea44ebc5f160748ec",
    )
    line = Line()
    AccessLog(line, FakeClock()).write("charges", over)  # type: ignore[arg-type]  # see Line
    recent.keep("charges", over)

    [shown] = recent.of(ID, CONTEXT)

    assert json.loads(json.dumps(shown)) == shown
    for only_in_the_log in ("bytes", "client"):
        del line.content[only_in_the_log]
    stamps = (line.content.pop("time"), shown.pop("time"))
    assert [len(str(stamp)) for stamp in stamps] == [24, 24]
    assert isinstance(shown["attempts"], list)
    meanings = [record.pop("meaning") for record in shown["attempts"]]
    assert meanings == ["another attempt follows", "it was the last attempt"]
    assert shown == line.content


def test_what_did_not_happen_is_not_mentioned(
    recent: Recent, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    recent.keep("charges", exchange(code=500, attempts=[attempt(status=500)]))
    [shown] = recent.of(ID, CONTEXT)
    assert shown.keys() == {
        *("time", "request_id", "route", "method", "path", "code", "duration_ms", "attempts")
    }


def test_an_id_that_was_used_again_tells_of_each_request(
    recent: Recent, exchange: MakeExchange
) -> None:
    for code in (500, 502, 503):
        recent.keep("charges", exchange(code=code))
    assert [shown["code"] for shown in recent.of(ID, CONTEXT)] == [500, 502, 503]
    assert recent.of("another", CONTEXT) == []


def test_the_newest_push_the_oldest_out(recent: Recent, exchange: MakeExchange) -> None:
    for number in range(LONGEST + 1):
        over = exchange(code=500)
        over.request_id = str(number)
        recent.keep("charges", over)
    assert len(recent) == LONGEST
    assert recent.of("0", CONTEXT) == []
    assert len(recent.of("1", CONTEXT)) == len(recent.of(str(LONGEST), CONTEXT)) == 1


def test_of_very_many_attempts_the_first_and_the_last_are_kept(
    recent: Recent, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    count = 2 * MOST_ATTEMPTS + 7
    recent.keep("charges", exchange(attempts=[attempt(n + 1) for n in range(count)]))
    [shown] = recent.of(ID, CONTEXT)
    assert shown["attempts_left_out"] == 7
    attempts = shown["attempts"]
    assert isinstance(attempts, list)
    assert [each["n"] for each in attempts] == [
        *range(1, MOST_ATTEMPTS + 1),
        *range(count - MOST_ATTEMPTS + 1, count + 1),
    ]


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_its_memory_is_bounded(recent: Recent, exchange: MakeExchange) -> None:
    """The worst that clients and upstreams can do, for longer than it remembers."""
    before, _ = tracemalloc.get_traced_memory()
    for number in range(LONGEST + 200):
        attempts = []
        for n in range(2 * MOST_ATTEMPTS + 10):
            tried = Attempt(n, "payments", 1000.0 + n, RetryDelay(1.0 + n, "backoff"))
            tried.duration, tried.queued = 0.1 + n, 0.2 + n
            attempts.append(tried)
        over = exchange(
            method=f"{number}M" * 5000, target=f"/{number}/\U0001f980" * 5000, attempts=attempts
        )
        over.request_id = f"{number:0128}"
        over.duration = number / 7
        recent.keep("charges", over)
        del over, attempts, tried
    after, _ = tracemalloc.get_traced_memory()
    assert len(recent) == LONGEST
    assert after - before < 12 * 1024 * 1024


def test_requests_themselves_are_let_go(recent: Recent, exchange: MakeExchange) -> None:
    over = exchange(code=500)
    references = sys.getrefcount(over)
    recent.keep("charges", over)
    assert sys.getrefcount(over) == references


@pytest.mark.parametrize(
    ("target", "path"),
    [
        pytest.param("/a?card=4242", "/a", id="no query"),
        pytest.param("/\udcff\udc80", "/\\xff\\x80", id="bytes that are no UTF-8 are spelled out"),
        pytest.param("/" + "a" * 9000, "/" + "a" * 255, id="a long path is clipped"),
    ],
)
def test_paths(recent: Recent, exchange: MakeExchange, target: str, path: str) -> None:
    recent.keep("charges", exchange(target=target))
    [shown] = recent.of(ID, CONTEXT)
    assert shown["path"] == path


def test_text_of_a_refusal_may_quote_a_client(recent: Recent, exchange: MakeExchange) -> None:
    refusal = Refusal(RefusalReason.BAD_REQUEST, "hunter2 is no header")
    recent.keep("charges", exchange(code=400, refusal=refusal))
    assert "hunter2" not in json.dumps(recent.of(ID, CONTEXT))
