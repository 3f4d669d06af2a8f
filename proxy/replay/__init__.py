"""Replay: dead letters sent again on an operator's request, as exchanges without a client.

``service.py`` marks a dead letter, sends it through the pipeline of its route and records the
result; ``exchange.py`` is the exchange that stands in for the client. This package may import
``pipeline/`` (the records of attempts), ``stores/``, ``core/``, ``policy/`` and ``http/``.
"""
