"""Simulations: the stages of a configuration in virtual time, over upstreams in memory.

``proxy.py`` builds the real pipelines, upstreams, throttles and breakers of a configuration without
a listener, a store of its own or a disk; ``scripted_peer.py`` is the upstream at the other end,
which does as it is told. Requests have no client (``core/clientless.py``). Runs on
:class:`~proxy.core.virtual_time.VirtualLoop`. May import ``pipeline/``, ``upstream/``, ``stores/``
(memory), ``core/``, ``net/``, ``policy/`` and ``http/``; nothing that serves requests imports it.
"""
