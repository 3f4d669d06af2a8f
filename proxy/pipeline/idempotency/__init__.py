"""The idempotency stage: a request with a key runs once, and its duplicates get the result.

``stage.py`` claims the key in the store, or waits for its owner; ``key_owner.py`` runs the request
that owns a key, with ``capture.py`` keeping its response; ``in_flight.py`` has the keys of this
process whose owners run, and the heartbeat of their leases. The rules are pure, in
``policy/idempotency/``. This package may import ``stores/`` (the ports only), ``core/``,
``policy/`` and ``http/``.
"""
