"""Deliveries: which requests are handed off, when they are sent, and how they end.

``acceptance.py`` decides what is handed off, ``outcome.py`` what follows an attempt,
``schedule.py`` when, ``line.py`` how many go to an upstream at once and what tests one that is
down, ``retry_rules.py`` who may have a delivery sent again; ``words.py`` has the closed sets.
Imports ``policy/settings``, ``policy/retry`` and the flat modules of ``policy/``.
"""
