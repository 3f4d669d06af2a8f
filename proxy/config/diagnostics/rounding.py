"""Durations that a person would write, for advice: 3s rather than 3.333s."""

from math import ceil, floor, log10


def rounded_down(seconds: float) -> float:
    """The next handy duration below; 0 if it would be less than a millisecond."""
    milliseconds = round(seconds * 1000, 3)
    step = _step(milliseconds)
    return floor(milliseconds / step) * step / 1000


def rounded_up(seconds: float) -> float:
    """The next handy duration above."""
    milliseconds = round(seconds * 1000, 3)
    step = _step(milliseconds)
    return ceil(milliseconds / step) * step / 1000


def _step(milliseconds: float) -> int:
    """How finely people divide a time of this length."""
    if milliseconds < 1000:
        return int(10 ** max(0, floor(log10(max(milliseconds, 1)))))
    if milliseconds < 10_000:
        return 1000
    return 5000 if milliseconds < 60_000 else 30_000
