"""The forecast of a request: bounds for every wait, and every way to end, whatever chance does."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from proxy.policy.attempt import RetryDelay
from proxy.policy.explain.subject import Subject
from proxy.policy.explain.timeline import AS_LATE_AS_CAN_BE, ScriptedOutcome, Timeline, simulate
from proxy.policy.reasons import VerdictReason

_MOST_FORKS = 5
"""Waits for which every combination of shortest and longest is tried; later ones take the roll
of the last of them."""


@dataclass(frozen=True, slots=True)
class AttemptForecast:
    """One attempt in all the timelines that get so far."""

    number: int
    verdicts: tuple[VerdictReason | None, ...]
    """The possible verdicts: the first in most cases, others only by chance."""
    waits: tuple[RetryDelay, ...]
    """The shortest and the longest wait before the next attempt; empty if none follows."""
    queued: tuple[float, float]
    """Seconds in wait queues before the attempt, at least and at most."""


@dataclass(frozen=True, slots=True)
class PossibleEnding:
    """One way in which the request may end."""

    timeline: Timeline
    """One of the timelines that end so."""
    ends: tuple[float, float]
    """Seconds after the request came, at the earliest and at the latest."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The attempts of a request and its possible endings, with bounds."""

    attempts: tuple[AttemptForecast, ...]
    endings: tuple[PossibleEnding, ...]
    """How the request may end; the first with the most attempts, others only by chance."""


def forecast(
    subject: Subject, outcomes: Sequence[ScriptedOutcome], roll: float | None, wall: float
) -> Forecast:
    """Simulate every timeline that matters: one if *roll* is given, else all extremes of chance.

    A wait grows with its own roll, and with each roll before it grows or shrinks. So its
    bounds are found where every roll is one of three: 0; 1, which chance never quite
    reaches; and, where that would be too late, the highest that is not. (Decorrelated waits
    near the deadline are the exception: a longer one before allows for a longer one and
    leaves less time for it, so something in between may wait longer than the bound says.)
    """
    forks = min(len(outcomes), _MOST_FORKS)
    every = product((0.0, AS_LATE_AS_CAN_BE, 1.0), repeat=forks)
    timelines = [
        simulate(subject, outcomes, rolls, wall) for rolls in (every if roll is None else [(roll,)])
    ]
    timelines.sort(key=lambda timeline: -len(timeline.attempts))
    longest = len(timelines[0].attempts)
    attempts = tuple(_attempt_forecast(timelines, n) for n in range(longest))
    return Forecast(attempts, _endings(timelines))


def _endings(timelines: list[Timeline]) -> tuple[PossibleEnding, ...]:
    alike: dict[tuple[object, ...], list[Timeline]] = {}
    for timeline in timelines:
        last = timeline.attempts[-1].verdict if timeline.attempts else None
        made, answer = len(timeline.attempts), timeline.answer
        ending = (made, last, timeline.falls_back, answer, timeline.is_kept)
        alike.setdefault(ending, []).append(timeline)
    return tuple(
        PossibleEnding(those[0], (min(t.ended for t in those), max(t.ended for t in those)))
        for those in alike.values()
    )


def _attempt_forecast(timelines: list[Timeline], index: int) -> AttemptForecast:
    reached = [timeline for timeline in timelines if len(timeline.attempts) > index]
    attempts = [timeline.attempts[index] for timeline in reached]
    delays = [delay for timeline in reached if (delay := _delay_after(timeline, index)) is not None]
    delays.sort(key=lambda delay: delay.seconds)
    queued = [attempt.queued for attempt in attempts]
    return AttemptForecast(
        index + 1,
        tuple(dict.fromkeys(attempt.verdict for attempt in attempts)),
        (delays[0], delays[-1]) if delays else (),
        (min(queued), max(queued)),
    )


def _delay_after(timeline: Timeline, index: int) -> RetryDelay | None:
    following = timeline.attempts[index + 1 : index + 2]
    return following[0].delay if following else timeline.delay
