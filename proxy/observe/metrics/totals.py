"""What all workers counted, those that have ended included: no counter ever goes back.

A worker reports its numbers from its own start on. Its last report counts until the next one
comes, and stays in the sum when the worker has ended.
"""

from collections.abc import Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry

from proxy.observe.metrics.aggregate import (
    START,
    after_exit,
    aggregate,
    aggregate_processes,
    drop_absent,
    empty,
)
from proxy.observe.metrics.collector import SeriesCollector
from proxy.observe.metrics.exposition import expose
from proxy.observe.metrics.process import ProcessMetrics
from proxy.observe.metrics.snapshot import ProcessSnapshot


class Totals:
    """The numbers of all workers, and of the supervisor itself."""

    def __init__(self, version: str, parser: str, loaded_at: float) -> None:
        """*loaded_at* is when (seconds since the epoch) the configuration was first read."""
        self._ended = empty(version, parser, loaded_at)
        self._own = ProcessMetrics()
        self._last_reload = loaded_at
        self._reloads = {"success": 0, "failure": 0}
        self.restarts = 0
        """How often a worker had to be replaced."""

    def add_ended(self, last: ProcessSnapshot) -> None:
        """Keep in the sum what a worker that has ended reported last."""
        self._ended = aggregate([self._ended, after_exit(last.metrics)])

    def reload_succeeded(self, at: float, live: Sequence[ProcessSnapshot]) -> None:
        """Count a reload that is in force since *at*; *live* are snapshots made after it."""
        self._reloads["success"] += 1
        self._last_reload = at
        if live:
            present = aggregate([worker.metrics for worker in live])
            self._ended = drop_absent(self._ended, present)

    def reload_failed(self) -> None:
        """Count a reload that was refused; the old configuration stays."""
        self._reloads["failure"] += 1

    def total(self, live: Sequence[ProcessSnapshot]) -> ProcessSnapshot:
        """Add up the snapshots of the *live* workers and what ended ones counted."""
        past = self._ended
        if live:
            whole = aggregate_processes(live)
            metrics = aggregate([whole.metrics, drop_absent(past, whole.metrics)])
        else:
            whole, metrics = ProcessSnapshot(past, 0, 0, 0, {}), past
        counted = replace(
            metrics,
            reloads=dict(self._reloads),
            last_reload=self._last_reload,
            workers=len(live),
            worker_restarts=self.restarts,
        )
        return replace(whole, metrics=counted)

    async def exposition(self, total: ProcessSnapshot, accept: str) -> tuple[bytes, str]:
        """Return what a scraper gets for the *total*, and its content type."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(SeriesCollector(total.metrics))
        own, theirs = self._own.values(), total.metrics.process()
        summed = {name: value + theirs.get(name, 0.0) for name, value in own.items()}
        started = {START: own[START]} if START in own else {}
        registry.register(ProcessMetrics(lambda: summed | started))
        return await expose(registry, accept)
