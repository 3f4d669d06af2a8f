"""What all rooms share: clock, ids, a route, one request's exchange, the ports between rooms.

Imports ``policy/`` and ``http/`` and nothing else of ours.
"""
