"""The simulation behind ``holdfast explain``: what would happen to a request, and why.

``timeline`` plays one course of chance with the real rules, ``forecast`` the extremes of chance,
``subject`` is the request with its route. The only part of ``policy/`` that imports the others
(retry, throttle, idempotency, dead letters); only the command line imports it.
"""
