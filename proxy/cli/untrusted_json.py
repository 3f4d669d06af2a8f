"""Safe reading of JSON from the admin listener, for printing: the server may be untrusted.

Strings may contain control sequences that a terminal obeys; members may have the wrong type.
"""

import json
import re
from collections.abc import Iterator

_UNPRINTABLE = re.compile(r"[^ -~]")
_MAX_NUMBER = 1e15
"""Larger than any count or duration of Holdfast; NaN is not below it either."""


class UntrustedJson:
    """A JSON object in which a member that is missing or of another type counts as empty."""

    def __init__(self, content: object) -> None:
        self._content: dict[object, object] = content if isinstance(content, dict) else {}

    def __contains__(self, name: str) -> bool:
        return self._content.get(name) is not None

    def text(self, name: str) -> str:
        """Return a member that is a string, safe to print; empty if there is none."""
        return printable(self._content.get(name))

    def number(self, name: str) -> float | None:
        """Return a member that is a number of a sensible size; None if there is none."""
        value = self._content.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value if abs(value) < _MAX_NUMBER else None

    def count(self, name: str) -> int:
        """Return a member that is a number as an integer; 0 if there is none."""
        return int(self.number(name) or 0)

    def is_true(self, name: str) -> bool:
        """Return whether a member is ``true``."""
        return self._content.get(name) is True

    def part(self, name: str) -> "UntrustedJson":
        """Return a member that is an object; an empty one if there is none."""
        return UntrustedJson(self._content.get(name))

    def parts(self, name: str) -> list["UntrustedJson"]:
        """Return a member that is a list of objects; an empty list if there is none."""
        value = self._content.get(name)
        return [UntrustedJson(member) for member in value] if isinstance(value, list) else []

    def texts(self, name: str) -> list[str]:
        """Return a member that is a list of strings, unescaped: for look-ups, not for printing."""
        value = self._content.get(name)
        members = value if isinstance(value, list) else []
        return [member for member in members if isinstance(member, str)]

    def pairs(self, name: str) -> list[tuple[str, str]]:
        """Return a member that is a list of pairs of strings, safe to print."""
        value = self._content.get(name)
        found = []
        for member in value if isinstance(value, list) else []:
            match member:
                case [str(first), str(second)]:
                    found.append((legible(first), legible(second)))
        return found

    def raw_text(self, name: str) -> str | None:
        """Return a member that is a string, unescaped, not safe to print; None if there is none."""
        value = self._content.get(name)
        return value if isinstance(value, str) else None

    def written(self, name: str) -> str:
        """Return a member of any type as JSON on one line, safe to print; a string as it is."""
        value = self._content.get(name)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return legible(text)

    def members(self) -> Iterator[tuple[str, "UntrustedJson"]]:
        """Return the names, unescaped, for look-ups, each with its value as an object."""
        return ((str(name), UntrustedJson(value)) for name, value in self._content.items())

    def counts(self) -> Iterator[tuple[str, int]]:
        """Return the names, safe to print, each with its value as a count."""
        return ((printable(name), self.count(str(name))) for name in self._content)


def printable(value: object) -> str:
    """Return *value* with everything but printable ASCII replaced; empty if it is no string."""
    return _UNPRINTABLE.sub("?", value) if isinstance(value, str) else ""


def legible(text: str) -> str:
    """Return *text* in any language with the characters replaced that a terminal would obey."""
    return "".join(character if character.isprintable() else "?" for character in text)
