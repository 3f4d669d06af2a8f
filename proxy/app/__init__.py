"""One process that serves: its life, and what its operator may do.

``lifecycle.py`` has :class:`App`: it opens the store and the listeners, puts a configuration in
force (hot reload) and ends gracefully (drain). ``operations.py`` is what the admin listener may
see and do of a running app. The package wires the others and decides nothing about a request; it
may import every package but ``runtime/``, ``cli/``, ``explain/``, ``simulation/`` and ``demo/``.
"""
