"""What chance can make of a timeline: bounds for every wait, and every way to end."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from proxy.policy.attempt import RetryDelay
from proxy.policy.explain.subject import Subject
from proxy.policy.explain.timeline import AS_LATE_AS_CAN_BE, Course, ScriptedOutcome, simulate
from proxy.policy.reasons import VerdictReason

_MOST_FORKS = 5
"""Waits for which every combination of shortest and longest is tried; those beyond go along
with the last of them."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One attempt in all the courses that get so far."""

    number: int
    whys: tuple[VerdictReason | None, ...]
    """What may be said of it: the first in most cases, others only if chance has it so."""
    waits: tuple[RetryDelay, ...]
    """The shortest and the longest wait before the next one, if one follows."""
    starts: tuple[float, float]
    """Seconds after the request came, at the soonest and at the latest."""
    queued: tuple[float, float]
    """Seconds in line before it, at the least and at the most."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to end."""

    course: Course
    """One of those that end so."""
    ends: tuple[float, float]
    """Seconds after the request came, at the soonest and at the latest."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is bound to happen, and within which bounds."""

    attempts: tuple[Expected, ...]
    ways: tuple[Way, ...]
    """How it may end; the first with the most attempts, others only if chance has it so."""


def forecast(
    subject: Subject, outcomes: Sequence[ScriptedOutcome], roll: float | None, wall: float
) -> Forecast:
    """Play every course that matters: one if *roll* is given, else all extremes of chance.

    A wait grows with its own roll, and with each one before it it grows or shrinks. So its
    bounds are found where every roll is one of three: 0; 1, which chance never quite
    reaches; and, where that would be too late, the highest that is not. (Decorrelated waits
    near the deadline are the exception: a longer one before allows for a longer one and
    leaves less time for it, so something in between may wait longer than the bound says.)
    """
    forks = min(len(outcomes), _MOST_FORKS)
    every = product((0.0, AS_LATE_AS_CAN_BE, 1.0), repeat=forks)
    courses = [
        simulate(subject, outcomes, rolls, wall) for rolls in (every if roll is None else [(roll,)])
    ]
    courses.sort(key=lambda course: -len(course.attempts))
    longest = len(courses[0].attempts)
    return Forecast(tuple(_expected(courses, n) for n in range(longest)), _ways(courses))


def _ways(courses: list[Course]) -> tuple[Way, ...]:
    alike: dict[tuple[object, ...], list[Course]] = {}
    for course in courses:
        last = course.attempts[-1].why if course.attempts else None
        way = (len(course.attempts), last, course.falls_back, course.answer, course.is_kept)
        alike.setdefault(way, []).append(course)
    return tuple(
        Way(those[0], (min(c.ended for c in those), max(c.ended for c in those)))
        for those in alike.values()
    )


def _expected(courses: list[Course], index: int) -> Expected:
    reached = [course for course in courses if len(course.attempts) > index]
    attempts = [course.attempts[index] for course in reached]
    delays = [pause for course in reached if (pause := _pause_after(course, index)) is not None]
    delays.sort(key=lambda pause: pause.seconds)
    starts = [attempt.started for attempt in attempts]
    queued = [attempt.queued for attempt in attempts]
    return Expected(
        index + 1,
        tuple(dict.fromkeys(attempt.why for attempt in attempts)),
        (delays[0], delays[-1]) if delays else (),
        (min(starts), max(starts)),
        (min(queued), max(queued)),
    )


def _pause_after(course: Course, index: int) -> RetryDelay | None:
    following = course.attempts[index + 1 : index + 2]
    return following[0].pause if following else course.pause
