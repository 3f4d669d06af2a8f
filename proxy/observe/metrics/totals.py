"""What all workers counted, those that are gone included: no counter ever goes back.

A worker tells its numbers from its own start on. The last ones that are known of it stand
for it as long as it says nothing new, and stay in the sum when it has ended.
"""

from collections.abc import Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry

from proxy.observe.metrics.aggregate import START, aggregate, gone, kept_of, nothing
from proxy.observe.metrics.collector import SeriesCollector
from proxy.observe.metrics.exposition import expose
from proxy.observe.metrics.process import ProcessMetrics
from proxy.observe.metrics.process_snapshot import ProcessSnapshot, whole_of


class Totals:
    """The numbers of all workers, and of the supervisor itself."""

    def __init__(self, version: str, parser: str, loaded_at: float) -> None:
        """*loaded_at* is when (seconds since the epoch) the configuration was first read."""
        self._gone = nothing(version, parser, loaded_at)
        self._own = ProcessMetrics()
        self._last_reload = loaded_at
        self._reloads = {"success": 0, "failure": 0}
        self.restarts = 0
        """How often a worker had to be replaced."""

    def bury(self, last: ProcessSnapshot) -> None:
        """A worker has ended, and this is the last that it told."""
        self._gone = aggregate([self._gone, gone(last.collected)])

    def reload_succeeded(self, at: float, living: Sequence[ProcessSnapshot]) -> None:
        """A new configuration is in force since *at*; *living* were read after that."""
        self._reloads["success"] += 1
        self._last_reload = at
        if living:
            present = aggregate([reading.collected for reading in living])
            self._gone = kept_of(self._gone, present)

    def reload_failed(self) -> None:
        """A new configuration was refused; the old one stays."""
        self._reloads["failure"] += 1

    def of(self, living: Sequence[ProcessSnapshot]) -> ProcessSnapshot:
        """The sum of the *living*, one reading each, and of all that are gone."""
        past = self._gone
        if living:
            whole = whole_of(living)
            collected = aggregate([whole.collected, kept_of(past, whole.collected)])
        else:
            whole, collected = ProcessSnapshot(past, 0, 0, 0, {}), past
        counted = replace(
            collected,
            reloads=dict(self._reloads),
            last_reload=self._last_reload,
            workers=len(living),
            worker_restarts=self.restarts,
        )
        return replace(whole, collected=counted)

    async def exposition(self, reading: ProcessSnapshot, accept: str) -> tuple[bytes, str]:
        """What a scraper gets, and its content type."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(SeriesCollector(reading.collected))
        own, theirs = self._own.values(), reading.collected.process()
        summed = {name: value + theirs.get(name, 0.0) for name, value in own.items()}
        started = {START: own[START]} if START in own else {}
        registry.register(ProcessMetrics(lambda: summed | started))
        return await expose(registry, accept)
