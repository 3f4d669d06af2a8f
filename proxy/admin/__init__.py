"""The admin listener: for operators, probes and Prometheus, never for callers.

The package shares nothing with the proxied side but the process. What it can show and do
comes from the application through ``operations.py``, so it knows neither
configuration nor routes.

=======================  =======  ===============================================
``GET /healthz``         open     the process answers
``GET /readyz``          open     it takes requests; 503 with the reason if not
``GET /metrics``         open     for Prometheus, text or OpenMetrics
``GET /status``          token    the same numbers for a person, as JSON
``GET /attempts``        token    one request, attempt by attempt
``GET /config``          token    the configuration in force, secrets masked
``POST /-/reload``       token    read the configuration again
``GET /keys``            token    a page of the idempotency keys that are held
``GET /keys/RECORD``     token    what is known of an idempotency key
``DELETE /keys/RECORD``  token    release it; ``?force=true`` from a running request
=======================  =======  ===============================================

Dead letters (``dead_letters.py``), all with the token:

=================================  ============================================
``GET /dead-letters``              a page of them
``DELETE /dead-letters``           drop those of a route, or all
``GET /dead-letters/export``       all of all, as JSON lines
``GET /dead-letters/ID``           all of one
``DELETE /dead-letters/ID``        drop one
``POST /dead-letters/ID/replay``   send one again
=================================  ============================================

``access.py`` decides which requests are accepted, ``responses.py`` how responses look, and
``site.py`` puts both together. ``process.py``, ``keys.py`` and ``dead_letters.py`` declare each
operation once (``declaration.py``): its endpoint, its handler, what it asks of the process, and how
a supervisor has its workers answer. ``operations.py`` is the sum of these. May import ``core/``,
``policy/``, ``http/`` and ``net/``.
"""
