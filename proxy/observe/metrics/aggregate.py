"""Metrics aggregation: the snapshots of several worker processes as that of one.

Everything is merged in the form in which it is counted, by the rule of its source
(``families.py``), so that quantiles, failures and labels are made from the sum, by the same code as
for one process.
"""

from collections.abc import Sequence
from typing import Any

from proxy.observe.metrics.families import SOURCES
from proxy.observe.metrics.snapshot import MetricSource, ProcessSnapshot


def aggregate(
    parts: Sequence[ProcessSnapshot], sources: Sequence[MetricSource[Any]] = SOURCES
) -> ProcessSnapshot:
    """Merge what all *parts* counted and what goes on in them, as if they were one process.

    Only *sources* are merged, and in the result.
    """
    if not parts:
        return ProcessSnapshot({})
    return ProcessSnapshot(
        {source.name: source.merge([part[source] for part in parts]) for source in sources}
    )


def after_exit(last: ProcessSnapshot) -> ProcessSnapshot:
    """Keep of an ended process's last snapshot what counts on: all that only grows."""
    return ProcessSnapshot({source.name: source.after_exit(last[source]) for source in SOURCES})


def drop_absent(past: ProcessSnapshot, present: ProcessSnapshot) -> ProcessSnapshot:
    """Drop the series of *past* that *present* does not have: a reload has dropped those."""
    return ProcessSnapshot(
        {source.name: source.drop_absent(past[source], present[source]) for source in SOURCES}
    )
