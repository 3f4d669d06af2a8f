"""Sources: from YAML text to a tree of nodes, each with its position.

``parse`` makes the nodes, ``interpolation`` puts ``${…}`` into scalars, ``files`` reads the
files that a configuration names. No key is known here. May import ``diagnostics/``.
"""
