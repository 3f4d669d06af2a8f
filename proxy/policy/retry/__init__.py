"""Retry decisions: the verdict after an attempt, back-off, retry hints, the retry budget.

``verdict.py`` brings the others together. Imports ``policy/settings``, the flat modules of
``policy/`` (attempt, reasons, repeatable, window) and ``http/`` (dates, durations); neither the
throttle nor the breaker, whose answers are passed in.
"""
