"""The schedule of a delivery: when it is tried again, and when it is given up.

Times are seconds since the epoch, as in the row of a delivery. What ``explain --hand-off`` prints
(:func:`planned_tries`) comes from the functions that plan a real try.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.policy.delivery.words import DeliveryEnd
from proxy.policy.reasons import VerdictReason
from proxy.policy.retry.backoff import backoff_delay, jittered, spread_hint
from proxy.policy.settings import DeliveryBackoff, HandOffSettings, JitterStrategy

_LEAST_BASE_AFTER_429 = 1.0
_LEAST_DEFERRAL = 1.0
"""Seconds for which a delivery that the upstream refused waits at least, whatever it says."""


def gives_up_at(settings: HandOffSettings, accepted: float) -> float:
    """Return when a delivery that was *accepted* then has failed, if it has not ended before."""
    return accepted + settings.give_up_after


def wait_before_next(
    backoff: DeliveryBackoff,
    made: int,
    roll: float,
    *,
    previous: float = 0.0,
    slow_down: bool = False,
) -> float:
    """Return the seconds between try number *made*, from 1, and the next one.

    *roll* is a random number from 0 up to 1, *previous* the wait before try number *made*, 0 if
    there was none; *slow_down* says that the upstream answered 429 without a hint.
    """
    if backoff.waits:
        nominal = backoff.waits[min(made, len(backoff.waits)) - 1]
        return jittered(backoff, nominal, roll)
    least_base = _LEAST_BASE_AFTER_429 if slow_down else 0.0
    return backoff_delay(backoff, made, previous, roll, least_base=least_base)


def usable_hint(settings: HandOffSettings, hint: float | None) -> float | None:
    """Return the wait that the upstream asks for, cut to the longest; None if it is ignored."""
    if hint is None or settings.longest_hint is None:
        return None
    return min(hint, settings.longest_hint)


def next_try(
    settings: HandOffSettings,
    *,
    accepted: float,
    now: float,
    made: int,
    roll: float,
    previous: float = 0.0,
    hint: float | None = None,
    slow_down: bool = False,
) -> float | VerdictReason | DeliveryEnd:
    """Return when the try after *made* ones that count is due, or why there is none.

    A hint of the upstream is a floor, as for retries: spread only on top. A try that would be due
    after the delivery is given up is not waited for: it has failed now.
    """
    if settings.attempts is not None and made >= settings.attempts:
        return VerdictReason.ATTEMPTS_EXHAUSTED
    asked = usable_hint(settings, hint)
    wait = wait_before_next(
        settings.backoff, made, roll, previous=previous, slow_down=slow_down and asked is None
    )
    if asked is not None:
        wait = max(wait, _spread(settings, asked, roll))
    return _unless_given_up(settings, accepted, now + wait)


def deferred_until(
    settings: HandOffSettings, *, accepted: float, now: float, hint: float, roll: float
) -> float | DeliveryEnd:
    """Return when a delivery is due that the upstream refused until later, or that it is given up.

    *hint* is what :func:`usable_hint` returned. No attempt is counted, so that a try never follows
    within less than a second, or the first wait of the back-off.
    """
    first = settings.backoff.waits[0] if settings.backoff.waits else settings.backoff.base
    least = max(min(first, hint or first), _LEAST_DEFERRAL)
    return _unless_given_up(settings, accepted, now + max(_spread(settings, hint, roll), least))


def _spread(settings: HandOffSettings, hint: float, roll: float) -> float:
    """Lengthen a hint at random, but not beyond the longest wait that the route accepts."""
    if settings.backoff.jitter in {JitterStrategy.NONE, 0.0}:
        return hint
    longest = hint if settings.longest_hint is None else max(hint, settings.longest_hint)
    return min(spread_hint(hint, roll), longest)


def _unless_given_up(settings: HandOffSettings, accepted: float, due: float) -> float | DeliveryEnd:
    return due if due < gives_up_at(settings, accepted) else DeliveryEnd.GAVE_UP


@dataclass(frozen=True, slots=True)
class PlannedTry:
    """A try of a delivery that every attempt fails and nothing defers."""

    number: int
    earliest: float
    """Seconds since the acceptance: each attempt fails at once, and waits are the shortest."""
    latest: float | None
    """Seconds since the acceptance: each attempt takes its whole timeout, and waits are the
    longest; None: the delivery may be given up before."""


def planned_tries(settings: HandOffSettings) -> Iterator[PlannedTry]:
    """Yield the tries of a delivery up to the last, without hints; there may be very many."""
    earliest, latest = 0.0, 0.0
    shortest, longest = 0.0, 0.0
    number = 1
    while True:
        in_time = latest < settings.give_up_after
        yield PlannedTry(number, earliest, latest if in_time else None)
        latest += settings.timeout or 0.0
        first = next_try(
            settings, accepted=0.0, now=earliest, made=number, roll=0.0, previous=shortest
        )
        if not isinstance(first, float):
            return
        shortest = first - earliest
        longest = wait_before_next(settings.backoff, number, 1.0, previous=longest)
        earliest, latest = first, latest + longest
        number += 1
