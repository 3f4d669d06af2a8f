"""The forecast of a request: bounds for every wait, and every way to end, whatever chance does."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.explain.course import Course, simulate
from proxy.explain.subject import Subject
from proxy.policy.attempt import RetryDelay
from proxy.policy.reasons import VerdictReason
from proxy.policy.retry.verdict import LEAST_ATTEMPT
from proxy.simulation.scripted_peer import ScriptedOutcome

_MOST_FORKS = 5
"""Waits for which every combination of shortest and longest is tried; later ones take the roll
of the last of them."""
_MOST_ATTEMPTS = 1500
"""Attempts that are simulated about at most, in all courses together: fewer forks for longer
courses, so that a forecast takes less than a second (measured: 0.1 s for five outcomes, 0.5 s for
those that are just not cut)."""
_A_LITTLE = 1e-6
"""A roll at which hardly a wait is too long that is not at 0."""
_JUST_BELOW = 1 - 1e-9
"""Factor against rounding: a wait that only just fits."""


@dataclass(frozen=True, slots=True)
class AttemptForecast:
    """One attempt in all the courses that get so far."""

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

    course: Course
    """One of the courses that end so."""
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
    """Simulate every course that matters: one if *roll* is given, else all extremes of chance.

    A wait grows with its own roll, and with each roll before it grows or shrinks. So its
    bounds are found where every roll is one of three: 0; 1, which chance never quite
    reaches; and, where that would be too late, the highest that is not. (Decorrelated waits
    near the deadline are the exception: a longer one before allows for a longer one and
    leaves less time for it, so something in between may wait longer than the bound says.)
    """
    if roll is not None:
        courses = [simulate(subject, outcomes, [roll], wall)]
    else:
        courses = list(_Extremes(subject, outcomes, wall).courses())
    courses.sort(key=lambda course: -len(course.attempts))
    longest = len(courses[0].attempts)
    attempts = tuple(_attempt_forecast(courses, n) for n in range(longest))
    return Forecast(attempts, _endings(courses))


class _Extremes:
    """The courses of a request at the extremes of chance, each simulated once."""

    def __init__(self, subject: Subject, outcomes: Sequence[ScriptedOutcome], wall: float) -> None:
        self._subject = subject
        self._outcomes = outcomes
        self._wall = wall
        self._forks = _MOST_FORKS
        while self._forks > 1 and 2**self._forks * len(outcomes) > _MOST_ATTEMPTS:
            self._forks -= 1
        self._known: dict[tuple[float, ...], Course] = {}

    def courses(self, rolls: tuple[float, ...] = ()) -> Iterator[Course]:
        """Yield the courses that begin with *rolls*, one for each wait so far."""
        made, lowest = len(rolls), self._run(*rolls, 0.0)
        shortest = _delay_after(lowest, made)
        if shortest is None or made >= len(lowest.attempts):
            yield lowest  # no wait follows, so chance has nothing more to decide
            return
        choices = [0.0]
        longest = _delay_after(self._run(*rolls, 1.0), made)
        if longest is None:
            choices += [*self._latest_that_fits(rolls, lowest, shortest), 1.0]
        elif longest.seconds > shortest.seconds:
            choices.append(1.0)
        for roll in choices:
            if made + 1 < self._forks:
                yield from self.courses((*rolls, roll))
            else:
                yield self._run(*rolls, roll)

    def _latest_that_fits(
        self, rolls: tuple[float, ...], lowest: Course, shortest: RetryDelay
    ) -> list[float]:
        """Return the highest roll whose wait is not too long for the time left, if there is one.

        Up to there a wait grows evenly with its roll, so two waits tell of all.
        """
        made = len(rolls)
        longer = _delay_after(self._run(*rolls, _A_LITTLE), made)
        if longer is None or longer.seconds <= shortest.seconds:
            return []
        most = lowest.times_left[made] - LEAST_ATTEMPT
        share = (most - shortest.seconds) / (longer.seconds - shortest.seconds)
        return [min(share * _A_LITTLE, 1.0) * _JUST_BELOW]

    def _run(self, *rolls: float) -> Course:
        while len(rolls) > 1 and rolls[-1] == rolls[-2]:
            rolls = rolls[:-1]  # the last one is taken again if they run out
        if rolls not in self._known:
            self._known[rolls] = simulate(self._subject, self._outcomes, rolls, self._wall)
        return self._known[rolls]


def _endings(courses: list[Course]) -> tuple[PossibleEnding, ...]:
    alike: dict[tuple[object, ...], list[Course]] = {}
    for course in courses:
        last = course.attempts[-1].verdict if course.attempts else None
        made, answer = len(course.attempts), course.answer
        ending = (made, last, course.falls_back, answer, course.is_kept, course.is_handed_off)
        alike.setdefault(ending, []).append(course)
    return tuple(
        PossibleEnding(those[0], (min(t.ended for t in those), max(t.ended for t in those)))
        for those in alike.values()
    )


def _attempt_forecast(courses: list[Course], index: int) -> AttemptForecast:
    reached = [course for course in courses if len(course.attempts) > index]
    attempts = [course.attempts[index] for course in reached]
    delays = [delay for course in reached if (delay := _delay_after(course, index)) is not None]
    delays.sort(key=lambda delay: delay.seconds)
    queued = [attempt.queued for attempt in attempts]
    return AttemptForecast(
        index + 1,
        tuple(dict.fromkeys(attempt.verdict for attempt in attempts)),
        (delays[0], delays[-1]) if delays else (),
        (min(queued), max(queued)),
    )


def _delay_after(course: Course, index: int) -> RetryDelay | None:
    following = course.attempts[index + 1 : index + 2]
    return following[0].delay if following else course.delay
