"""Decisions as plain functions of plain values: retry, rate limit, breaker, routing, idempotency.

Nothing in this package reads a clock, draws a random number, opens a socket or
logs: time and chance are arguments, and a function returns what it decides,
with the reason. The package imports ``http/``, itself and the standard library, and
of that neither asyncio nor anything that touches the outside.
``tests/test_layering.py`` checks it.

Flat modules are used by several parts: ``attempt`` (the record of one attempt), ``reasons``,
``window`` (counts over time), ``repeatable`` (what may be sent twice), ``failure_category``,
``failure_answers``, ``caller_fields``, ``fair_share``, ``body_rate``, ``breaker`` and
``dead_letter``. The parts are ``settings/``, ``routing/``, ``retry/``, ``throttle/``,
``idempotency/`` and ``delivery/``; each imports ``settings/``, the flat modules that it needs and
``http/``, and ``delivery/`` also ``retry/``. Of the flat modules ``caller_fields`` uses
``throttle/caller_key``, and ``dead_letter`` uses ``retry/verdict``.
"""
