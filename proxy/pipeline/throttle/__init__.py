"""The throttle: rate limits and concurrency limits that an attempt waits for before it is sent.

``chain.py`` takes an attempt through its route's throttle, then its upstream's, and returns a
permit to send. ``throttle.py`` is one configured throttle, with a limiter for all callers or one
for each; ``async_limiter.py`` is a limiter with its wait queue and its timer. The decisions
themselves are pure, in ``policy/throttle/``. This package may import ``upstream/``, ``core/``,
``policy/``, ``http/`` and ``pipeline/retry_waits.py``; stores are behind the ``Limiter`` port.
"""
