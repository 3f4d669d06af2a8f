"""Back-off: how long to wait before the next attempt, with jitter. Arithmetic only.

Nothing here draws a random number. The caller passes ``roll``, from 0 up to but
not including 1, so that a test can choose the shortest and the longest wait.

The curve says about how long to wait, the jitter makes waits differ: requests that
failed together shall not be retried together.
"""

from proxy.policy.settings import Backoff, BackoffStrategy, JitterStrategy

# On Python 3.11 a name of the module is found faster than a member of an enum.
_EXPONENTIAL, _LINEAR = BackoffStrategy.EXPONENTIAL, BackoffStrategy.LINEAR
_FIBONACCI = BackoffStrategy.FIBONACCI
_DECORRELATED = JitterStrategy.DECORRELATED

_BEYOND_ANY_CAP = 1e308
_LAST_FIBONACCI = 1476
"""The index of the last Fibonacci number that is a float."""

_LEAST_SHARE = {JitterStrategy.FULL: 0.0, JitterStrategy.EQUAL: 0.5, JitterStrategy.NONE: 1.0}
"""By jitter, the smallest share of the curve that a wait may be."""

_SPREAD = 0.5
"""The largest share of itself by which an upstream's wait is lengthened, as in Envoy."""


def nominal(backoff: Backoff, n: int, base: float) -> float:
    """Return the seconds before retry number *n*, counted from 1, without jitter.

    *base* takes the place of the back-off's own.
    """
    strategy, seconds = backoff.strategy, base
    if strategy is _EXPONENTIAL:
        seconds = base * _power(backoff.factor, n - 1)
    elif strategy is _LINEAR:
        increment = base if backoff.increment is None else backoff.increment
        seconds = base + increment * (n - 1)
    elif strategy is _FIBONACCI:
        seconds = base * _fibonacci(n, base, backoff.max)
    return min(seconds, backoff.max)


def _power(factor: float, exponent: int) -> float:
    try:
        # A float power: the integer 2 ** 10**9 would take all day.
        return float(factor) ** exponent
    except OverflowError:
        return _BEYOND_ANY_CAP


def _fibonacci(n: int, base: float, enough: float) -> float:
    """Return number *n* of 1, 1, 2, 3, 5, …; stop where *base* times it is *enough*."""
    previous, current = 0.0, 1.0
    for _ in range(min(n, _LAST_FIBONACCI) - 1):
        if base * current >= enough:
            break
        previous, current = current, previous + current
    return current


def backoff_delay(
    backoff: Backoff, n: int, previous: float, roll: float, *, least_base: float = 0.0
) -> float:
    """Return the seconds to wait before retry number *n*: curve and jitter, at most the max.

    *previous* is the wait before the last retry, 0 if there was none. *least_base*
    raises the whole curve where the upstream asks its callers to slow down.
    """
    base = max(backoff.base, least_base)
    if backoff.jitter is _DECORRELATED:
        # A random walk: each wait follows from the one before, not from the curve.
        reach = 3 * min(previous or base, backoff.max)
        return min(base + roll * max(reach - base, 0.0), backoff.max)
    # Jitter around the curve, then the cap: waits below the cap still differ.
    return min(jittered(backoff, nominal(backoff, n, base), roll), backoff.max)


def jittered(backoff: Backoff, seconds: float, roll: float) -> float:
    """Spread a wait of *seconds* by the jitter of *backoff*, which is no random walk."""
    if isinstance(backoff.jitter, JitterStrategy):
        least = _LEAST_SHARE[backoff.jitter]
        return seconds * (least + roll * (1 - least))
    return max(seconds * (1 + backoff.jitter * (2 * roll - 1)), 0.0)


def spread_hint(seconds: float, roll: float) -> float:
    """Lengthen a wait that an upstream gave, never shorten it: no retry comes too early."""
    return seconds * (1 + _SPREAD * roll)
