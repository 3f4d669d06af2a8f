import pytest
from hypothesis import settings as hypothesis_settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.policy.attempt import FailureKind
from proxy.policy.breaker import Breaker, BreakerChange, BreakerState, address_health
from proxy.policy.settings import BreakerSettings

CLOSED, HALF_OPEN, OPEN = BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN
USUAL = BreakerSettings()
SMALL = BreakerSettings(failure_ratio=0.5, min_requests=4, window=10, open_for=30, probes=2)


def ignore(_: BreakerChange) -> None:
    """What a breaker tells of its changes is not looked at."""


def attempts(breaker: Breaker, results: str, now: float) -> None:
    """One attempt per letter: g is good, b is bad, n tells nothing."""
    for letter in results:
        ticket = breaker.admit(now)
        assert ticket is not None
        breaker.report(ticket, {"g": True, "b": False, "n": None}[letter], now)


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker(SMALL, ignore)
    attempts(breaker, "bbbb", now)
    assert breaker.state(now) is OPEN
    return breaker


@pytest.mark.parametrize(
    ("settings", "results", "state"),
    [
        pytest.param(USUAL, "", CLOSED, id="nothing happened"),
        pytest.param(USUAL, "b" * 19, CLOSED, id="too few to say"),
        pytest.param(USUAL, "b" * 20, OPEN, id="enough, and all bad"),
        pytest.param(USUAL, "gb" * 10, OPEN, id="half of enough"),
        pytest.param(USUAL, "ggb" * 100, CLOSED, id="a third"),
        pytest.param(USUAL, "n" * 100 + "b" * 19, CLOSED, id="what tells nothing is not counted"),
        pytest.param(USUAL, "b" * 19 + "g", CLOSED, id="a success opens nothing"),
        pytest.param(USUAL, "b" * 19 + "gb", OPEN, id="the next failure does"),
        pytest.param(
            BreakerSettings(failure_ratio=0.07, min_requests=100),
            "g" * 93 + "b" * 7,
            OPEN,
            id="7 of 100 is 0.07, whatever floats make of it",
        ),
        pytest.param(
            BreakerSettings(failure_ratio=1, min_requests=1), "b", OPEN, id="one strike and out"
        ),
    ],
)
def test_opening(settings: BreakerSettings, results: str, state: BreakerState) -> None:
    breaker = Breaker(settings, ignore)
    attempts(breaker, results, 5.0)
    assert breaker.state(5.0) is state


def test_old_failures_are_forgotten() -> None:
    breaker = Breaker(SMALL, ignore)
    attempts(breaker, "bbb", 0.0)
    attempts(breaker, "b", 11.0)
    assert breaker.state(11.0) is CLOSED


@pytest.mark.parametrize(
    ("now", "state", "admits", "retry_after"),
    [
        pytest.param(0.0, OPEN, False, 30.0, id="at once"),
        pytest.param(29.5, OPEN, False, 0.5, id="almost through"),
        pytest.param(30.0, HALF_OPEN, True, 0.0, id="open for long enough"),
        pytest.param(1e9, HALF_OPEN, True, 0.0, id="long after"),
    ],
)
def test_an_open_breaker(now: float, state: BreakerState, admits: bool, retry_after: float) -> None:  # noqa: FBT001 - the column of a table
    breaker = opened()
    assert breaker.state(now) is state
    assert breaker.would_admit(now) is admits
    assert breaker.retry_after(now) == retry_after
    assert (breaker.admit(now) is not None) is admits


def test_asking_takes_no_permit() -> None:
    breaker = opened()
    assert all(breaker.would_admit(30.0) for _ in range(10))
    assert [breaker.admit(30.0) is not None for _ in range(3)] == [True, True, False]


def test_when_all_probes_are_out_others_are_told_to_come_back_soon() -> None:
    breaker = opened()
    tickets = [breaker.admit(30.0), breaker.admit(30.0)]
    assert None not in tickets
    assert not breaker.would_admit(30.0)
    assert breaker.retry_after(30.0) == 1.0


def test_enough_good_probes_close_it_with_a_clean_slate() -> None:
    breaker = opened()
    attempts(breaker, "g", 30.0)
    assert breaker.state(30.0) is HALF_OPEN
    attempts(breaker, "g", 30.0)
    assert breaker.state(30.0) is CLOSED
    assert breaker.retry_after(30.0) == 0.0
    attempts(breaker, "bbb", 30.0)
    assert breaker.state(30.0) is CLOSED


def test_one_bad_probe_reopens_it_for_the_whole_time() -> None:
    breaker = opened()
    attempts(breaker, "gb", 31.0)
    assert breaker.state(60.9) is OPEN
    assert breaker.state(61.0) is HALF_OPEN
    attempts(breaker, "g", 61.0)
    assert breaker.state(61.0) is HALF_OPEN, "the good probe of before counts no more"


def test_a_probe_that_tells_nothing_gives_its_permit_back() -> None:
    breaker = opened()
    attempts(breaker, "nnnnnnnn", 30.0)
    assert breaker.state(30.0) is HALF_OPEN
    attempts(breaker, "gg", 30.0)
    assert breaker.state(30.0) is CLOSED


def test_attempts_from_before_it_opened_change_nothing() -> None:
    breaker = Breaker(SMALL, ignore)
    early = [breaker.admit(0.0) for _ in range(6)]
    attempts(breaker, "bbbb", 0.0)
    probe = breaker.admit(30.0)
    for ticket, good in zip(early, [True, False, None] * 2, strict=True):
        assert ticket is not None
        breaker.report(ticket, good, 30.0)
    assert breaker.state(30.0) is HALF_OPEN
    assert [breaker.admit(30.0) is not None for _ in range(2)] == [True, False]
    assert probe is not None
    breaker.report(probe, good=True, now=30.0)
    attempts(breaker, "g", 30.0)
    assert breaker.state(30.0) is CLOSED


def test_probes_from_before_it_reopened_change_nothing() -> None:
    breaker = opened()
    first, second = breaker.admit(30.0), breaker.admit(30.0)
    assert first is not None
    assert second is not None
    breaker.report(first, good=False, now=30.0)
    breaker.report(second, good=True, now=31.0)
    assert breaker.state(59.9) is OPEN
    attempts(breaker, "g", 60.0)
    assert breaker.state(60.0) is HALF_OPEN


def test_it_tells_its_state() -> None:
    assert repr(opened()).startswith("<breaker open ")


REFUSED = frozenset({421, 425, 429})


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        pytest.param(None, 200, True, id="a response"),
        pytest.param(None, 404, True, id="an error of the caller's"),
        pytest.param(None, 501, True, id="an honest no"),
        pytest.param(None, 529, True, id="a status of the upstream's own"),
        pytest.param(None, 500, False, id="an internal error"),
        pytest.param(None, 502, False, id="a bad gateway"),
        pytest.param(None, 503, False, id="unavailable"),
        pytest.param(None, 504, False, id="a gateway's timeout"),
        pytest.param(None, 429, None, id="a refusal"),
        pytest.param(FailureKind.TRUNCATED, 200, True, id="a response that broke off"),
        pytest.param(FailureKind.TRUNCATED, 503, False, id="a failure that broke off"),
        pytest.param(FailureKind.TRUNCATED, 429, None, id="a refusal that broke off"),
        pytest.param(FailureKind.CONNECT, 0, False, id="no connection"),
        pytest.param(FailureKind.RESET, 0, False, id="a reset"),
        pytest.param(FailureKind.TIMEOUT, 0, False, id="no answer in time"),
        pytest.param(FailureKind.PROTOCOL, 0, False, id="no HTTP"),
        pytest.param(FailureKind.CANCELLED, 0, None, id="we gave it up"),
        pytest.param(FailureKind.CANCELLED, 200, None, id="we gave it up after its head"),
        pytest.param(FailureKind.CERTIFICATE, 0, None, id="not whom we trust"),
        pytest.param(FailureKind.BUSY, 0, None, id="no room on our side"),
        pytest.param(FailureKind.UNKNOWN, 0, None, id="nobody knows"),
        pytest.param(None, 0, None, id="nothing happened yet"),
    ],
)
def test_what_an_attempt_says(kind: FailureKind | None, status: int, expected: bool | None) -> None:  # noqa: FBT001 - the column of a table
    assert address_health(kind, status, REFUSED) is expected


def test_an_upstream_may_refuse_with_503() -> None:
    assert address_health(None, 503, frozenset({503})) is None


def test_probes_that_take_too_long_are_not_waited_for() -> None:
    settings = BreakerSettings(min_requests=1, open_for=30, probes=2)
    breaker = Breaker(settings, ignore)
    breaker.report(breaker.admit(0.0) or 0, good=False, now=0.0)
    slow = breaker.admit(30.0)
    good = breaker.admit(31.0)
    assert slow is not None
    assert good is not None
    assert breaker.admit(60.9) is None
    fresh = breaker.admit(61.0)
    assert fresh is not None
    # What the slow ones have to say is of no interest any more.
    breaker.report(slow, good=False, now=62.0)
    assert breaker.state(62.0) is HALF_OPEN
    breaker.report(fresh, good=True, now=62.0)
    breaker.report(breaker.admit(63.0) or 0, good=True, now=63.0)
    assert breaker.state(63.0) is CLOSED


def test_all_probes_that_take_too_long_are_replaced() -> None:
    breaker = opened()
    assert [breaker.admit(30.0) is None for _ in range(3)] == [False, False, True]
    assert [breaker.admit(60.0) is None for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("replaced", range(4))
def test_however_often_probes_are_replaced_no_earlier_ticket_counts_again(replaced: int) -> None:
    breaker = Breaker(SMALL, ignore)
    tickets = [breaker.admit(0.0)]
    attempts(breaker, "bbbb", 0.0)
    now = 0.0
    for _ in range(replaced + 1):
        now += 30.0
        tickets += [breaker.admit(now), breaker.admit(now)]
    *earlier, _, last = tickets
    for ticket in earlier:
        assert ticket is not None
        breaker.report(ticket, good=False, now=now)
    assert breaker.state(now) is HALF_OPEN, "they say nothing of the probes of now"
    assert last is not None
    breaker.report(last, good=False, now=now)
    assert breaker.state(now) is OPEN


def test_probes_may_come_as_seldom_as_they_like() -> None:
    settings = BreakerSettings(min_requests=1, open_for=30, probes=3)
    breaker = Breaker(settings, ignore)
    breaker.report(breaker.admit(0.0) or 0, good=False, now=0.0)
    for now in (100.0, 200.0, 300.0):
        assert breaker.state(now) is HALF_OPEN
        breaker.report(breaker.admit(now) or 0, good=True, now=now)
    assert breaker.state(300.0) is CLOSED


class Model(RuleBasedStateMachine):
    """The breaker beside a plain account of what its docstring says.

    Its window is longer than a run lasts: what falls out of a window is the
    business of the window's own tests.
    """

    settings = BreakerSettings(failure_ratio=0.5, min_requests=3, window=1e6, open_for=30, probes=2)

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(self.settings, ignore)
        self.now = 1000.0
        self.state = CLOSED
        self.era = 0
        self.good = self.bad = self.probing = 0
        self.opened_at = self.probed_at = 0.0
        self.tickets: list[tuple[int, int]] = []
        """The breaker's own, and the era in which it was given."""

    def enter(self, state: BreakerState) -> None:
        self.state = state
        self.era += 1
        self.good = self.bad = self.probing = 0
        if state is OPEN:
            self.opened_at = self.now

    @rule(seconds=st.sampled_from([0.0, 0.1, 5.0, 29.9, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        if self.state is OPEN and self.now >= self.opened_at + self.settings.open_for:
            self.enter(HALF_OPEN)

    @rule()
    def ask(self) -> None:
        ticket = self.breaker.admit(self.now)
        full = self.state is HALF_OPEN and self.probing == self.settings.probes
        if full and self.now >= self.probed_at + self.settings.open_for:
            full = False
            self.era += 1
            self.probing = 0
        assert (ticket is None) == (self.state is OPEN or full)
        if ticket is not None:
            self.tickets.append((ticket, self.era))
            self.probing += self.state is HALF_OPEN
            self.probed_at = self.now

    @precondition(lambda self: self.tickets)
    @rule(data=st.data(), good=st.sampled_from([True, False, False, None]))
    def report(self, data: st.DataObject, good: bool | None) -> None:  # noqa: FBT001 - hypothesis passes by name
        index = data.draw(st.integers(0, len(self.tickets) - 1))
        ticket, era = self.tickets.pop(index)
        self.breaker.report(ticket, good, self.now)
        if era != self.era:
            return
        self.probing -= self.state is HALF_OPEN
        self.good += good is True
        self.bad += good is False
        total = self.good + self.bad
        if self.state is HALF_OPEN and self.bad:
            self.enter(OPEN)
        elif self.state is HALF_OPEN and self.good == self.settings.probes:
            self.enter(CLOSED)
        elif self.state is CLOSED and good is False and total >= 3 and 2 * self.bad >= total:
            self.enter(OPEN)

    @invariant()
    def they_agree(self) -> None:
        assert self.breaker.state(self.now) is self.state
        admits = self.breaker.would_admit(self.now)
        assert (self.breaker.retry_after(self.now) == 0) == admits


TestModel = Model.TestCase
TestModel.settings = hypothesis_settings(max_examples=100, stateful_step_count=40, deadline=None)


# What it tells of its changes.


def test_it_tells_of_each_change_and_of_nothing_else() -> None:
    settings = BreakerSettings(
        failure_ratio=0.5, min_requests=4, window=10.0, open_for=30.0, probes=2
    )
    changes: list[str] = []
    breaker = Breaker(settings, lambda change: changes.append(change.describe(settings)))

    def attempt(now: float, outcome: str = "") -> None:
        ticket = breaker.admit(now)
        if ticket is not None:
            breaker.report(ticket, not outcome, now, outcome)

    for number, outcome in enumerate(["", "", "reset", "503", "503"]):
        attempt(number, outcome)
    reason = "2 of 4 attempts within 10 s failed, the last with 503"
    assert changes == [f"open: {reason}; nothing is sent there for 30 s"]
    breaker.state(40.0)
    assert len(changes) == 1, "to look at it changes nothing"
    attempt(40.0)
    attempt(41.0, "timeout")
    assert changes[1:] == [
        "half open: at most 2 probes at a time",
        "open: a probe failed, with timeout; nothing is sent there for 30 s",
    ]
    for _ in range(3):
        attempt(80.0)
    assert changes[3:] == ["half open: at most 2 probes at a time", "closed: 2 probes succeeded"]


def test_one_is_one() -> None:
    settings = BreakerSettings(probes=1, open_for=0.5)
    assert BreakerChange(BreakerState.CLOSED).describe(settings) == "closed: 1 probe succeeded"
    assert (
        BreakerChange(BreakerState.OPEN, "503", 1, 1)
        .describe(settings)
        .startswith("open: 1 of 1 attempt within")
    )
