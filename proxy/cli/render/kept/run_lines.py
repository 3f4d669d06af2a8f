"""Lines about what was sent of a request at each time: its runs, and their attempts."""

from collections.abc import Iterator

from proxy.cli.render.number_format import short_duration
from proxy.cli.render.tables import Cell, Line, Tone
from proxy.cli.untrusted_json import UntrustedJson


def labelled(name: str, text: str, tone: Tone = Tone.PLAIN) -> Line:
    """Return a line with a name and a text."""
    return Cell(f"{name}: "), Cell(text, tone)


def run_lines(content: UntrustedJson, *, first: str, later: str) -> Iterator[Line]:
    """Yield the lines of all runs; they are called *first*, then *later* with a number."""
    for number, run in enumerate(content.parts("runs")):
        yield ()
        name = f"{later} {number}" if number else first
        result = run.text("result")
        if not number and result == "refused":
            name, result = "refused", "nothing was sent"
        yield labelled(name, f"{run.text('time')}, {result}")
        for attempt in run.parts("attempts"):
            yield (Cell(f"  {', '.join(_attempt(attempt))}"),)


def _attempt(attempt: UntrustedJson) -> Iterator[str]:
    yield f"{attempt.count('n')}. {attempt.text('upstream')} {attempt.text('address')}"
    if "wait_ms" in attempt:
        wait = short_duration(attempt.number("wait_ms") or 0)
        yield f"waited {wait} ({attempt.text('wait_for')})"
    ending = str(attempt.count("status") or attempt.text("outcome"))
    yield f"{ending} after {short_duration(attempt.number('ms') or 0)}"
    yield "sent" if attempt.is_true("sent") else "nothing sent"
    if "why" in attempt:
        yield attempt.text("why")
