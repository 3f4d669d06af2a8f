"""Holdfast: a sidecar proxy that makes a flaky HTTP API safe to call.

The life of a request, and where to read it:

1.  ``server/connection.py`` takes the bytes. aiohttp parses them; what it lets
    through and others might read differently is refused. A head must be complete
    in time.
2.  ``server/serve.py`` handles one request from here to its last byte.
3.  ``server/admission.py`` reads the head, finds the route (first match wins,
    ``policy/routing/match.py``) and applies its limits.
4.  ``pipeline/__init__.py`` shows the stages of a route in their order:
    ``pipeline/idempotency/stage.py`` lets what carries the same key run once and gives
    its duplicates the result (``policy/idempotency/record.py`` has the rules of a key),
    ``pipeline/retry.py`` makes attempts until one is good enough or none may
    follow (``policy/repeatable.py`` has the one rule of what may have run and
    may be sent again), ``pipeline/single_attempt.py`` is all that a route without policies has.
    Where there are throttles each attempt waits for its turn
    (``pipeline/throttle/chain.py``; who is next says ``policy/throttle/wait_queue.py``).
5.  ``upstream/upstream.py`` picks an address, takes or makes a connection and
    sends. The bytes that go out are made anew from what was read.
6.  ``upstream/connection.py`` reads the response. When its head is complete it
    is decided at once, in that very callback, what becomes of it: set aside
    because another attempt follows (``policy/retry/verdict.py``), or relayed. Body
    pieces go on to the client as they came (``server/exchange.py``), and a
    client that reads slowly slows its upstream down.
7.  What failed for good may be kept on disk before its client hears of it
    (``pipeline/dead_letters.py``), for a person to send again (``replays.py``).
8.  Every attempt is recorded on its own with the one word that says how it ended
    (``policy/attempt.py``) and the one that says why it was the last, or was
    not (``policy/reasons.py``); an answer of our own has its reason
    (``http/refusal.py``). Metrics, log and tests use the same words.

``app.py`` wires all of it, reloads it and drains it; ``estate.py`` builds what
serves one configuration. With several workers each is an app in a process of its
own, and gets its connections from a supervisor (``workers/``). ``policy/`` decides
and touches nothing; only ``server/`` talks to clients, only ``upstream/`` to
upstreams, only ``stores/`` to files and to the store, which instances may share.
``tests/test_layering.py`` keeps it so.
"""

__version__ = "0.1.0"
