"""``python -m bench.hand_off``: what accepting and delivering costs, beside what many write.

The anchor is an aiohttp handler that puts method, path, header fields and body into huey's SQLite
queue, each with an fsync, and answers 202; one huey worker sends them. Ids are counted at the
upstream: a phase in which accepted and delivered are not the same is void.
"""
