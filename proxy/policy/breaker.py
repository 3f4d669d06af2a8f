"""The circuit breaker: sends nothing to an address for a while when most attempts there fail.

::

            failure_ratio of at least min_requests failed
    CLOSED ───────────────────────────────────────────────► OPEN ◄──┐
       ▲                                                      │      │ a probe
       │                                  open_for has passed │      │ fails
       │          `probes` probes succeed                     ▼      │
       └───────────────────────────────────────────────── HALF_OPEN ─┘

An attempt at the address takes a ticket, and reports with it how it ended. Each
arrow begins a new generation, and a ticket of an earlier one is ignored: an
attempt that was sent before the breaker opened may fail minutes later, and says
nothing about the probes. A probe may take as long, if its client sends slowly:
after ``open_for`` other probes are admitted in its place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from proxy.policy.attempt import FailureKind
from proxy.policy.settings import BreakerSettings
from proxy.policy.window import Window


class BreakerState(IntEnum):
    """The state of a breaker; the values are those of the metric."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2

    @property
    def word(self) -> str:
        """The state in lower case, as the status page and logs show it."""
        return self.name.lower()


_CLOSED = BreakerState.CLOSED  # speed: as in policy/idempotency/record.py

_WHILE_PROBES_RUN = 1.0
"""Seconds for Retry-After when no more probes are admitted: those that run should end soon."""


@dataclass(frozen=True, slots=True)
class BreakerChange:
    """A change of a breaker's state, with its reason."""

    state: BreakerState
    """The new state."""
    outcome: str = ""
    """How the attempt ended that opened the breaker: a status, or a failure kind."""
    failures: int = 0
    requests: int = 0
    """Attempts counted when the breaker opened, and failures among them; 0 after a probe."""

    def describe(self, settings: BreakerSettings) -> str:
        """Describe the change in a line for the log."""
        match self.state:
            case BreakerState.CLOSED:
                return f"closed: {_counted(settings.probes, 'probe')} succeeded"
            case BreakerState.HALF_OPEN:
                probes = _counted(settings.probes, "probe")
                return f"half open: at most {probes} at a time"
        reason = f"a probe failed, with {self.outcome}"
        if self.requests:
            attempts = _counted(self.requests, "attempt")
            reason = (
                f"{self.failures} of {attempts} within {settings.window:g} s failed, the last with "
                f"{self.outcome}"
            )
        return f"open: {reason}; nothing is sent there for {settings.open_for:g} s"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Breaker:
    """The circuit breaker of one address."""

    def __init__(self, settings: BreakerSettings, changed: Callable[[BreakerChange], None]) -> None:
        """Start closed; call *changed* at every change of state."""
        self.settings = settings
        self._changed = changed
        self._generation = 0
        self._until = 0.0
        """When ``open_for`` has passed since it opened, or since its latest probe began."""
        self._enter(_CLOSED)

    def _enter(self, state: BreakerState) -> None:
        self._state = state
        self._generation += 1
        self._good = Window(self.settings.window)
        self._bad = Window(self.settings.window)
        self._probing = 0
        self._good_probes = 0

    def state(self, now: float) -> BreakerState:
        if self._state is BreakerState.OPEN and now >= self._until:
            return BreakerState.HALF_OPEN
        return self._state

    def would_admit(self, now: float) -> bool:
        """Whether :meth:`admit` would return a ticket. Changes nothing."""
        state = self.state(now)
        if state is BreakerState.HALF_OPEN:
            return self._probing < self.settings.probes or now >= self._until
        return state is _CLOSED

    def retry_after(self, now: float) -> float:
        """Return the seconds until an attempt may be admitted; 0 if one would be now."""
        if self.would_admit(now):
            return 0.0
        return self._until - now if self.state(now) is BreakerState.OPEN else _WHILE_PROBES_RUN

    def admit(self, now: float) -> int | None:
        """Return a ticket for one attempt, to be reported exactly once; None if not admitted."""
        if self._state is _CLOSED:
            return self._generation
        if not self.would_admit(now):
            return None
        if self._state is BreakerState.OPEN:
            self._enter(BreakerState.HALF_OPEN)
            self._changed(BreakerChange(BreakerState.HALF_OPEN))
        elif self._probing >= self.settings.probes:
            self._generation += 1  # probes that take so long are not waited for
            self._probing = 0
        self._probing += 1
        self._until = now + self.settings.open_for
        return self._generation

    def report(self, ticket: int, good: bool | None, now: float, outcome: str = "") -> None:  # noqa: FBT001 - as :func:`address_health` says it
        """Report how the attempt with this *ticket* ended: good, bad, or None: it says nothing.

        *outcome* names the status or failure kind of a bad one.
        """
        if ticket != self._generation:
            return
        if self._state is not _CLOSED:
            self._report_probe(good, now, outcome)
        elif good:
            self._good.add(now)
        elif good is not None:
            self._bad.add(now)
            self._judge(now, outcome)

    def _judge(self, now: float, outcome: str) -> None:
        failures = self._bad.at_most(now)
        requests = failures + self._good.at_most(now)
        # A division, since 7 of 100 is 0.07, but 0.07 times 100 is a little more than 7.
        share = failures / requests
        if requests >= self.settings.min_requests and share >= self.settings.failure_ratio:
            self._open(now, BreakerChange(BreakerState.OPEN, outcome, failures, requests))

    def _report_probe(self, good: bool | None, now: float, outcome: str) -> None:  # noqa: FBT001 - as report
        self._probing -= 1
        if good:
            self._good_probes += 1
            if self._good_probes >= self.settings.probes:
                self._enter(_CLOSED)
                self._changed(BreakerChange(_CLOSED))
        elif good is not None:
            self._open(now, BreakerChange(BreakerState.OPEN, outcome))

    def _open(self, now: float, change: BreakerChange) -> None:
        self._enter(BreakerState.OPEN)
        self._until = now + self.settings.open_for
        self._changed(change)

    def __repr__(self) -> str:
        return f"<breaker {self._state.word} {self.settings}>"


_FAILURES = frozenset(
    {FailureKind.CONNECT, FailureKind.RESET, FailureKind.TIMEOUT, FailureKind.PROTOCOL}
)
_FAILURE_STATUSES = frozenset({500, 502, 503, 504})


def address_health(kind: FailureKind | None, status: int, refused: frozenset[int]) -> bool | None:
    """Return what an attempt's end says of its address: True good, False bad, None nothing.

    *status* is 0 where no response came; *refused* are the statuses by which the upstream
    says that it did not do the work: it is limiting its callers, not failing.
    """
    if kind is not None and kind is not FailureKind.TRUNCATED:
        return False if kind in _FAILURES else None
    if not status or status in refused:
        return None
    return status not in _FAILURE_STATUSES
