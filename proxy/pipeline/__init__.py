"""The stages around the upstream call, and the order in which a request meets them.

A route's chain is built once, when the configuration is loaded. A route without
policies gets the bare upstream call: no wrapper, no buffering, no further await.

==================  =================================================================
``idempotency.py``  what carries the same key runs once (``ownership.py`` is the one
                    that runs), and duplicates get its result
``dead_letters.py`` what failed for good is kept on disk before its client hears of it
``retry.py``        attempts until one is good (``run.py`` is one request's), and then
                    the fallback (``fallback.py``)
``forward.py``      one attempt, within the time for the whole exchange; where there are
                    throttles, when its turn has come (``entrance.py``)
==================  =================================================================

A throttle (``throttle.py``) has a gate (``gate.py``) for all callers, or one for each.
What owns a key is a flight (``flights.py``), and its response passes a keeper
(``keeper.py``) on its way to the client.

What they share: ``deadlines.py`` watches over exchanges and attempts, ``pauses.py``
over the waits between attempts, ``answers.py`` has the words for failures.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from proxy.core.clock import Clock
from proxy.core.ports import DeadLetterSink
from proxy.core.route import Handler
from proxy.pipeline.dead_letters import DeadLetters, KeptRefusals, LetterWriter
from proxy.pipeline.deadlines import Deadlines
from proxy.pipeline.entrance import Entrance
from proxy.pipeline.fallback import Fallback
from proxy.pipeline.flights import Flights
from proxy.pipeline.forward import NO_LIMIT, Forward
from proxy.pipeline.idempotency import Idempotency
from proxy.pipeline.pauses import Pauses
from proxy.pipeline.retry import Retry
from proxy.pipeline.throttle import Throttle
from proxy.policy.repeatable import RepeatRules, longest_attempt
from proxy.policy.retry.budget import Budget
from proxy.policy.retry.verdict import RetryRules
from proxy.policy.settings import RetrySettings, RouteSettings
from proxy.upstream.upstream import Upstream


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the routes share."""

    upstreams: Mapping[str, Upstream]
    budgets: Mapping[str, Budget]
    """By upstream; those without a budget are left out."""
    deadlines: Callable[[float], Deadlines]
    """The watch over all that last at most that many seconds."""
    throttles: Mapping[tuple[str, str], Throttle]
    """By scope and name."""
    keyed: Collection[tuple[str, str]]
    """Those of them that tell callers apart."""
    flights: Flights
    """Requests that own their idempotency keys."""
    letters: DeadLetterSink
    """Where what failed for good is kept."""
    pauses: Pauses
    clock: Clock

    def entrance(self, route: str, upstream: Upstream) -> Entrance | None:
        """What an attempt of *route* has to pass on its way to *upstream*; None if nothing."""
        labels = (("route", route), ("upstream", upstream.settings.name))
        throttles = [self.throttles[label] for label in labels if label in self.throttles]
        if not throttles:
            return None
        keyed = any(label in self.keyed for label in labels)
        return Entrance(throttles, upstream, self.pauses, self.clock, keyed=keyed)


def build(settings: RouteSettings, around: Surroundings) -> Handler:
    """What a route does with a request."""
    upstream = around.upstreams[settings.upstream]
    forward = _forward(settings, upstream, around)
    handle: Handler = forward.handle
    letters = None
    if settings.dead_letter is not None:
        letters = LetterWriter(
            settings,
            upstream.settings,
            around.letters,
            around.clock,
            around.flights.known_scopes,
        )
    if settings.retry is not None or settings.fallback is not None:
        handle = _retry(settings, forward, around, letters).handle
    if letters is not None:
        handle = DeadLetters(handle, letters).handle
    if settings.idempotency is not None:
        handle = Idempotency(
            settings,
            handle,
            around.flights,
            refused={up.settings.name: up.settings.refused for up in _asked(settings, around)},
            covers_host=_sees_host(settings, around),
            time_left=forward.time_left,
            clock=around.clock,
        ).handle
    if letters is not None and letters.keeps_refusals:
        handle = KeptRefusals(handle, letters).handle
    return handle


def _asked(settings: RouteSettings, around: Surroundings) -> Iterator[Upstream]:
    """The upstreams that a request of this route may be sent to."""
    yield around.upstreams[settings.upstream]
    if settings.fallback is not None and settings.fallback.upstream:
        yield around.upstreams[settings.fallback.upstream]


def _forward(settings: RouteSettings, upstream: Upstream, around: Surroundings) -> Forward:
    """One attempt at *upstream*."""
    retry = settings.retry
    limit = None if retry is None else retry.attempt_timeout
    return Forward(
        upstream,
        around.deadlines(NO_LIMIT if settings.timeout is None else settings.timeout),
        RepeatRules(
            upstream.settings,
            "auto" if retry is None else retry.unsafe,
            longest_attempt(settings),
            [other.settings for other in _asked(settings, around)],
        ),
        around.clock,
        entrance=around.entrance(settings.name, upstream),
        attempt_deadlines=None if limit is None else around.deadlines(limit),
        budget=_budget(settings, upstream, around),
    )


def _retry(
    settings: RouteSettings, forward: Forward, around: Surroundings, letters: LetterWriter | None
) -> Retry:
    """Attempts until one is good, and what follows if none is."""
    upstream = forward.upstream
    fallback = None
    if settings.fallback is not None:
        other = around.upstreams.get(settings.fallback.upstream)
        way_out = None if other is None else _forward(settings, other, around)
        fallback = Fallback(settings.fallback, forward, way_out, around.pauses)
    return Retry(
        forward,
        RetryRules(settings.retry or RetrySettings(attempts=1), upstream.settings),
        budget=_budget(settings, upstream, around),
        pauses=around.pauses,
        clock=around.clock,
        fallback=fallback,
        letters=letters,
    )


def _sees_host(settings: RouteSettings, around: Surroundings) -> bool:
    """Whether an upstream that the route sends to gets the client's own host."""
    return any(up.settings.preserve_host for up in _asked(settings, around))


def _budget(settings: RouteSettings, upstream: Upstream, around: Surroundings) -> Budget | None:
    """What retries of this route are charged to, and first attempts add to."""
    retries = settings.retry is not None and settings.retry.attempts > 1
    # The way out is no retry, whatever its upstream's budget.
    is_own = upstream.settings.name == settings.upstream
    return around.budgets.get(settings.upstream) if retries and is_own else None
