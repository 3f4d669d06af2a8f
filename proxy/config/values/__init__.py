"""What a single value can be: one class for each kind of value in the file.

A kind reads a scalar, writes the value back as a user would, and describes
itself to editors in JSON Schema. The models of :mod:`proxy.config.schema.file` say
which key takes which kind.
"""
