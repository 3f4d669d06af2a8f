"""What is wrong at present: one sentence for each thing that an operator should look at.

Judged by what was counted in the last minute and by the present state, never by totals: an outage
that is over is no trouble any more. The one exception is what was lost for good.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from proxy.core.recorders import AddressState, ThrottleState
from proxy.http.refusal import RefusalReason
from proxy.observe.history import CountedWindow
from proxy.observe.metrics import families
from proxy.observe.metrics.snapshot import ProcessSnapshot
from proxy.policy.breaker import BreakerState
from proxy.policy.reasons import VerdictReason

UPSTREAM_FAILED = frozenset(
    {
        RefusalReason.CONNECT,
        RefusalReason.RESET,
        RefusalReason.PROTOCOL,
        RefusalReason.CERTIFICATE,
        RefusalReason.UNKNOWN,
        RefusalReason.TIMEOUT,
    }
)
"""Reasons of answers that stand for a failed upstream. All others are refusals of the proxy."""
_REFUSED_FOR_LOAD_OR_SAFETY = (
    RefusalReason.THROTTLED,
    RefusalReason.OUTCOME_UNKNOWN,
    RefusalReason.RESULT_NOT_STORED,
)
"""Refusals below 500 that are no fault of the caller."""
_MANY_ERRORS = 0.05
"""The share of requests that ended with 5xx from which a route is in trouble."""
_FIRST_SERVER_ERROR = 500
_ABOUT_A_MINUTE = (55.0, 65.0)


class Level(StrEnum):
    """How bad it is: a reason to act, or worth a look."""

    BAD = "bad"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong."""

    level: Level
    about: str
    """``route``, ``upstream``, ``throttle``, ``store``, ``keys``, ``config`` or ``worker``."""
    name: str
    """That of the route or upstream; empty if there is only one such thing."""
    reason: str
    """One word for programs."""
    text: str
    """A sentence for a person."""

    def to_json(self) -> dict[str, str]:
        """Return all of it in values that JSON can carry."""
        return {
            "level": self.level.value,
            "about": self.about,
            "name": self.name,
            "reason": self.reason,
            "text": self.text,
        }


def find_trouble(process: ProcessSnapshot, lately: CountedWindow, store: str) -> list[Trouble]:
    """Return what is wrong at present, the worst first.

    *lately* is what was counted in the last minute, and *store* the masked URL of the store.
    """
    span = _span(lately.seconds)
    found = [
        *_store_trouble(process, lately.counted, store, span),
        *_upstream_trouble(process[families.ADDRESSES]),
        *_route_trouble(lately.counted, span),
        *_letter_trouble(process, lately.counted, span),
        *_throttle_trouble(process[families.THROTTLES]),
        *_process_trouble(process),
    ]
    return sorted(found, key=lambda trouble: trouble.level is not Level.BAD)


def silent_worker(number: int, pid: int) -> Trouble:
    """Return what is wrong with one of several workers that does not answer its supervisor."""
    text = f"its process {pid} does not answer, it gets no new connections"
    return Trouble(Level.BAD, "worker", str(number), "silent", text)


def _span(seconds: float) -> str:
    """Name the window; a process that is younger than a minute does not claim to know one."""
    shortest, longest = _ABOUT_A_MINUTE
    return "the last minute" if shortest <= seconds <= longest else f"the last {seconds:.0f} s"


def _of(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _listed(counts: Mapping[str, int]) -> str:
    """List what was counted, the most frequent first."""
    return ", ".join(f"{name} x{count}" for name, count in Counter(counts).most_common())


# Routes.


def _route_trouble(counted: ProcessSnapshot, span: str) -> Iterator[Trouble]:
    refusals = counted[families.REFUSALS]
    for (route,), requests in counted[families.REQUESTS].items():
        total, refused = sum(requests.values()), refusals.get((route,), {})
        errors = sum(count for (_, code), count in requests.items() if code >= _FIRST_SERVER_ERROR)
        if errors >= _MANY_ERRORS * total and errors:
            causes = _listed(_error_causes(requests, refused))
            text = f"{errors} of {_of(total, 'request')} failed in {span}: {causes}"
            yield Trouble(Level.BAD, "route", route, "errors", text)
        ours = {
            reason.value: count
            for reason, count in refused.items()
            if reason in _REFUSED_FOR_LOAD_OR_SAFETY
        }
        if ours:
            number = sum(ours.values())
            were = "was" if number == 1 else "were"
            text = f"{number} of {_of(total, 'request')} {were} refused in {span}: {_listed(ours)}"
            yield Trouble(Level.WARNING, "route", route, "refused", text)
    for (route,), verdicts in counted[families.VERDICTS].items():
        number = verdicts.get(VerdictReason.BUDGET, 0)
        if number:
            were = "was" if number == 1 else "were"
            text = f"{_of(number, 'failure')} {were} not retried in {span}: the budget is used up"
            yield Trouble(Level.WARNING, "route", route, "budget", text)


def _error_causes(
    requests: Mapping[tuple[str, int], int], refused: Mapping[RefusalReason, int]
) -> Counter[str]:
    """Count errors by the reason of the proxy's own answer, else by the status of the upstream."""
    causes: Counter[str] = Counter()
    statuses: Counter[int] = Counter()
    for (_, code), count in requests.items():
        if code >= _FIRST_SERVER_ERROR:
            statuses[code] += count
    for reason, count in refused.items():
        # A route may have another status for this reason: then it counts by that.
        ours = min(count, statuses[reason.status])
        statuses[reason.status] -= ours
        causes[reason.value] += ours
    causes.update({str(code): count for code, count in statuses.items()})
    return +causes


# Dead letters.


def _letter_trouble(
    process: ProcessSnapshot, counted: ProcessSnapshot, span: str
) -> Iterator[Trouble]:
    lately = counted[families.LETTERS_DROPPED]
    for (route,), dropped in process[families.LETTERS_DROPPED].items():
        lost, just_lost = dropped.get("lost", 0), lately.get((route,), {}).get("lost", 0)
        if just_lost:
            text = f"{_of(just_lost, 'dead letter')} could not be written in {span}, see the log"
            yield Trouble(Level.BAD, "route", route, "letters_lost", text)
        elif lost:
            text = f"{_of(lost, 'dead letter')} could not be written since the start, see the log"
            yield Trouble(Level.WARNING, "route", route, "letters_lost", text)
    for route, counts in process[families.DEAD_LETTERS][1].items():
        if counts.waiting:
            wait = "waits" if counts.waiting == 1 else "wait"
            text = f"{_of(counts.waiting, 'dead letter')} {wait} for a person: holdfast dlq list"
            yield Trouble(Level.WARNING, "route", route, "letters_waiting", text)


# Upstreams and throttles.


def _upstream_trouble(addresses: Mapping[str, Sequence[AddressState]]) -> Iterator[Trouble]:
    for upstream, states in addresses.items():
        refusing = [state.address for state in states if state.breaker is BreakerState.OPEN]
        probing = [state.address for state in states if state.breaker is BreakerState.HALF_OPEN]
        failing = [state.address for state in states if state.failing]
        if refusing:
            reason, text = "breaker_open", "its breaker is open, nothing is sent to"
        elif failing:
            reason, text = "connect", "it cannot be reached at"
        elif probing:
            reason, text = "breaker_half_open", "its breaker is half-open, a few calls try"
        else:
            continue
        which = refusing or failing or probing
        is_whole = len(which) == len(states)
        share = "" if is_whole else f" ({len(which)} of {len(states)} addresses)"
        is_bad = is_whole and which is not probing
        level = Level.BAD if is_bad else Level.WARNING
        yield Trouble(level, "upstream", upstream, reason, f"{text} {', '.join(which)}{share}")


def _throttle_trouble(throttles: Mapping[tuple[str, str], ThrottleState]) -> Iterator[Trouble]:
    for (scope, name), state in throttles.items():
        if state.paused:
            waiting = f", {state.waiting} in the queue" if state.waiting else ""
            text = f"paused for {state.paused_for:.1f} s, as the upstream asked{waiting}"
            yield Trouble(Level.WARNING, scope, name, "paused", text)


# The process.


def _store_trouble(
    process: ProcessSnapshot, counted: ProcessSnapshot, store: str, span: str
) -> Iterator[Trouble]:
    errors = sum(counted[families.STORE_ERRORS].get((), {}).values())
    failed = f": {_of(errors, 'failed operation')} in {span}" if errors else ""
    if process[families.STORE_STATE] == "down":
        yield Trouble(Level.BAD, "store", "", "down", f"{store} does not answer{failed}")
    elif errors:
        text = f"{store} did not always answer{failed}"
        yield Trouble(Level.WARNING, "store", "", "errors", text)


def _process_trouble(process: ProcessSnapshot) -> Iterator[Trouble]:
    keys = process[families.KEYS_KNOWN]
    if keys is not None and keys.held:
        are = "is held: its request" if keys.held == 1 else "are held: their requests"
        text = f"{_of(keys.held, 'idempotency key')} {are} may have run (holdfast keys list)"
        yield Trouble(Level.WARNING, "keys", "", "held", text)
    for tally in process[families.LAST_RELOAD_SUCCESSFUL].values():
        if not tally.value:
            text = "the last reload was refused, the configuration before it is in force"
            yield Trouble(Level.WARNING, "config", "", "reload_refused", text)
