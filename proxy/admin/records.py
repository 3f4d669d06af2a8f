"""What the JSON of dead letters and of deliveries has in common: dates, runs, pages."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

from proxy.policy.explain_command import ExplainContext

USUAL_PAGE = 100
LONGEST_PAGE = 1000
BAD_LIMIT = f"Write a limit from 1 to {LONGEST_PAGE}, in at most four digits."
_is_short_number = re.compile(r"[0-9]{1,4}").fullmatch
"""Texts that are read as a number at all: longer ones are refused before they get further."""


def is_limit(text: str) -> bool:
    """Tell whether *text* is a number of entries that one page can have."""
    return _is_short_number(text) is not None and 0 < int(text) <= LONGEST_PAGE


class Run(Protocol):
    """What was sent of a request at one time."""

    @property
    def time(self) -> float:
        """Seconds since the epoch."""

    @property
    def result(self) -> str:
        """How it ended, in a word."""

    @property
    def attempts(self) -> Sequence[Mapping[str, object]]:
        """The attempts, as in the access log."""


def run_json(run: Run, context: ExplainContext) -> dict[str, object]:
    """Return a run in values that JSON can carry."""
    attempts = []
    for attempt in run.attempts:
        shown = {**attempt, "start": date_text(float(str(attempt.get("start", 0))))}
        meaning = context.meaning(attempt)
        attempts.append(shown if meaning is None else {**shown, "meaning": meaning})
    return {"time": date_text(run.time), "result": run.result, "attempts": attempts}


def date_text(seconds: float) -> str:
    """Format a time as RFC 3339, in UTC, to the millisecond."""
    when = datetime.fromtimestamp(seconds, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
