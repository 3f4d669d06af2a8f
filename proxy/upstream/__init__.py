"""The upstream client: load balancing, connection pools, circuit breakers, one attempt.

=====================  ===========================================================================
``upstream.py``        one entry of ``upstreams``: an attempt at one of its addresses
``load_balancing.py``  which address to take (round robin, breakers), and a connection to it
``resolver.py``        names to addresses, looked up again while they are in use
``pool.py``            the connection pool of one address
``uploads.py``         request bodies that make way when a pool is exhausted
``connection.py``      one connection: bytes out, a checked response in
``call.py``            one request on one connection, relayed, and the record of how it ended
``breakers.py``        the circuit breakers of one upstream's addresses
=====================  ===========================================================================

An attempt always knows two things that decide whether it may be repeated: was a
byte sent, and did a byte come back. That is why this is not an HTTP client
library: those hide both, and some resend on their own.

This package may import ``net/``, ``core/``, ``policy/`` and ``http/``; nothing else in the proxy
talks to upstreams. Others use ``Upstream`` and ``Breakers``.
"""
