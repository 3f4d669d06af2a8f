"""Value types: one class for each type of scalar in the file.

A value type reads a scalar, writes the value back as a user would, masks it, and describes
itself to editors in JSON Schema. The sections in ``schema/`` say which key takes which type.
May import ``diagnostics/``, ``source/nodes``, ``policy/settings/`` and ``http/``.
"""
