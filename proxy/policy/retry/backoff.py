"""How long to wait before the next attempt: arithmetic only.

Nothing here draws a random number. The caller passes ``roll``, from 0 up to but
not including 1, so that a test names the shortest and the longest wait.

The curve says about how long, the jitter makes it differ: callers that failed
together shall not come back together.
"""

from proxy.policy.settings import Backoff

_BEYOND_ANY_CAP = 1e308
_LAST_FIBONACCI = 1476
"""Its number is the last one that is a float."""

_LEAST_SHARE = {"full": 0.0, "equal": 0.5, "none": 1.0}
"""How much of the curve a jitter leaves at least."""

_SPREAD = 0.5
"""By how much of itself a wait that a server gave is lengthened at most, as in Envoy."""


def nominal(backoff: Backoff, n: int, base: float) -> float:
    """Seconds before retry number *n*, counted from 1, before any jitter.

    *base* takes the place of the back-off's own.
    """
    match backoff.strategy:
        case "exponential":
            seconds = base * _power(backoff.factor, n - 1)
        case "linear":
            increment = base if backoff.increment is None else backoff.increment
            seconds = base + increment * (n - 1)
        case "fibonacci":
            seconds = base * _fibonacci(n, base, backoff.max)
        case _:
            seconds = base
    return min(seconds, backoff.max)


def _power(factor: float, exponent: int) -> float:
    try:
        # As floats: the integer 2 ** 10**9 would take all day.
        return float(factor) ** exponent
    except OverflowError:
        return _BEYOND_ANY_CAP


def _fibonacci(n: int, base: float, enough: float) -> float:
    """1, 1, 2, 3, 5, …; no further than where *base* times it is *enough*."""
    previous, current = 0.0, 1.0
    for _ in range(min(n, _LAST_FIBONACCI) - 1):
        if base * current >= enough:
            break
        previous, current = current, previous + current
    return current


def delay(
    backoff: Backoff, n: int, previous: float, roll: float, *, least_base: float = 0.0
) -> float:
    """Seconds to wait before retry number *n*: the curve and its jitter, never above the max.

    *previous* is the wait before the last retry, 0 if there was none. *least_base*
    slows the whole curve down where the upstream asks us to slow down.
    """
    base = max(backoff.base, least_base)
    if backoff.jitter == "decorrelated":
        # A walk of its own: each wait follows from the one before, not from the curve.
        reach = 3 * min(previous or base, backoff.max)
        return min(base + roll * max(reach - base, 0.0), backoff.max)
    seconds = nominal(backoff, n, base)
    if isinstance(backoff.jitter, str):
        least = _LEAST_SHARE[backoff.jitter]
        return seconds * (least + roll * (1 - least))
    # Around the curve, then capped: at the cap, too, callers are still told apart.
    spread = seconds * (1 + backoff.jitter * (2 * roll - 1))
    return min(max(spread, 0.0), backoff.max)


def lengthened(seconds: float, roll: float) -> float:
    """A wait that a server gave, spread on top of it: nobody comes back too early."""
    return seconds * (1 + _SPREAD * roll)
