"""Which requests may be sent again: the one rule, for retries, fallbacks, keys and dead letters.

Two questions about an attempt that was not good, from the strict one to the milder one:

:func:`did_not_run`   is it *proved* that the upstream did not do the work? Holdfast repeats on its
                      own only what is proved not to have run, or does no harm if it runs twice
                      (:func:`is_repeatable`). Retries and fallbacks ask this.
:func:`may_have_run`  must an operator, or the sender of a key, assume that it ran? Keys, dead
                      letters and replays ask this. It differs in the statuses by which an upstream
                      rejects the message itself (4xx, 501, 505): a client may correct that and send
                      it again under the same key, but the proxy does not repeat it unasked.

A status is a proof only if the upstream's ``refused`` lists it. A 503 by itself is none: a gateway
in front of a worker says 503 after the worker has booked the payment.

:class:`RepeatRules` answers for a whole request: given all attempts made, may another follow, where
and until when? A key that the upstream honours is good for a while, and at the URL that knows it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.policy.attempt import FIRST_SERVER_ERROR, Attempt
from proxy.policy.reasons import VerdictReason
from proxy.policy.settings import RouteSettings, UnsafeRetries, UpstreamSettings

# RFC 9110 9.2.2. TRACE is idempotent too, but is never forwarded.
REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})

MAY_CARRY_KEY = frozenset({"POST", "PATCH"})
"""Methods that an honoured key makes repeatable."""

_ALWAYS, _NEVER = UnsafeRetries.ALWAYS, UnsafeRetries.NEVER

_REJECTED = frozenset({501, 505})
"""Server errors that reject the message itself: its method, or its version of HTTP."""


def is_repeatable(method: str, unsafe: UnsafeRetries, *, carries_honoured_key: bool) -> bool:
    """Whether a request does no harm if it runs twice.

    *unsafe* is the route's setting: ``auto`` goes by the method and the key,
    ``never`` by the method alone, and ``always`` lets all of them run twice.
    """
    if method in REPEATABLE_METHODS or unsafe is _ALWAYS:
        return True
    return carries_honoured_key and method in MAY_CARRY_KEY and unsafe is not _NEVER


def did_not_run(attempt: Attempt, refused: frozenset[int]) -> bool:
    """Whether it is proved that the upstream did not act on *attempt*.

    *refused* are the statuses by which the upstream says so.
    """
    if attempt.kind is not None:
        return not attempt.sent or not attempt.kind.may_have_run
    return attempt.status in refused


def may_have_run(attempt: Attempt, refused: frozenset[int]) -> bool:
    """Whether an attempt without a response to keep may have had its effect all the same."""
    if attempt.kind is not None:
        return not did_not_run(attempt, refused)
    return status_may_have_run(attempt.status, refused)


def status_may_have_run(status: int, refused: frozenset[int]) -> bool:
    """Whether a request that was answered with *status*, which is not kept, may have run."""
    return status >= FIRST_SERVER_ERROR and status not in _REJECTED and status not in refused


class Sendable(Protocol):
    """A request, as far as its repetition is concerned: an exchange, or the subject of explain."""

    @property
    def method(self) -> str:
        """The request's method."""

    def sends_once(self, name: bytes) -> bool:
        """Whether the upstream gets the client's own field *name* (in lower case) once."""


@dataclass(frozen=True, slots=True)
class RepeatPermission:
    """The permission to make another attempt, with its conditions."""

    url: str = ""
    """The only URL that the attempt may be sent to; empty: any of the upstream's."""
    within: float = math.inf
    """Seconds from now within which the attempt must have begun."""

    def allows(self, wait: float) -> bool:
        """Whether the attempt may begin after *wait* seconds."""
        return wait <= self.within


ANYWHERE = RepeatPermission()
"""The permission without conditions."""


class RepeatRules:
    """What a route allows and what its upstream promises about repeated requests."""

    def __init__(
        self,
        upstream: UpstreamSettings,
        unsafe: UnsafeRetries,
        attempt_time: float | None,
        others: Iterable[UpstreamSettings] = (),
    ) -> None:
        """Take the longest time of one attempt in seconds as *attempt_time*; None: no limit.

        *others* are further upstreams that a request may have been sent to before.
        """
        self._upstream = upstream.name
        self._urls = frozenset(map(str, upstream.origins))
        self._unsafe = unsafe
        self._key = upstream.honours_key if unsafe != _NEVER else None
        self._header = b"" if self._key is None else self._key.header.encode()
        # ``unsafe: never`` does not accept an upstream's refusal as a proof.
        asked = () if unsafe == _NEVER else (upstream, *others)
        self._proofs = {up.name: up.refused for up in asked}
        """By upstream, the statuses by which it says that it did not do the work."""
        self._attempt_time = attempt_time

    def permission(
        self,
        request: Sendable,
        attempts: Sequence[Attempt],
        now: float,
        earlier: Sequence[Attempt] = (),
    ) -> RepeatPermission | VerdictReason:
        """Return whether another attempt may follow *attempts*, none of them good; or why not.

        *earlier* are those of former runs of a dead letter, which an operator has decided to
        replay: they forbid nothing, but a key is as old as they are, and known where they went.
        """
        if self._is_repeatable_anywhere(request):
            return ANYWHERE
        now_in_doubt = self.in_doubt(attempts)
        in_doubt = [*self.in_doubt(earlier), *now_in_doubt]
        if not in_doubt:
            return ANYWHERE
        by_key = self._by_key(request, in_doubt, now)
        if now_in_doubt or isinstance(by_key, RepeatPermission):
            return by_key
        return ANYWHERE

    def in_doubt(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return those of *attempts* that are not proved to have had no effect."""
        return [attempt for attempt in attempts if not self._did_not_run(attempt)]

    def _did_not_run(self, attempt: Attempt) -> bool:
        return did_not_run(attempt, self._proofs.get(attempt.upstream, frozenset()))

    def _by_key(
        self, request: Sendable, in_doubt: list[Attempt], now: float
    ) -> RepeatPermission | VerdictReason:
        """Return what the key of *request* permits, once some of its attempts may have run."""
        key = self._key
        if key is None or request.method not in MAY_CARRY_KEY:
            return VerdictReason.NOT_REPEATABLE
        if not request.sends_once(self._header):
            return VerdictReason.NOT_REPEATABLE
        urls = {attempt.url for attempt in in_doubt}
        # Another upstream, or another URL of this one, knows nothing of the key.
        if any(attempt.upstream != self._upstream for attempt in in_doubt):
            return VerdictReason.NOT_REPEATABLE
        if not key.is_shared and (len(urls) > 1 or not urls <= self._urls):
            return VerdictReason.NOT_REPEATABLE
        first = min(attempt.started for attempt in in_doubt)
        within = first + self._lasts(key.remembered_for) - now
        if within < 0:
            return VerdictReason.KEY_EXPIRED
        return RepeatPermission("" if key.is_shared else urls.pop(), within)

    def _lasts(self, remembered_for: float) -> float:
        """Return for how many seconds after the first attempt another may begin, to arrive in time.

        Where nothing limits an attempt, its arrival is unknown: then half of the time is allowed.
        """
        time = self._attempt_time
        return remembered_for / 2 if time is None else remembered_for - time

    def may_go_elsewhere(self, request: Sendable, attempts: Iterable[Attempt]) -> bool:
        """Whether a request may be sent to another upstream after *attempts*.

        No key helps: the other upstream does not know the keys that this one remembers.
        """
        if self._is_repeatable_anywhere(request):
            return True
        return all(map(self._did_not_run, attempts))

    def _is_repeatable_anywhere(self, request: Sendable) -> bool:
        """Whether the request does no harm if it runs twice, without any help of a key."""
        return is_repeatable(request.method, self._unsafe, carries_honoured_key=False)


def longest_attempt(route: RouteSettings) -> float | None:
    """Return the seconds that one attempt of *route* may take to its response; None: no limit."""
    of_one = None if route.retry is None else route.retry.attempt_timeout
    limits = [limit for limit in (of_one, route.timeout) if limit is not None]
    return min(limits, default=None)
