"""The line of an upstream: whether deliveries go to it, how many at once, and which one tests it.

An upstream that is down for all gets a canary now and then, not the herd: the line *closes*. When
anything succeeds, a live request included, it opens slowly: one delivery at a time, then two, then
four. What fails while it is closed is the upstream's failure and not the delivery's: no attempt is
counted.

Time is monotonic seconds, and an argument. A line belongs to one upstream and one process.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum

from proxy.policy.attempt import FIRST_SERVER_ERROR, FailureKind
from proxy.policy.retry.verdict import AttemptResult

FAILURES_TO_CLOSE = 5
"""Failures in a row, with no success between, that close a line."""
ROWS_TO_CLOSE = 3
"""Different deliveries that must be among them: one may fail by itself as often as it likes."""

FIRST_CANARY = 1.0
LONGEST_BETWEEN_CANARIES = 300.0
_STEP = 1.0
"""Seconds without a failure after which twice as many deliveries may be under way."""

_DOWN_KINDS = frozenset({FailureKind.CONNECT, FailureKind.RESET, FailureKind.TIMEOUT})
_DOWN_STATUSES = frozenset({502, 503, 504})


class LinePhase(IntEnum):
    """How a line stands; the values are those of the gauge."""

    OPEN = 0
    RAMPING = 1
    CLOSED = 2


class LineSignal(Enum):
    """What the end of an attempt, live or not, says about the upstream as a whole."""

    UP = "up"
    DOWN = "down"
    NEITHER = "neither"  # such as a 500, which may be due to one request


def line_signal(result: AttemptResult) -> LineSignal:
    """Return what an attempt that ended in *result* says about its upstream."""
    if result.kind in _DOWN_KINDS:
        return LineSignal.DOWN
    if not result.status:
        return LineSignal.NEITHER
    if result.status < FIRST_SERVER_ERROR:
        return LineSignal.UP
    return LineSignal.DOWN if result.status in _DOWN_STATUSES else LineSignal.NEITHER


@dataclass(frozen=True, slots=True)
class Blame:
    """Whose failure it was: that of a delivery, or that of the upstream."""

    counts: bool
    """Whether the delivery has used an attempt."""
    forgiven: tuple[str, ...] = ()
    """Deliveries whose failures, counted before, turned out to be the upstream's: each gets an
    attempt back for every time that it stands here."""


_OWN = Blame(counts=True)
_OF_THE_UPSTREAM = Blame(counts=False)


@dataclass(frozen=True, slots=True)
class Canary:
    """What is to test a closed line."""

    row: str
    """The id of the delivery to send."""
    connect_first: bool
    """Whether a mere connection has to be made first: the delivery may not be sent twice."""


class Line:
    """The line of one upstream."""

    def __init__(self) -> None:
        self._phase = LinePhase.OPEN
        self._limit = 1
        """While ramping: how many may be under way."""
        self._step_at = 0.0
        """While ramping: when the limit was last changed."""
        self._failed: list[str] = []
        """Deliveries that failed since the last success, in order."""
        self._between = FIRST_CANARY
        self._next_canary = 0.0
        self._tested_by = ""
        """The delivery that tests the line now; empty if none does."""
        self._tried: set[str] = set()
        """Deliveries that have tested the line since it closed."""
        self._paused_until = 0.0

    def __repr__(self) -> str:
        return f"<line {self._phase.name.lower()}>"

    @property
    def is_closed(self) -> bool:
        """Whether only canaries are sent."""
        return self._phase is LinePhase.CLOSED

    def phase(self, now: float, most: int) -> LinePhase:
        """Return how the line stands, where *most* deliveries may be under way in all."""
        self._ramp(now, most)
        return self._phase

    def capacity(self, now: float, *, most: int, under_way: int) -> int:
        """Return how many more deliveries may be sent, besides those *under_way*; a canary apart.

        *most* is what the routes to the upstream allow together.
        """
        self._ramp(now, most)
        if self._phase is LinePhase.CLOSED or now < self._paused_until:
            return 0
        limit = min(self._limit, most) if self._phase is LinePhase.RAMPING else most
        return max(limit - under_way, 0)

    def opens_more_at(self, now: float) -> float | None:
        """Return when more may be sent than now, or a canary; None: only an event changes that.

        A success or a delivery that ends may change it earlier.
        """
        if now < self._paused_until:
            return self._paused_until
        if self._phase is LinePhase.CLOSED:
            return None if self._tested_by else self._next_canary
        return self._step_at + _STEP if self._phase is LinePhase.RAMPING else None

    def pause(self, until: float) -> None:
        """Send nothing before *until*: the upstream asked for it. Due times stay as they are."""
        self._paused_until = max(self._paused_until, until)

    def succeeded(self, now: float) -> bool:
        """Take note of a success at the upstream, of a delivery or of a live request.

        Returns whether that opened the line.
        """
        self._failed.clear()
        if self._phase is not LinePhase.CLOSED:
            return False
        self._phase, self._limit, self._step_at = LinePhase.RAMPING, 1, now
        self._tested_by = ""
        self._tried.clear()
        return True

    def failed(self, row: str, now: float, *, unreachable: bool = False) -> Blame:
        """Take note that delivery *row* failed as by an upstream that is down; say whose fault.

        *unreachable*: every address of the upstream refused the connection.
        """
        if self._phase is LinePhase.CLOSED:
            if row == self._tested_by:
                self._plan_canary(now)
            return _OF_THE_UPSTREAM
        self._failed.append(row)
        run = self._failed[-FAILURES_TO_CLOSE:]
        is_down = len(run) == FAILURES_TO_CLOSE and len(set(run)) >= ROWS_TO_CLOSE
        if not is_down and not unreachable:
            if self._phase is LinePhase.RAMPING:
                self._limit, self._step_at = max(self._limit // 2, 1), now
            del self._failed[:-FAILURES_TO_CLOSE]  # older ones matter no more
            return _OWN
        self._phase, self._between = LinePhase.CLOSED, FIRST_CANARY
        self._failed.clear()
        self._tried.clear()
        self._tested_by, self._next_canary = "", now + FIRST_CANARY
        return Blame(counts=False, forgiven=tuple(run[:-1]))

    def undecided(self, row: str, now: float) -> Blame:
        """Take note that *row* failed in a way that says nothing about the upstream."""
        if self._phase is not LinePhase.CLOSED:
            return _OWN
        if row == self._tested_by:
            self._plan_canary(now)
        return _OF_THE_UPSTREAM

    def withdrawn(self, row: str, now: float) -> None:
        """Take note that *row* was not sent after all, or ended without a result."""
        if self._phase is LinePhase.CLOSED and row == self._tested_by:
            self._tested_by, self._next_canary = "", now + self._between
            self._tried.discard(row)

    def wants_canary(self, now: float) -> bool:
        """Whether a closed line is to be tested now."""
        is_due = self._phase is LinePhase.CLOSED and not self._tested_by
        return is_due and now >= max(self._next_canary, self._paused_until)

    def choose_canary(self, rows: Iterable[tuple[str, bool]]) -> Canary | None:
        """Return which of *rows* is to test the line; None if there are none.

        *rows* are the deliveries that are due, the oldest first, each with whether it is
        repeatable. Each gets its turn before one gets a second.
        """
        again: Canary | None = None
        unrepeatable: Canary | None = None
        for row, is_repeatable in rows:
            if is_repeatable and row not in self._tried:
                return Canary(row, connect_first=False)
            if is_repeatable and again is None:
                again = Canary(row, connect_first=False)
            elif not is_repeatable and unrepeatable is None:
                unrepeatable = Canary(row, connect_first=True)
        if again is not None:
            self._tried.clear()
        return again or unrepeatable

    def canary_sent(self, row: str) -> None:
        """Take note that *row*, or a connection before it, tests the line from now on."""
        self._tested_by = row
        self._tried.add(row)

    def connection_failed(self, now: float) -> None:
        """Take note that the connection before a canary was not made; the delivery was not sent."""
        if self._phase is LinePhase.CLOSED and self._tested_by:
            self._plan_canary(now)

    def _plan_canary(self, now: float) -> None:
        self._between = min(self._between * 2, LONGEST_BETWEEN_CANARIES)
        self._tested_by, self._next_canary = "", now + self._between

    def _ramp(self, now: float, most: int) -> None:
        """Let more through for each step that passed without a failure."""
        if self._phase is not LinePhase.RAMPING:
            return
        while now >= self._step_at + _STEP and self._limit < most:
            self._limit *= 2
            self._step_at += _STEP
        if self._limit >= most:
            self._phase = LinePhase.OPEN
