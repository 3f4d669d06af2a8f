"""Sockets below HTTP: listening, accepting, TLS contexts, write coalescing, unacknowledged bytes.

Stands beside the other packages: imports ``policy/settings`` and nothing else of ours, and knows
nothing of HTTP, requests or routes. Server, upstream, stores, admin and runtime may import it.
"""
