"""The stages around the upstream call, and the order in which a request meets them.

A route's chain is built once, when the configuration is loaded. A route without
policies gets the bare upstream call: no wrapper, no buffering, no further await.

================  ===================================================================
``retry.py``      attempts until one is good (``run.py`` is one request's), and then
                  the fallback (``fallback.py``)
``forward.py``    one attempt, within the time for the whole exchange; where there are
                  throttles, when its turn has come (``entrance.py``)
================  ===================================================================

A throttle (``throttle.py``) has a gate (``gate.py``) for all callers, or one for each.

What they share: ``deadlines.py`` watches over exchanges and attempts, ``pauses.py``
over the waits between attempts, ``answers.py`` has the words for failures.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from proxy.core import Clock, Handler
from proxy.pipeline.deadlines import Deadlines
from proxy.pipeline.entrance import Entrance
from proxy.pipeline.fallback import Fallback
from proxy.pipeline.forward import NO_LIMIT, Forward
from proxy.pipeline.pauses import Pauses
from proxy.pipeline.retry import Retry
from proxy.pipeline.throttle import Throttle
from proxy.policy.budget import Budget
from proxy.policy.settings import RetrySettings, RouteSettings
from proxy.policy.verdict import RetryRules
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
    timeout = NO_LIMIT if settings.timeout is None else settings.timeout
    deadlines = around.deadlines(timeout)
    upstream = around.upstreams[settings.upstream]
    entrance = around.entrance(settings.name, upstream)
    if settings.retry is None and settings.fallback is None:
        return Forward(upstream, deadlines, entrance=entrance).handle
    retry = settings.retry or RetrySettings(attempts=1)
    limit = retry.attempt_timeout
    attempt_deadlines = None if limit is None else around.deadlines(limit)
    budget = around.budgets.get(settings.upstream) if retry.attempts > 1 else None
    fallback = None
    if settings.fallback is not None:
        other = around.upstreams.get(settings.fallback.upstream)
        way_out = None
        if other is not None:
            way_out = Forward(
                other,
                deadlines,
                entrance=around.entrance(settings.name, other),
                attempt_deadlines=attempt_deadlines,
            )
        fallback = Fallback(settings.fallback, upstream, way_out, around.pauses)
    return Retry(
        Forward(
            upstream,
            deadlines,
            entrance=entrance,
            attempt_deadlines=attempt_deadlines,
            budget=budget,
        ),
        RetryRules(retry, upstream.settings),
        budget=budget,
        pauses=around.pauses,
        clock=around.clock,
        fallback=fallback,
    ).handle
