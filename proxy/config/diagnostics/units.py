"""Units of durations and sizes: formatting, parsing, and what to write for unknown units.

Durations are written ``1m30s``, sizes ``64KiB``.
"""

import re
from fractions import Fraction

from proxy.config.diagnostics.nearest import nearest
from proxy.http.durations import NUMBER_PATTERN, SECONDS

BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}

_OTHER_TIMES = {
    word: seconds
    for words, seconds in (
        ("us µs", Fraction(1, 10**6)),
        ("ns", Fraction(1, 10**9)),
        ("msec millis milliseconds", SECONDS["ms"]),
        ("sec secs second seconds", SECONDS["s"]),
        ("min mins minute minutes", SECONDS["m"]),
        ("hr hrs hour hours", SECONDS["h"]),
        ("day days", SECONDS["d"]),
        ("w week weeks", 7 * SECONDS["d"]),
    )
    for word in words.split()
}
"""Time units that other products accept, for suggestions of what to write instead."""

SIZE_PATTERN = rf"({NUMBER_PATTERN})(B|KiB|MiB|GiB|TiB)"
_QUANTITY = re.compile(rf"({NUMBER_PATTERN})\s*([^\W\d_]+)")


def format_duration(seconds: float) -> str:
    """Format a duration in its shortest usual form: ``1m30s``, ``250ms``."""
    milliseconds = round(Fraction(seconds) * 1000)
    if milliseconds == 0:
        return "0s"
    written = ""
    for unit in ("d", "h", "m", "s", "ms"):
        count, milliseconds = divmod(milliseconds, int(SECONDS[unit] * 1000))
        written += f"{count}{unit}" if count else ""
    return written


def format_in_seconds(seconds: float) -> str:
    """Format a duration in seconds: ``90s`` rather than ``1m30s``.

    People write a time of a minute or two so.
    """
    is_handy = 60 < seconds < 180 and seconds % 60 and seconds.is_integer()
    return f"{seconds:.0f}s" if is_handy else format_duration(seconds)


def duration_with_other_unit(text: str) -> tuple[str, str] | None:
    """Return the unsupported unit of *text*, and the duration to write instead.

    The duration is empty if the unit is unknown.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, unit = found.groups()
    known = SECONDS | _OTHER_TIMES
    factor = known.get(unit.lower()) or known.get(nearest(unit.lower(), known))
    if factor is None:
        return unit, ""
    # Weeks become days: 2w is 14d rather than anything with hours.
    return unit, format_duration(max(float(Fraction(number) * factor), 0.001))


def parse_size(text: str) -> int | None:
    """Parse a size into bytes; None if *text* is no size."""
    found = re.fullmatch(SIZE_PATTERN, text)
    return None if found is None else int(Fraction(found[1]) * BYTES[found[2]])


def format_size(size: int) -> str:
    """Format a size in the largest unit that divides it."""
    unit = next((unit for unit in reversed(BYTES) if size and size % BYTES[unit] == 0), "B")
    return f"{size // BYTES[unit]}{unit}"


def size_with_other_unit(text: str) -> tuple[str, str] | None:
    """Return the unsupported unit of *text*, and the size to write instead.

    Both 10MB and 10M become 10MiB: a limit is meant as an order of magnitude.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, unit = found.groups()
    ours = {"": "B", "k": "KiB", "m": "MiB", "g": "GiB", "t": "TiB"}
    prefix = re.fullmatch(r"([kmgt]?)(?:i?b|bytes?)?", unit.lower())
    return unit, f"{number}{ours[prefix[1]]}" if prefix else ""
