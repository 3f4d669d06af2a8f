"""What of the limits in the file each worker may use, so that all of them keep to it.

Divided are ``limits.connections``, ``limits.replay_memory``, an upstream's ``max_connections``
and ``idle_connections``, and what a retry budget grants whatever the traffic (its ratio is one
of each worker's own traffic, so it adds up by itself). Breakers are each worker's own, and so
are the lines and buckets of throttles, whose limits are in the store.
"""

from dataclasses import replace

from proxy.policy.settings import BudgetSettings, Settings, UpstreamSettings


def share_of(settings: Settings, worker: int, workers: int) -> Settings:
    """The settings for the worker number *worker*, from 0, of *workers*."""
    limits = settings.limits
    return replace(
        settings,
        # The supervisor waits before it tells anybody to drain.
        drain_delay=0.0,
        limits=replace(
            limits,
            connections=_part(limits.connections, worker, workers),
            replay_memory=_part(limits.replay_memory, worker, workers),
        ),
        upstreams=tuple(_upstream(upstream, worker, workers) for upstream in settings.upstreams),
    )


def _upstream(upstream: UpstreamSettings, worker: int, workers: int) -> UpstreamSettings:
    return replace(
        upstream,
        max_connections=_part(upstream.max_connections, worker, workers),
        # Rounded up: who may keep none connects anew for each request.
        idle_connections=-(-upstream.idle_connections // workers),
        budget=None if upstream.budget is None else _budget(upstream.budget, workers),
    )


def _budget(budget: BudgetSettings, workers: int) -> BudgetSettings:
    return replace(budget, min_per_second=budget.min_per_second / workers)


def _part(whole: int, worker: int, workers: int) -> int:
    """As equal as can be; all parts together are the *whole*."""
    return whole // workers + (worker < whole % workers)
