"""Upstreams that count what arrives, and enforce the configured number."""

from collections import Counter
from collections.abc import Iterable


def sliding(arrivals: list[float], limit: int, period: float) -> bool:
    """Tell whether more came in any window of which one end does not count."""
    return any(b - a < period for a, b in zip(arrivals, arrivals[limit:], strict=False))


def closed(arrivals: list[float], limit: int, period: float) -> bool:
    """Tell whether more came in any window of which both ends count."""
    return any(b - a <= period for a, b in zip(arrivals, arrivals[limit:], strict=False))


def in_milliseconds(arrivals: list[float], limit: int, period: float) -> bool:
    """Tell whether more came in any window, by a clock that knows whole milliseconds only."""
    return closed([arrival * 1000 // 1 for arrival in arrivals], limit, round(period * 1000))


def fixed(arrivals: list[float], limit: int, period: float) -> bool:
    """Tell whether more came in one of those windows that follow each other, from somewhere on."""
    for part in range(5):
        begin = part / 5 * period
        windows = Counter([(arrival - begin) // period for arrival in arrivals])
        if max(windows.values(), default=0) > limit:
            return True
    return False


UPSTREAMS = (sliding, closed, in_milliseconds, fixed)


def refused(arrivals: Iterable[float], limit: int, period: float) -> list[str]:
    """Return the upstreams that would have refused a call."""
    ordered = sorted(arrivals)
    return [counts.__name__ for counts in UPSTREAMS if counts(ordered, limit, period)]


def most_in(arrivals: Iterable[float], period: float) -> int:
    """Return the most that arrived in any window of which both ends count."""
    ordered = sorted(arrivals)
    first = most = 0
    for last, arrival in enumerate(ordered):
        while arrival - ordered[first] > period:
            first += 1
        most = max(most, last - first + 1)
    return most
