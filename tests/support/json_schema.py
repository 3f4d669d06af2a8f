"""Validators of JSON Schema, without the grammars of formats that no schema here is checked for.

When it is imported, jsonschema builds 38 grammars of internationalized addresses, if their package
is there, as it is beside check-jsonschema: 0.7 s of CPU in each of the processes that run tests.
"""

import sys

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # so it cannot be imported

from jsonschema import Draft7Validator, Draft202012Validator, ValidationError  # noqa: E402 - as said above

__all__ = ["Draft7Validator", "Draft202012Validator", "ValidationError"]
