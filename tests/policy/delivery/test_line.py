"""The line of an upstream: closes, is tested, opens slowly. In virtual time."""

from itertools import pairwise

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from proxy.policy.attempt import FailureKind
from proxy.policy.delivery.line import (
    FAILURES_TO_CLOSE,
    FIRST_CANARY,
    LONGEST_BETWEEN_CANARIES,
    Canary,
    Line,
    LinePhase,
    LineSignal,
    line_signal,
)
from proxy.policy.retry.verdict import AttemptResult
from tests.support.depth import fewer

OPEN, RAMPING, CLOSED = LinePhase
MOST = 8


def closed(now: float = 0.0) -> Line:
    line = Line()
    line.failed("a", now, unreachable=True)
    return line


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (AttemptResult(None, 200), LineSignal.UP),
        (AttemptResult(None, 303), LineSignal.UP),
        (AttemptResult(None, 404), LineSignal.UP),
        (AttemptResult(None, 429), LineSignal.UP),
        (AttemptResult(FailureKind.TRUNCATED, 200), LineSignal.UP),
        (AttemptResult(None, 500), LineSignal.NEITHER),
        (AttemptResult(None, 501), LineSignal.NEITHER),
        (AttemptResult(None, 502), LineSignal.DOWN),
        (AttemptResult(None, 503), LineSignal.DOWN),
        (AttemptResult(None, 504), LineSignal.DOWN),
        (AttemptResult(FailureKind.CONNECT), LineSignal.DOWN),
        (AttemptResult(FailureKind.RESET), LineSignal.DOWN),
        (AttemptResult(FailureKind.TIMEOUT), LineSignal.DOWN),
        (AttemptResult(FailureKind.PROTOCOL), LineSignal.NEITHER),
        (AttemptResult(FailureKind.CERTIFICATE), LineSignal.NEITHER),
        (AttemptResult(FailureKind.BUSY), LineSignal.NEITHER),
        (AttemptResult(FailureKind.CANCELLED), LineSignal.NEITHER),
        (AttemptResult(FailureKind.UNKNOWN), LineSignal.NEITHER),
    ],
)
def test_what_an_attempt_says_of_its_upstream(result: AttemptResult, expected: LineSignal) -> None:
    assert line_signal(result) is expected


@pytest.mark.parametrize(
    ("rows", "closes"),
    [
        pytest.param("abcde", True, id="five deliveries"),
        pytest.param("abcab", True, id="three different ones"),
        pytest.param("ababa", False, id="two may fail by themselves"),
        pytest.param("aaaaaaaaaa", False, id="one as often as it likes"),
        pytest.param("abcd", False, id="four failures"),
        pytest.param("abcd+e", False, id="a success between"),
        pytest.param("abcd+abcde", True, id="counted anew after it"),
        pytest.param("aaaaaaaabb", False, id="another one at the end of a long row"),
        pytest.param("aaaaaaaabc", True, id="three different ones among the last five"),
    ],
)
def test_what_closes_a_line(rows: str, closes: bool) -> None:  # noqa: FBT001 - a table
    line = Line()
    for row in rows:
        line.succeeded(0.0) if row == "+" else line.failed(row, 0.0)
    assert (line.phase(0.0, MOST) is CLOSED) is closes
    assert (line.capacity(0.0, most=MOST, under_way=0) == 0) is closes


def test_no_attempt_is_used_by_what_closes_it() -> None:
    line = Line()
    blames = [line.failed(row, 0.0) for row in "abcad"]
    assert [blame.counts for blame in blames] == [True] * 4 + [False]
    assert blames[-1].forgiven == ("a", "b", "c", "a")
    assert line.failed("z", 0.1).counts is False  # it was under way when the line closed
    assert closed().failed("b", 0.0).forgiven == ()


def test_one_refusal_of_every_address_is_enough() -> None:
    assert closed().phase(0.0, MOST) is CLOSED


def test_canaries_come_less_and_less_often() -> None:
    line, now, sent = closed(), 0.0, []
    while now < 2000:
        opens = line.opens_more_at(now)
        assert opens is not None
        assert not line.wants_canary(opens - 0.01)
        now = opens
        assert line.wants_canary(now)
        line.canary_sent("a")
        assert not line.wants_canary(now), "one at a time"
        assert line.opens_more_at(now) is None
        assert not line.failed("a", now).counts
        sent.append(now)
    gaps = [later - earlier for earlier, later in pairwise(sent)]
    assert sent[0] == FIRST_CANARY
    assert gaps[:8] == [2, 4, 8, 16, 32, 64, 128, 256]
    assert set(gaps[8:]) == {LONGEST_BETWEEN_CANARIES}


def test_a_canary_is_repeatable_and_every_one_has_its_turn() -> None:
    line = closed()
    rows = [("x", False), ("a", True), ("b", True)]
    chosen = []
    for now in range(5):
        canary = line.choose_canary(rows)
        assert canary is not None
        assert not canary.connect_first
        line.canary_sent(canary.row)
        line.failed(canary.row, float(now))
        chosen.append(canary.row)
    assert chosen == ["a", "b", "a", "b", "a"]


def test_without_a_repeatable_one_a_connection_is_made_first() -> None:
    line = closed()
    assert line.choose_canary([]) is None
    assert line.choose_canary([("x", False), ("y", False)]) == Canary("x", connect_first=True)
    line.canary_sent("x")
    line.connection_failed(1.0)
    assert not line.wants_canary(2.9)
    assert line.wants_canary(3.0)


def test_a_canary_that_was_not_sent_has_its_turn_again() -> None:
    line = closed()
    line.canary_sent("a")
    line.withdrawn("a", 1.0)
    assert line.choose_canary([("a", True), ("b", True)]) == Canary("a", connect_first=False)
    assert line.wants_canary(2.0)  # and the wait has not grown


def test_a_canary_that_gets_a_500_says_nothing() -> None:
    line = closed()
    line.canary_sent("a")
    assert line.undecided("a", 1.0).counts is False
    assert line.phase(1.0, MOST) is CLOSED
    assert not line.wants_canary(2.9)
    assert Line().undecided("a", 0.0).counts is True


@pytest.mark.parametrize("source", ["canary", "live"])
def test_a_success_opens_it_slowly(source: str) -> None:
    line = closed()
    if source == "canary":
        line.canary_sent("a")
    line.succeeded(10.0)
    rooms = {
        now: line.capacity(now, most=MOST, under_way=0)
        for now in (10.0, 10.9, 11.0, 11.9, 12.0, 13.0, 14.0, 99.0)
    }
    assert rooms == {10.0: 1, 10.9: 1, 11.0: 2, 11.9: 2, 12.0: 4, 13.0: 8, 14.0: 8, 99.0: 8}
    assert line.phase(99.0, MOST) is OPEN
    assert line.opens_more_at(99.0) is None


def test_what_is_under_way_takes_room() -> None:
    line = closed()
    line.succeeded(0.0)
    assert line.capacity(2.0, most=MOST, under_way=3) == 1
    assert line.capacity(2.0, most=MOST, under_way=9) == 0
    assert line.opens_more_at(2.0) == 3.0


def test_a_failure_halves_what_is_open() -> None:
    line = closed()
    line.succeeded(0.0)
    assert line.capacity(2.0, most=MOST, under_way=0) == 4
    assert line.failed("b", 2.5).counts
    assert line.capacity(2.5, most=MOST, under_way=0) == 2
    assert line.capacity(3.4, most=MOST, under_way=0) == 2, "a second without a failure"
    assert line.capacity(3.5, most=MOST, under_way=0) == 4
    for _ in range(3):
        line.failed("b", 3.6)
    assert line.capacity(3.6, most=MOST, under_way=0) == 1, "never none"


def test_an_open_line_is_not_slowed_by_one_delivery() -> None:
    line = Line()
    for _ in range(20):
        line.failed("a", 0.0)
    assert line.capacity(0.0, most=MOST, under_way=0) == MOST


def test_it_closes_again_while_it_opens() -> None:
    line = closed()
    line.succeeded(0.0)
    for row in "abcde":
        line.failed(row, 0.5)
    assert line.phase(0.5, MOST) is CLOSED
    assert line.opens_more_at(0.5) == 0.5 + FIRST_CANARY


def test_a_canary_that_fails_while_live_calls_succeed_is_counted() -> None:
    line = closed()
    line.canary_sent("a")
    line.succeeded(5.0)  # a live call
    assert line.failed("a", 6.0).counts


def test_a_pause_holds_all_back() -> None:
    line = Line()
    line.pause(20.0)
    line.pause(10.0)
    assert line.capacity(19.9, most=MOST, under_way=0) == 0
    assert line.opens_more_at(0.0) == 20.0
    assert line.capacity(20.0, most=MOST, under_way=0) == MOST
    assert line.phase(0.0, MOST) is OPEN
    resting = closed()
    resting.pause(20.0)
    assert not resting.wants_canary(19.9)
    assert resting.wants_canary(20.0)


@pytest.mark.parametrize("most", [1, 2, 3, 7, 10_000])
def test_the_limit_is_that_of_the_routes(most: int) -> None:
    line = closed()
    line.succeeded(0.0)
    rooms = [line.capacity(float(now), most=most, under_way=0) for now in range(20)]
    assert rooms == sorted(rooms)
    assert rooms[0] == 1
    assert max(rooms) == most


class Outage(RuleBasedStateMachine):
    """An upstream that goes up and down; deliveries that are sent as the line allows."""

    @initialize(most=st.integers(1, 20))
    def begin(self, most: int) -> None:
        self.line, self.now, self.most = Line(), 0.0, most
        self.under_way: dict[str, bool] = {}
        self.is_up, self.number = True, 0
        self.wasted = 0

    @rule(seconds=st.floats(0.01, 400))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(is_up=st.booleans())
    def change(self, is_up: bool) -> None:  # noqa: FBT001 - given by hypothesis
        self.is_up, self.wasted = is_up, 0

    @rule()
    def send(self) -> None:
        room = self.line.capacity(self.now, most=self.most, under_way=len(self.under_way))
        assert 0 <= room <= self.most
        if room:
            self.number += 1
            self.under_way[f"d{self.number}"] = False

    @rule()
    def test(self) -> None:
        if self.line.wants_canary(self.now):
            self.number += 1
            row = f"d{self.number}"
            assert self.line.choose_canary([(row, True)]) == Canary(row, connect_first=False)
            self.line.canary_sent(row)
            self.under_way[row] = True

    @rule(live=st.booleans())
    def end(self, live: bool) -> None:  # noqa: FBT001 - given by hypothesis
        if live and self.is_up:
            self.line.succeeded(self.now)
        for row, is_canary in [*self.under_way.items()][:1]:
            del self.under_way[row]
            if self.is_up:
                self.line.succeeded(self.now)
                assert self.line.phase(self.now, self.most) is not CLOSED
                continue
            was_closed = self.line.phase(self.now, self.most) is CLOSED
            blame = self.line.failed(row, self.now)
            is_closed = self.line.phase(self.now, self.most) is CLOSED
            assert blame.counts is not is_closed
            assert is_closed or not was_closed, "no failure opens a line"
            self.wasted += not is_canary

    @invariant()
    def the_herd_is_spared(self) -> None:
        # Those that close it, and those that were under way then; and what a ramp had let out.
        if hasattr(self, "wasted"):
            assert self.wasted <= FAILURES_TO_CLOSE + 2 * self.most


Outage.TestCase.settings = settings(fewer(2), stateful_step_count=40)
TestOutage = Outage.TestCase
