"""Prometheus metrics: the table of families, recorders, snapshots, aggregation, exposition.

``families.py`` is the table: a row per metric, with its name, text, labels, source and rule over
workers; ``family.py`` has what a row consists of. ``recorders.py`` counts into ``series.py``,
``process.py`` reads what the system knows of the process, and ``snapshot.py`` has all of it at one
moment. ``aggregate.py`` and ``totals.py`` add up those of several processes, ``difference.py`` says
what was counted between two moments, and ``exposition.py`` writes them as text. May import
``core/`` and ``policy/``, and nothing of ``observe/`` above it: ``status.py`` reads a snapshot,
never the other way round.
"""
