"""Nodes: a YAML file as a tree in which every node has its position.

Scalars keep the text as written; the key above them decides what it means
(:mod:`proxy.config.values`). Only the YAML 1.2 core types are distinguished,
so ``on``, ``yes`` and ``no`` are plain strings.
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
    """A single value, as text."""

    text: str
    position: Position
    plain: bool = True
    """Whether it is written without quotes, and so may be a number, a boolean or null."""
    references: tuple[str, ...] = ()
    """The references that were interpolated, such as ``${TOKEN}``. If any, the text may be a
    secret."""
    is_final: bool = False
    """Whether interpolation is done: a ``$`` that is left stands for itself."""

    @property
    def type(self) -> str:
        """The YAML core type: ``null``, ``bool``, ``int``, ``float`` or ``str``."""
        if not (self.plain or self.references):
            return "str"
        name = next((name for name, form in _CORE_TYPES if form.fullmatch(self.text)), "str")
        # An empty variable is an empty string, not null: a value was written.
        return "str" if name == "null" and self.references else name

    @property
    def shown(self) -> str:
        """The value as a message may quote it."""
        return f'"{self.bare}"' if self.type == "str" and not self.references else self.bare

    @property
    def bare(self) -> str:
        """The value as a message may show it without quotes, such as a path or a number."""
        if self.references:
            return f"the value of {' and '.join(self.references)}"
        before, at, after = self.text.rpartition("@")
        # The text before an @ may be a password.
        text = f"***@{after}" if at and before else self.text
        return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"


NodeT = TypeVar("NodeT")


@dataclass(frozen=True, slots=True)
class Entry(Generic[NodeT]):
    """A key and the node under it."""

    key: str
    position: Position
    """The position of the key."""
    node: NodeT


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys and values. If a key is written twice, the first one counts."""

    position: Position
    """The position of the first key."""
    entries: dict[str, "Entry[Node]"]
    repeated: tuple[tuple["Entry[Node]", Position], ...] = ()
    """Entries whose key was already written, each with the position of the first."""
    implied: bool = False
    """Whether the mapping is not in the file, but the long form of a shorthand."""
    is_off: bool = False
    """Whether ``false`` is written in its place: the section is switched off."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    position: Position
    items: tuple["Node", ...]
    implied: bool = False
    """Whether the list is not in the file, but the long form of a shorthand."""


Node = Scalar | Mapping | Sequence


def overlay(
    base: dict[str, Entry[NodeT]],
    override: dict[str, Entry[NodeT]],
    merge: Callable[[NodeT, NodeT], NodeT],
) -> dict[str, Entry[NodeT]]:
    """Return the entries of both; *merge* combines the nodes of a key that is in both."""
    merged = dict(base)
    for name, entry in override.items():
        below = base.get(name)
        merged[name] = (
            entry if below is None else replace(entry, node=merge(below.node, entry.node))
        )
    return merged


def merge_files(base: Mapping, override: Mapping) -> Mapping:
    """Merge two files: mappings are merged key by key, anything else is replaced."""
    return replace(
        base,
        entries=overlay(base.entries, override.entries, _merge),
        repeated=base.repeated + override.repeated,
    )


def _merge(base: Node, override: Node) -> Node:
    if isinstance(base, Mapping) and isinstance(override, Mapping):
        return merge_files(base, override)
    return override
