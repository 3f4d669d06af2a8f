"""What all workers counted, those that have ended included: no counter ever goes back.

A worker reports its numbers from its own start on. Its last report counts until the next one
comes, and stays in the sum when the worker has ended.
"""

from collections.abc import Sequence

from proxy.observe.metrics.aggregate import after_exit, aggregate, drop_absent
from proxy.observe.metrics.families import COUNTERS
from proxy.observe.metrics.recorders import Metrics
from proxy.observe.metrics.snapshot import ProcessSnapshot


class Totals:
    """The numbers of all workers, and of the supervisor itself."""

    def __init__(self, own: Metrics) -> None:
        """*own* are the supervisor's: reloads, replaced workers, and its process."""
        self.own = own
        self._ended = ProcessSnapshot({})

    def add_ended(self, last: ProcessSnapshot) -> None:
        """Keep in the sum what a worker that has ended reported last."""
        self._ended = aggregate([self._ended, after_exit(last)])

    def reload_succeeded(self, at: float, live: Sequence[ProcessSnapshot]) -> None:
        """Count a reload that is in force since *at*; *live* are snapshots made after it."""
        self.own.reload_succeeded(at)
        self._ended = self._ended_beside(live)

    def total(self, live: Sequence[ProcessSnapshot]) -> ProcessSnapshot:
        """Add up the snapshots of the *live* workers and what ended ones counted."""
        return aggregate([self.own.snapshot(), *live, self._ended_beside(live)])

    def counted(self, live: Sequence[ProcessSnapshot]) -> ProcessSnapshot:
        """Add up what only grows, of the *live* workers and of those that have ended."""
        return aggregate([self.own.counted(), *live, self._ended_beside(live)], COUNTERS)

    def _ended_beside(self, live: Sequence[ProcessSnapshot]) -> ProcessSnapshot:
        """Return what ended workers counted of all that *live* ones still serve."""
        return drop_absent(self._ended, aggregate(live)) if live else self._ended
