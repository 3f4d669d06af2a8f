"""Faults and warnings: how they are collected, positioned and worded.

``diagnostics`` collects them into a report, ``position`` says where in which file; the others
help to word a suggestion: ``nearest`` (spelling), ``other_products`` (synonyms of keys),
``units`` and ``rounding`` (durations and sizes as people write them). A leaf of ``config/``:
imports nothing of it but itself, and ``http/``.
"""
