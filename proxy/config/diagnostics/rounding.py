"""Rounding of suggested durations to what a person would write: 3s rather than 3.333s."""

from math import ceil, floor, log10


def rounded_down(seconds: float) -> float:
    """Return the next round duration below; 0 if it would be less than a millisecond."""
    milliseconds = round(seconds * 1000, 3)
    step = _step(milliseconds)
    return floor(milliseconds / step) * step / 1000


def rounded_up(seconds: float) -> float:
    """Return the next round duration above."""
    milliseconds = round(seconds * 1000, 3)
    step = _step(milliseconds)
    return ceil(milliseconds / step) * step / 1000


def _step(milliseconds: float) -> int:
    """Return the step, in milliseconds, in which people divide a duration of this length."""
    if milliseconds < 1000:
        return int(10 ** max(0, floor(log10(max(milliseconds, 1)))))
    if milliseconds < 10_000:
        return 1000
    return 5000 if milliseconds < 60_000 else 30_000
