"""Prometheus metrics: series, their recorders, snapshots, aggregation over workers, exposition.

The numbers are in ``series.py``, fed by ``recorders.py``; ``snapshot.py`` has all of them,
``aggregate.py`` and ``totals.py`` add up those of several processes; ``collector.py`` names the
families, ``process.py`` those of the process itself, and ``exposition.py`` writes them as text. May
import ``core/`` and ``policy/``, and nothing of ``observe/`` above it: ``status.py`` reads a
snapshot, never the other way round.
"""
