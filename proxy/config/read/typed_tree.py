"""The typed tree: values that have been read, each with the position where it was written.

Has the shape of :mod:`proxy.config.source.nodes`, one step further: the keys are known
and the values have their types. Parts that could not be read are left out, and the
mapping or list around them is marked (``broken``, ``is_whole``); a check that compares
such values is skipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.config.diagnostics.position import Place, Position
from proxy.config.schema.section import Section
from proxy.config.source.nodes import Entry, Scalar, overlay
from proxy.config.values.base import ValueType


@dataclass(frozen=True, slots=True)
class TypedScalar:
    """A single value that was read."""

    path: str
    value_type: ValueType[Any]
    written: Scalar
    """The scalar as it stands in the file, after interpolation."""
    value: Any

    @property
    def position(self) -> Position:
        return self.written.position

    @property
    def is_whole(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class TypedList:
    """A list that was read."""

    path: str
    position: Position
    items: tuple["TypedNode", ...]
    is_whole: bool = True
    """False if an item could not be read."""


@dataclass(frozen=True, slots=True)
class TypedMapping:
    """A mapping that was read: a section, or a table of names chosen by the user."""

    path: str
    position: Position
    entries: dict[str, "Entry[TypedNode]"]
    section: Section | None = None
    broken: frozenset[str] = field(default_factory=frozenset)
    """Keys that are written, but could not be read, or only in part."""
    is_off: bool = False
    """Switched off by ``false``. The entries are kept for a later layer that switches it on."""

    @property
    def is_whole(self) -> bool:
        return not self.broken

    def scalar(self, key: str) -> TypedScalar | None:
        """Return the scalar under *key*; None if there is none."""
        node = self.node(key)
        return node if isinstance(node, TypedScalar) else None

    def mapping(self, key: str) -> "TypedMapping | None":
        """Return the mapping under *key*; None if there is none or it is switched off."""
        node = self.node(key)
        return node if isinstance(node, TypedMapping) and not node.is_off else None

    def items(self, key: str) -> tuple["TypedNode", ...]:
        """Return the items of the list under *key*; empty if there is none."""
        node = self.node(key)
        return node.items if isinstance(node, TypedList) else ()

    def scalars(self, key: str) -> list[TypedScalar]:
        """Return the scalars in the list under *key*; empty if there is none."""
        return [item for item in self.items(key) if isinstance(item, TypedScalar)]

    def values(self, key: str) -> tuple[Any, ...]:
        """Return the values of the scalars in the list under *key*."""
        return tuple(scalar.value for scalar in self.scalars(key))

    def mappings(self, key: str) -> "list[TypedMapping]":
        """Return the mappings in the list or the table under *key*; empty if there is none."""
        node = self.node(key)
        table = node.entries.values() if isinstance(node, TypedMapping) else ()
        nodes = [*self.items(key), *(entry.node for entry in table)]
        return [node for node in nodes if isinstance(node, TypedMapping)]

    def node(self, key: str) -> "TypedNode | None":
        entry = self.entries.get(key)
        return None if entry is None else entry.node


TypedNode = TypedScalar | TypedList | TypedMapping


def key_of(entry: Entry[TypedNode]) -> Place:
    """Return the place of the key of *entry*, for a message about the key as a whole."""
    return Place(entry.position, entry.node.path)


def merge(base: TypedNode, override: TypedNode) -> TypedNode:
    """Merge two nodes key by key at every depth; where both have a value *override* wins."""
    if isinstance(base, TypedMapping) and isinstance(override, TypedMapping):
        return merge_mappings(base, override)
    return override


def merge_mappings(base: TypedMapping, override: TypedMapping) -> TypedMapping:
    """Merge two mappings key by key at every depth; where both have a value *override* wins."""
    displaced = displaced_by(override)
    kept = {key: entry for key, entry in base.entries.items() if key not in displaced}
    return replace(
        override,
        entries=overlay(kept, override.entries, merge),
        broken=override.broken | (base.broken - override.entries.keys() - displaced),
    )


def displaced_by(override: TypedMapping) -> frozenset[str]:
    """Return the keys that those in *override* exclude (see ``Section.alternatives``)."""
    groups = override.section.alternatives if override.section else ()
    chosen = [group for group in groups if not group.isdisjoint(override.entries)]
    return frozenset[str]().union(*groups).difference(*chosen) if chosen else frozenset()


def with_entry(
    mapping: TypedMapping, keys: tuple[str, ...], entry: "Entry[TypedNode]"
) -> TypedMapping:
    """Return *mapping* with *entry* added in the mapping below it at the path *keys*."""
    if keys:
        outer, *rest = keys
        below = mapping.mapping(outer)
        if below is None:
            return mapping
        entry = replace(mapping.entries[outer], node=with_entry(below, tuple(rest), entry))
    return replace(mapping, entries=mapping.entries | {entry.key: entry})


def scalars(node: TypedNode, key: str = "") -> Iterator[tuple[str, TypedScalar]]:
    """Yield every scalar that is not switched off, with its key."""
    if isinstance(node, TypedScalar):
        yield key, node
    elif isinstance(node, TypedList):
        for item in node.items:
            yield from scalars(item, key)
    elif not node.is_off:
        for entry in node.entries.values():
            yield from scalars(entry.node, entry.key)
