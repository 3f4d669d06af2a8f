"""Interpolation of ``${…}``: variables and files put into a scalar after parsing.

=================== ======================================================
``${NAME}``         the variable; a fault if it is not set
``${NAME:-text}``   *text* if the variable is not set or empty
``${NAME:?text}``   a fault that says *text* if it is not set or empty
``${file:PATH}``    the content of the file, without one newline at its end
``$$``              a plain ``$``
=================== ======================================================

The result is text and never YAML, so no value can add a key. The text may be a
secret: the scalar remembers its references, and messages show those instead.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.position import Source
from proxy.config.source.files import read_file
from proxy.config.source.nodes import Scalar

_MAX_FILE_BYTES = 64 * 1024

_REFERENCE = re.compile(
    r"""
    \$\$                                     # a plain $
    | \$\{ file: (?P<file> [^{}]+ ) \}
    | \$\{ (?P<name> [A-Za-z_][A-Za-z0-9_]* ) (?: :(?P<rule>[-?]) (?P<text> [^{}]*) )? \}
    | \$\{ (?P<broken>)                      # anything else that looks like one
    """,
    re.VERBOSE,
)


class Interpolation:
    """Puts variables and files into scalars; calls *on_read* with each file before reading it."""

    def __init__(self, environ: Mapping[str, str], on_read: Callable[[Path], object]) -> None:
        self._environ = environ
        self._on_read = on_read

    def apply(self, scalar: Scalar) -> Scalar:
        """Return *scalar* with every reference replaced; raise InvalidValue if one cannot be."""
        if "$" not in scalar.text or scalar.is_final:
            return scalar
        references: list[str] = []

        def replacement(found: re.Match[str]) -> str:
            if found[0] == "$$":
                return "$"
            if found["broken"] is not None:
                raise InvalidValue(
                    "${ begins a reference that is not complete, write ${NAME}, "
                    "${NAME:-default}, ${file:PATH}, or $$ for a plain $"
                )
            if found["file"] is not None:
                references.append(f"${{file:{found['file']}}}")
                return self._file(found["file"], scalar.position.source)
            references.append(f"${{{found['name']}}}")
            return self._variable(found["name"], found["rule"], found["text"])

        text = _REFERENCE.sub(replacement, scalar.text)
        return replace(scalar, text=text, plain=False, references=tuple(references), is_final=True)

    def _variable(self, name: str, rule: str | None, text: str | None) -> str:
        value = self._environ.get(name)
        if rule == "-":
            return value or text or ""
        if rule == "?":
            if not value:
                raise InvalidValue(f"{name} is not set in the environment: {text or 'set it'}")
            return value
        if value is None:
            raise InvalidValue(
                f"{name} is not set in the environment, set it or write ${{{name}:-default}}"
            )
        return value

    def _file(self, written: str, source: Source) -> str:
        path = source.directory / written
        self._on_read(path)
        text = read_file(path, written, _MAX_FILE_BYTES)
        newline = "\r\n" if text.endswith("\r\n") else "\n"
        return text.removesuffix(newline)
