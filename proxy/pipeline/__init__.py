"""The stages around the upstream call, and the order in which a request meets them.

A route's chain is built once, when the configuration is loaded. A route without
policies gets the bare upstream call: no wrapper, no buffering, no further await.

================  ===================================================================
``retry.py``      attempts until one is good (``run.py`` is one request's), and then
                  the fallback (``fallback.py``)
``forward.py``    one attempt, within the time for the whole exchange
================  ===================================================================

What they share: ``deadlines.py`` watches over exchanges and attempts, ``pauses.py``
over the waits between attempts, ``answers.py`` has the words for failures.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from proxy.core import Clock, Handler
from proxy.pipeline.deadlines import Deadlines
from proxy.pipeline.fallback import Fallback
from proxy.pipeline.forward import NO_LIMIT, Forward
from proxy.pipeline.pauses import Pauses
from proxy.pipeline.retry import Retry
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
    pauses: Pauses
    clock: Clock


def build(settings: RouteSettings, around: Surroundings) -> Handler:
    """What a route does with a request."""
    timeout = NO_LIMIT if settings.timeout is None else settings.timeout
    deadlines = around.deadlines(timeout)
    upstream = around.upstreams[settings.upstream]
    forward = Forward(upstream, deadlines)
    if settings.retry is None and settings.fallback is None:
        return forward.handle
    retry = settings.retry or RetrySettings(attempts=1)
    fallback = None
    if settings.fallback is not None:
        other = around.upstreams.get(settings.fallback.upstream)
        way_out = None if other is None else Forward(other, deadlines)
        fallback = Fallback(settings.fallback, upstream, way_out, around.pauses)
    limit = retry.attempt_timeout
    return Retry(
        forward,
        RetryRules(retry, upstream.settings),
        budget=around.budgets.get(settings.upstream) if retry.attempts > 1 else None,
        attempt_deadlines=None if limit is None else around.deadlines(limit),
        pauses=around.pauses,
        clock=around.clock,
        fallback=fallback,
    ).handle
