"""Prometheus metrics: series, their recorders, snapshots, aggregation over workers, exposition.

The numbers are in ``series.py``, fed by ``recorders.py``; ``snapshot.py`` has all of them,
``aggregate.py`` and ``totals.py`` add up those of several processes; ``collector.py`` names the
families and ``exposition.py`` writes them as text. Imports nothing of ``observe/`` above it:
``status.py`` reads a snapshot, never the other way round.
"""
