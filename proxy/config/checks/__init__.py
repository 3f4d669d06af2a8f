"""Checks that involve several values, each of which is valid by itself: one module per section.

A check reads effective values (``read/effective``) and reports faults and warnings to the
diagnostics; it changes nothing. May import ``read/``, ``values/``, ``source/``,
``diagnostics/`` and ``policy/``.
"""
