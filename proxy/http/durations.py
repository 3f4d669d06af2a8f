"""Durations as text: ``1m30s`` in the configuration file, ``6m0s`` in a server's header.

Both forms are numbers with units, one after the other, and differ in their units: people
write days, Go (whose form servers use) goes down to nanoseconds.
"""

import re
from fractions import Fraction

SECONDS = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_GO_SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "\N{MICRO SIGN}s": Fraction(1, 10**6),
    "\N{GREEK SMALL LETTER MU}s": Fraction(1, 10**6),
    **{unit: SECONDS[unit] for unit in ("ms", "s", "m", "h")},
}

NUMBER_PATTERN = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
"""ASCII digits only: ``float()`` would also read ``1_000``, ``1e3`` and digits of any script."""
DURATION_PATTERN = rf"(?:{NUMBER_PATTERN}(?:{'|'.join(SECONDS)}))+"
_GO_PATTERN = rf"(?:{NUMBER_PATTERN}(?:{'|'.join(_GO_SECONDS)}))+"
_part = re.compile(rf"({NUMBER_PATTERN})([^\W\d]+)")

_LONGEST_TEXT = 128


def parse_duration(text: str) -> float | None:
    """Parse a duration of the configuration file to seconds; None if *text* is none."""
    return _parse(text, DURATION_PATTERN, SECONDS)


def parse_go_duration(text: str) -> float | None:
    """Parse what Go's ``time.Duration`` prints to seconds; None if *text* is not that.

    ``0`` needs no unit. A negative duration is one to Go, but nothing to wait for: None.
    """
    return 0.0 if text == "0" else _parse(text, _GO_PATTERN, _GO_SECONDS)


def _parse(text: str, pattern: str, units: dict[str, Fraction]) -> float | None:
    if len(text) > _LONGEST_TEXT or not re.fullmatch(pattern, text):
        return None
    # Fractions, so that 0.1s is the float 0.1 and not the sum of rounding errors.
    return float(sum(Fraction(number) * units[unit] for number, unit in _part.findall(text)))
