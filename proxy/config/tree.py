"""What a file says once it has been read: values that know where they were written.

The same shape as :mod:`proxy.config.nodes`, one step further: the keys are known
and the values have their types. Parts that could not be read are left out, and
what holds them says so; whoever compares values waits for those.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.config.faults import Spot
from proxy.config.kinds.base import Kind
from proxy.config.models import Section
from proxy.config.nodes import Entry, Scalar, overlay


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that was read."""

    path: str
    kind: Kind[Any]
    scalar: Scalar
    value: Any

    @property
    def spot(self) -> Spot:
        return self.scalar.spot

    @property
    def is_whole(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Items:
    """A list that was read."""

    path: str
    spot: Spot
    items: tuple["Read", ...]
    is_whole: bool = True
    """False if something in it could not be read."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A mapping that was read: a section, or names with what belongs to each."""

    path: str
    spot: Spot
    entries: dict[str, "Entry[Read]"]
    section: type[Section] | None = None
    broken: frozenset[str] = field(default_factory=frozenset)
    """Keys that are there, but could not be read or not wholly."""

    @property
    def is_whole(self) -> bool:
        return not self.broken

    def leaf(self, key: str) -> Leaf | None:
        """The value under *key*, if there is one."""
        node = self.node(key)
        return node if isinstance(node, Leaf) else None

    def branch(self, key: str) -> "Branch | None":
        """The mapping under *key*, if there is one."""
        node = self.node(key)
        return node if isinstance(node, Branch) else None

    def items(self, key: str) -> tuple["Read", ...]:
        """The list under *key*; empty if there is none."""
        node = self.node(key)
        return node.items if isinstance(node, Items) else ()

    def values(self, key: str) -> tuple[Any, ...]:
        """What the list under *key* holds, if it holds plain values."""
        return tuple(item.value for item in self.items(key) if isinstance(item, Leaf))

    def node(self, key: str) -> "Read | None":
        entry = self.entries.get(key)
        return None if entry is None else entry.node


Read = Leaf | Items | Branch


def merge(under: Read, over: Read) -> Read:
    """*over* where it says something, else *under*: key by key, at every depth."""
    if isinstance(under, Branch) and isinstance(over, Branch):
        return merge_branches(under, over)
    return over


def merge_branches(under: Branch, over: Branch) -> Branch:
    """As :func:`merge`."""
    return replace(
        over,
        entries=overlay(under.entries, over.entries, merge),
        broken=over.broken | (under.broken - over.entries.keys()),
    )


def leaves(read: Read, key: str = "") -> Iterator[tuple[str, Leaf]]:
    """Every value, with the key that it stands under."""
    if isinstance(read, Leaf):
        yield key, read
    elif isinstance(read, Items):
        for item in read.items:
            yield from leaves(item, key)
    else:
        for entry in read.entries.values():
            yield from leaves(entry.node, entry.key)


def plain(read: Read) -> Any:  # noqa: ANN401 - goes into a model, which knows the types
    """The values alone, as the models take them."""
    if isinstance(read, Leaf):
        return read.value
    if isinstance(read, Items):
        return [plain(item) for item in read.items]
    return {entry.key: plain(entry.node) for entry in read.entries.values()}
