"""What an answer in JSON tells, for printing: whoever listens may be a stranger.

Its texts may hold anything, and a terminal obeys some of it; its numbers may be none.
"""

import re
from collections.abc import Iterator

_UNPRINTABLE = re.compile(r"[^ -~]")
_LARGEST = 1e15
"""No count or duration of ours comes near it, and NaN is not below it."""


class UntrustedJson:
    """A JSON object, read with care: what is not there, or is of another type, is nothing."""

    __slots__ = ("_content",)

    def __init__(self, content: object) -> None:
        self._content: dict[object, object] = content if isinstance(content, dict) else {}

    def __contains__(self, name: str) -> bool:
        return self._content.get(name) is not None

    def text(self, name: str) -> str:
        """A member that is a text, fit to be printed; else an empty one."""
        return printable(self._content.get(name))

    def number(self, name: str) -> float | None:
        """A member that is a number of a sensible size, else None."""
        value = self._content.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value if abs(value) < _LARGEST else None

    def count(self, name: str) -> int:
        """The same as a whole number, 0 if there is none."""
        return int(self.number(name) or 0)

    def is_true(self, name: str) -> bool:
        """Whether a member is ``true``."""
        return self._content.get(name) is True

    def part(self, name: str) -> "UntrustedJson":
        """A member that is an object, else an empty one."""
        return UntrustedJson(self._content.get(name))

    def parts(self, name: str) -> list["UntrustedJson"]:
        """A member that is a list of objects, else an empty one."""
        value = self._content.get(name)
        return [UntrustedJson(member) for member in value] if isinstance(value, list) else []

    def texts(self, name: str) -> list[str]:
        """A member that is a list of texts, as they came: to look something up by them."""
        value = self._content.get(name)
        members = value if isinstance(value, list) else []
        return [member for member in members if isinstance(member, str)]

    def pairs(self, name: str) -> list[tuple[str, str]]:
        """A member that is a list of pairs of texts, fit to be read."""
        value = self._content.get(name)
        found = []
        for member in value if isinstance(value, list) else []:
            match member:
                case [str(first), str(second)]:
                    found.append((legible(first), legible(second)))
        return found

    def written(self, name: str) -> str | None:
        """A member that is a text, as it came and fit for nothing yet; else None."""
        value = self._content.get(name)
        return value if isinstance(value, str) else None

    def members(self) -> Iterator[tuple[str, "UntrustedJson"]]:
        """Names as they came, to look things up by, and the objects that they have."""
        return ((str(name), UntrustedJson(value)) for name, value in self._content.items())

    def counts(self) -> Iterator[tuple[str, int]]:
        """Names, fit to be printed, and counts."""
        return ((printable(name), self.count(str(name))) for name in self._content)


def printable(value: object) -> str:
    """*value* if it is a text, all but plain ASCII made harmless; else an empty one."""
    return _UNPRINTABLE.sub("?", value) if isinstance(value, str) else ""


def legible(text: str) -> str:
    """What somebody wrote, in whatever language, without what a terminal would obey."""
    return "".join(character if character.isprintable() else "?" for character in text)
