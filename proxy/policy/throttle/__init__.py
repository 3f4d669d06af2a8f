"""Rate limiting without I/O: wait queue, limiters (GCRA, sliding window), pacing, caller keys.

A limiter reserves a permit and returns the wait; it never sleeps, and time is an argument. The
waiting itself, with timers and futures, is ``pipeline/throttle``. The modules here import each
other, ``policy.settings``, ``policy.fair_share`` and ``http``, and nothing else of the proxy.
"""
