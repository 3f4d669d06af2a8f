"""What the packages above share: clock, ids, a route, a client, a request's exchange, the ports.

``attempt_json.py`` writes an attempt for the log, ``/attempts`` and dead letters alike.
The ports (``ports.py``, ``recorders.py``) are protocols by which one package uses another without
importing it: server, pipeline, upstream, stores and observe meet here. Imports ``policy/`` and
``http/`` and nothing else of ours; opens no socket and keeps no state between requests, apart
from the counters of ``ids.py`` and the cached line of ``date_header.py``.
"""
