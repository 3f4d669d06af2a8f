"""The access log and the process's own log: JSON lines that never make the event loop wait.

``access_log.py`` writes a line per request, ``line_writer.py`` carries lines out of the process,
``process_log.py`` sets up ``logging`` for everything else.
May import ``core/``, ``policy/`` and ``http/``.
"""
