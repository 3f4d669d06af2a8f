"""What is wrong at present, in a sentence each."""

from collections.abc import Sequence
from typing import Any

import pytest

from proxy.core.recorders import AddressState, ThrottleState
from proxy.http.refusal import RefusalReason
from proxy.observe.history import CountedWindow
from proxy.observe.metrics import families
from proxy.observe.metrics.series import Tally
from proxy.observe.metrics.snapshot import ProcessSnapshot
from proxy.observe.trouble import find_trouble, silent_worker
from proxy.policy.breaker import BreakerState
from proxy.policy.dead_letter import DeadLetterCounts
from proxy.policy.idempotency.record import KnownKeys
from proxy.policy.reasons import VerdictReason

REDIS = "redis://cache:6379/0"
A = ("a",)


def found(
    now: Sequence[tuple[str, Any]] = (),
    lately: Sequence[tuple[str, Any]] = (),
    seconds: float = 60.0,
) -> list[tuple[str, str, str, str, str]]:
    window = CountedWindow(seconds, ProcessSnapshot(dict(lately)))
    return [
        (one.level.value, one.about, one.name, one.reason, one.text)
        for one in find_trouble(ProcessSnapshot(dict(now)), window, REDIS)
    ]


def address(
    name: str, breaker: BreakerState | None = None, *, failing: bool = False
) -> AddressState:
    return AddressState(address=name, open=0, idle=0, failing=failing, breaker=breaker)


OPEN, HALF_OPEN, CLOSED = BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED


@pytest.mark.parametrize(
    ("requests", "refused", "expected"),
    [
        ({("GET", 200): 100}, {}, []),
        ({("GET", 200): 96, ("GET", 500): 4}, {}, []),
        (
            {("GET", 200): 95, ("GET", 500): 5},
            {},
            [("bad", "errors", "5 of 100 requests failed in the last minute: 500 x5")],
        ),
        (
            {("GET", 503): 8, ("POST", 503): 2, ("GET", 504): 3, ("GET", 404): 7},
            {RefusalReason.BREAKER_OPEN: 4, RefusalReason.TIMEOUT: 3},
            [
                (
                    "bad",
                    "errors",
                    (
                        "13 of 20 requests failed in the last minute: 503 x6, breaker_open x4, "
                        "timeout x3"
                    ),
                )
            ],
        ),
        (
            {("GET", 200): 1, ("GET", 429): 2},
            {RefusalReason.THROTTLED: 2},
            [
                (
                    "warning",
                    "refused",
                    "2 of 3 requests were refused in the last minute: throttled x2",
                )
            ],
        ),
        # The caller's own faults are none of the operator's.
        ({("GET", 400): 5, ("GET", 404): 5}, {RefusalReason.KEY_MISSING: 5}, []),
    ],
)
def test_routes(
    requests: dict[tuple[str, int], int],
    refused: dict[RefusalReason, int],
    expected: list[tuple[str, str, str]],
) -> None:
    lately = [families.REQUESTS.reading({A: requests}), families.REFUSALS.reading({A: refused})]
    assert found(lately=lately) == [
        (level, "route", "a", reason, text) for level, reason, text in expected
    ]


def test_totals_are_no_trouble() -> None:
    assert found(now=[families.REQUESTS.reading({A: {("GET", 500): 9}})]) == []


def test_a_young_process_says_how_young() -> None:
    lately = [families.REQUESTS.reading({A: {("GET", 500): 1}})]
    [(*_, text)] = found(lately=lately, seconds=12.3)
    assert text == "1 of 1 request failed in the last 12 s: 500 x1"


def test_a_retry_budget_that_is_used_up() -> None:
    verdicts = {VerdictReason.BUDGET: 1, VerdictReason.SUCCESS: 5}
    [(level, *_, text)] = found(lately=[families.VERDICTS.reading({A: verdicts})])
    assert level == "warning"
    assert text == "1 failure was not retried in the last minute: the budget is used up"


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], None),
        ([address("p:1"), address("p:2", CLOSED)], None),
        (
            [address("p:1", OPEN)],
            ("bad", "breaker_open", "its breaker is open, nothing is sent to p:1"),
        ),
        (
            [address("p:1", OPEN), address("p:2", CLOSED)],
            (
                "warning",
                "breaker_open",
                "its breaker is open, nothing is sent to p:1 (1 of 2 addresses)",
            ),
        ),
        (
            [address("p:1", HALF_OPEN)],
            ("warning", "breaker_half_open", "its breaker is half-open, a few calls try p:1"),
        ),
        ([address("p:1", failing=True)], ("bad", "connect", "it cannot be reached at p:1")),
        (
            [address("p:1", failing=True), address("p:2")],
            ("warning", "connect", "it cannot be reached at p:1 (1 of 2 addresses)"),
        ),
    ],
)
def test_upstreams(states: list[AddressState], expected: tuple[str, str, str] | None) -> None:
    shown = found(now=[families.ADDRESSES.reading({"payments": states})])
    if expected is None:
        assert shown == []
    else:
        level, reason, text = expected
        assert shown == [(level, "upstream", "payments", reason, text)]


@pytest.mark.parametrize(
    ("dropped", "just_now", "level", "text"),
    [
        (4, 1, "bad", "1 dead letter could not be written in the last minute, see the log"),
        (4, 0, "warning", "4 dead letters could not be written since the start, see the log"),
    ],
)
def test_lost_letters_are_told_for_ever(dropped: int, just_now: int, level: str, text: str) -> None:
    now = [families.LETTERS_DROPPED.reading({A: {"lost": dropped, "expired": 0}})]
    lately = [families.LETTERS_DROPPED.reading({A: {"lost": just_now}} if just_now else {})]
    assert found(now, lately) == [(level, "route", "a", "letters_lost", text)]


def test_letters_that_wait() -> None:
    counts = {"a": DeadLetterCounts(2, 1, 100, 0.0), "b": DeadLetterCounts(0, 0, 0, 0.0)}
    text = "2 dead letters wait for a person: holdfast dlq list"
    assert found([families.DEAD_LETTERS.reading((1.0, counts))]) == [
        ("warning", "route", "a", "letters_waiting", text)
    ]


@pytest.mark.parametrize(
    ("state", "errors", "expected"),
    [
        ("up", {}, None),
        (None, {}, None),
        ("down", {}, ("bad", "down", f"{REDIS} does not answer")),
        (
            "down",
            {"take": 3},
            ("bad", "down", f"{REDIS} does not answer: 3 failed operations in the last minute"),
        ),
        (
            "up",
            {"take": 1},
            (
                "warning",
                "errors",
                f"{REDIS} did not always answer: 1 failed operation in the last minute",
            ),
        ),
    ],
)
def test_the_store(
    state: str | None, errors: dict[str, int], expected: tuple[str, str, str] | None
) -> None:
    lately = [families.STORE_ERRORS.reading({(): errors} if errors else {})]
    shown = found([families.STORE_STATE.reading(state)], lately)
    if expected is None:
        assert shown == []
    else:
        level, reason, text = expected
        assert shown == [(level, "store", "", reason, text)]


def test_the_rest() -> None:
    paused = ThrottleState(waiting=3, under_way=0, buckets=1, paused=1, paused_for=2.04)
    assert found(
        [
            families.THROTTLES.reading({("upstream", "p"): paused}),
            families.KEYS_KNOWN.reading(KnownKeys(5, 2, None)),
            families.LAST_RELOAD_SUCCESSFUL.reading({(): Tally(0)}),
        ]
    ) == [
        (
            *("warning", "upstream", "p", "paused"),
            "paused for 2.0 s, as the upstream asked, 3 in the queue",
        ),
        (
            *("warning", "keys", "", "held"),
            "2 idempotency keys are held: their requests may have run (holdfast keys list)",
        ),
        (
            *("warning", "config", "", "reload_refused"),
            "the last reload was refused, the configuration before it is in force",
        ),
    ]


def test_the_worst_comes_first() -> None:
    now = [
        families.DEAD_LETTERS.reading((1.0, {"a": DeadLetterCounts(2, 1, 100, 0.0)})),
        families.ADDRESSES.reading({"payments": [address("p:1", HALF_OPEN)]}),
    ]
    lately = [families.REQUESTS.reading({("z",): {("GET", 500): 1}})]
    assert [one[0] for one in found(now, lately)] == ["bad", "warning", "warning"]


def test_a_worker_that_does_not_answer() -> None:
    assert silent_worker(1, 4711).to_json() == {
        "level": "bad",
        "about": "worker",
        "name": "1",
        "reason": "silent",
        "text": "its process 4711 does not answer, it gets no new connections",
    }
