"""Holdfast: a sidecar proxy that makes a flaky HTTP API safe to call.

The life of a request, and where to read it:

1.  ``server/connection.py`` is a client's connection. aiohttp parses its bytes
    (``server/aiohttp_adapter/protocol.py``); what it lets through and others might
    read differently is refused. A head must be complete in time.
2.  ``server/serve.py`` handles one request from here to its last byte.
3.  ``server/admission.py`` reads the head, finds the route (first match wins,
    ``policy/routing/match.py``) and applies its limits.
4.  ``pipeline/__init__.py`` builds the stages of a route and shows their order:
    ``pipeline/idempotency/stage.py`` lets requests with the same key run once and
    gives duplicates the result (``policy/idempotency/record.py`` has the states of a
    key), ``pipeline/retry_session.py`` makes attempts until one is good or none may
    follow (``policy/repeatable.py`` has the one rule of what may have run and may be
    sent again), ``pipeline/single_attempt.py`` is all that a route without policies
    has. Where there are throttles each attempt needs a send permit
    (``pipeline/throttle/chain.py``; the rate limiter and its wait queue are in
    ``policy/throttle/``).
5.  ``upstream/upstream.py`` makes one attempt: it picks an address
    (``upstream/load_balancing.py``), takes or makes a connection (``upstream/pool.py``) and
    sends. The bytes that go out are made anew from what was read.
6.  ``upstream/connection.py`` reads the response. When its head is complete it is
    decided at once, in that very callback, what becomes of it: set aside because
    another attempt follows (``policy/retry/verdict.py``), or relayed. Body pieces go
    on to the client as they came (``server/response_writer.py``), and a client that
    reads slowly slows its upstream down.
7.  A request that failed for good may be kept on disk before its client is answered
    (``pipeline/dead_letters.py``), for a person to send again (``replay/service.py``).
8.  Every attempt is recorded on its own with the one word that says how it ended
    (``policy/attempt.py``) and the one that says why it was the last, or was not
    (``policy/reasons.py``); an answer of our own has its reason (``http/refusal.py``).
    Metrics, log and tests use the same words.

``app/lifecycle.py`` wires all of it, reloads it and drains it; ``pipeline/generation.py``
builds what serves one configuration. With several workers each is an app in a process
of its own, and gets its connections from a supervisor (``runtime/workers/``).
``policy/`` and ``http/`` decide and touch nothing; only ``server/`` talks to clients,
only ``upstream/`` to upstreams, and only ``stores/`` keeps state in files or in Redis.
``tests/test_layering.py`` keeps it so; ``docs/architecture.md`` tells more.
"""

__version__ = "0.1.0"

HOME = "https://holdfast.example"
"""Where the project lives. Every public address of its own begins with it."""
