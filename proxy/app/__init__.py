"""One process that serves: its life, what its operator may do, and what serves a configuration.

``lifecycle.py`` has :class:`App`: it opens the store and the listeners, puts a configuration in
force (hot reload) and ends gracefully (drain). ``operations.py`` is what the admin listener may
see and do of a running app. ``generation.py`` builds all that serves one configuration and
carries over what a reload leaves unchanged. The package wires the others and decides nothing about
a request; it may import every package but ``runtime/``, ``cli/`` and ``demo/``.
"""
