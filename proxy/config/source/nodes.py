"""A YAML file as a tree whose every part knows where it was written.

Scalars keep the text as written; what it means is decided by the key that it
stands under (:mod:`proxy.config.values`). Only the YAML 1.2 core types are told
apart, so ``on``, ``yes`` and ``no`` are words like any other.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from proxy.config.diagnostics.position import Position

_SHOWN_LENGTH = 80

# YAML 1.2.2, 10.3.2: the core schema.
_CORE_TYPES = (
    ("null", re.compile(r"null|Null|NULL|~|")),
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE")),
    ("int", re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")),
    (
        "float",
        re.compile(
            r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
            r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value, as text."""

    text: str
    position: Position
    plain: bool = True
    """Written without quotes: it may be a number, a boolean or null."""
    references: tuple[str, ...] = ()
    """What it was made of, such as ``${TOKEN}``. If any, the text may be a secret."""
    is_final: bool = False
    """Everything is put in: a ``$`` that is left means itself."""

    @property
    def type(self) -> str:
        """``null``, ``bool``, ``int``, ``float`` or ``str``."""
        if not (self.plain or self.references):
            return "str"
        name = next((name for name, form in _CORE_TYPES if form.fullmatch(self.text)), "str")
        # An empty variable is an empty text: somebody did write a value.
        return "str" if name == "null" and self.references else name

    @property
    def shown(self) -> str:
        """How to call this value in a message."""
        return f'"{self.bare}"' if self.type == "str" and not self.references else self.bare

    @property
    def bare(self) -> str:
        """The same without quotes, for what explains itself, such as a path."""
        if self.references:
            return f"the value of {' and '.join(self.references)}"
        before, at, after = self.text.rpartition("@")
        # What stands before an @ may be a password.
        text = f"***@{after}" if at and before else self.text
        return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"


NodeT = TypeVar("NodeT")


@dataclass(frozen=True, slots=True)
class Entry(Generic[NodeT]):
    """A key and what stands under it."""

    key: str
    position: Position
    """Of the key."""
    node: NodeT


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys and values. Of a key that is written twice the first counts."""

    position: Position
    """Of the first key."""
    entries: dict[str, "Entry[Node]"]
    repeated: tuple[tuple["Entry[Node]", Position], ...] = ()
    """Keys that were already there, each with where."""
    implied: bool = False
    """Not in the file: a shorthand, spelled out."""
    is_off: bool = False
    """``false`` stands there: what belongs here is switched off."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    position: Position
    items: tuple["Node", ...]
    implied: bool = False
    """Not in the file: a shorthand, spelled out."""


Node = Scalar | Mapping | Sequence


def overlay(
    base: dict[str, Entry[NodeT]],
    override: dict[str, Entry[NodeT]],
    merge: Callable[[NodeT, NodeT], NodeT],
) -> dict[str, Entry[NodeT]]:
    """Entries of both; where a key is in both, *merge* decides."""
    merged = dict(base)
    for name, entry in override.items():
        below = base.get(name)
        merged[name] = (
            entry if below is None else replace(entry, node=merge(below.node, entry.node))
        )
    return merged


def merge_files(base: Mapping, override: Mapping) -> Mapping:
    """What two files say together: mappings merge, anything else replaces."""
    return replace(
        base,
        entries=overlay(base.entries, override.entries, _merge),
        repeated=base.repeated + override.repeated,
    )


def _merge(base: Node, override: Node) -> Node:
    if isinstance(base, Mapping) and isinstance(override, Mapping):
        return merge_files(base, override)
    return override
