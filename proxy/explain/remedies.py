"""Remedies of ``explain``: suggestions that were run through the stages, and did help.

A suggestion that moves one obstacle out of the way may only reach the next: with a 500 in
``retry.on`` a POST is still one that may not run twice. Then both are tried together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from proxy.config import Setting
from proxy.explain.course import Course, simulate
from proxy.explain.subject import Subject
from proxy.explain.suggestions import LastAttempt, SuggestedChange
from proxy.policy.reasons import VerdictReason
from proxy.simulation.scripted_peer import ScriptedOutcome

_MOST_TOGETHER = 3
"""Suggestions that one remedy may combine."""
_MOST_ATTEMPTS = 600
"""Attempts that are simulated for the remedies of one ending, about: a quarter of a second. What
has not been tried by then is not suggested."""


@dataclass(slots=True)
class RemedySearch:
    """The search for remedies of one way in which a request ends."""

    course: Course
    """How the request ended."""
    outcomes: Sequence[ScriptedOutcome]
    """What became of each of its attempts."""
    hint: float | None
    """Seconds that the upstream asked to wait after the last attempt."""
    policy: Sequence[Setting]
    wall: float
    _simulated: int = 0

    def remedies(self, subject: Subject) -> list[str]:
        """Return alternatives of what to write to have the request sent again.

        All of them are of the same number of changes, the smallest that suffices.
        """
        reached = [(SuggestedChange("", subject), self.course)]
        for _ in range(_MOST_TOGETHER):
            tried = [found for start in reached for found in self._tried(*start)]
            helpful = [change.text for change, course in tried if course is None]
            if helpful:
                return list(dict.fromkeys(helpful))
            reached = [(change, course) for change, course in tried if course is not None]
        return []

    def advice(self, subject: Subject) -> list[str]:
        """Return what may help where no setting does."""
        return self._last_attempt(subject, self.course).advice()

    def _last_attempt(self, subject: Subject, course: Course) -> LastAttempt:
        return LastAttempt(subject, course.attempts[-1], self.hint, self.policy)

    def _tried(
        self, start: SuggestedChange, course: Course
    ) -> Iterator[tuple[SuggestedChange, Course | None]]:
        """Yield the changes after *start* that lead further: None, or the course to the next end.

        *course* is the one after *start*.
        """
        verdict = course.attempts[-1].verdict
        for candidate in self._last_attempt(start.subject, course).candidates():
            further: tuple[SuggestedChange, Course | None] | None = None
            for change in candidate:
                both = replace(change, text=_joined(start.text, change.text))
                ended = self._run(both.subject)
                if ended is None:
                    continue
                if _is_sent_again(ended, len(self.course.attempts)):
                    further = (both, None)
                    break
                is_as_far = len(ended.attempts) == len(self.course.attempts)
                if further is None and is_as_far and ended.attempts[-1].verdict is not verdict:
                    further = (both, ended)
            if further is not None:
                yield further

    def _run(self, subject: Subject) -> Course | None:
        """Run the request again, with the longest wait after its last attempt.

        A remedy must not help by luck alone. None: enough was tried.
        """
        made = len(self.course.attempts)
        if self._simulated > _MOST_ATTEMPTS:
            return None
        self._simulated += made
        rolls = [*self.course.rolls, *[self.course.rolls[-1]] * made][: made - 1]
        return simulate(subject, self.outcomes[:made], [*rolls, 1.0], self.wall)


def _is_sent_again(course: Course, made: int) -> bool:
    if len(course.attempts) > made:
        return True
    return len(course.attempts) == made and course.attempts[-1].verdict is VerdictReason.RETRIED


def _joined(first: str, then: str) -> str:
    return f"{first}, and {then}" if first else then
