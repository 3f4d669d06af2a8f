"""Each worker's share of the limits in the file, so that all workers together keep to them.

Divided are ``limits.connections``, ``limits.replay_memory``, an upstream's ``max_connections``
and ``idle_connections``, and what a retry budget grants whatever the traffic (its ratio is one
of each worker's own traffic, so it adds up by itself). Each worker has its own breakers, and its
own queues and buckets of throttles, whose limits are in the store.
"""

from dataclasses import replace

from proxy.policy.settings import BudgetSettings, Settings, UpstreamSettings


def share_of(settings: Settings, worker: int, workers: int) -> Settings:
    """Return the settings for the worker number *worker*, from 0, of *workers*."""
    limits = settings.limits
    return replace(
        settings,
        # The supervisor waits before it tells the workers to drain.
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
        # Rounded up: a worker that may keep none would connect anew for each request.
        idle_connections=-(-upstream.idle_connections // workers),
        budget=None if upstream.budget is None else _budget(upstream.budget, workers),
    )


def _budget(budget: BudgetSettings, workers: int) -> BudgetSettings:
    return replace(budget, min_per_second=budget.min_per_second / workers)


def _part(whole: int, worker: int, workers: int) -> int:
    """Return one worker's part of *whole*: parts are as equal as can be, and add up to it."""
    return whole // workers + (worker < whole % workers)
