"""Deliveries: which requests are handed off, when they are sent, and how they end.

``acceptance.py`` decides what is handed off, ``outcome.py`` what follows an attempt,
``schedule.py`` when, ``line.py`` how many go to an upstream at once and what tests one that is
down, ``key_rules.py`` what it means for the key of its request, ``state.py`` every change of state,
``words.py`` the closed sets.
Imports ``policy/settings``, ``policy/retry`` and the flat modules of ``policy/``.
"""
