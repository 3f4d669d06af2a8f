"""Commands of ``holdfast``: one module each, imported when the command is used.

The docstring of a command is its help text. May import all of ``cli/``, and inside the
command's function the packages that it needs.
"""
