"""Built-in defaults: what holds where a file says nothing.

They are the same for every file, so each is read once in a process.
"""

from dataclasses import replace
from functools import cache

from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.diagnostics.position import Position, Source
from proxy.config.read.reader import Reader
from proxy.config.read.typed_tree import TypedList, TypedMapping, TypedNode, displaced_by
from proxy.config.schema.section import Section
from proxy.config.source.interpolation import Interpolation
from proxy.config.source.nodes import Entry, Mapping, Node, Scalar, Sequence

BUILT_IN = Position(Source("built-in"))


@cache
def built_in(section: Section, key: str) -> Entry[TypedNode] | None:
    """Return the default of *key* in *section*; None if it has none."""
    written = section.written(key)
    if written is None:
        return None
    reader = Reader(Diagnostics(), Interpolation({}, lambda _: None))
    read = reader.read(_node_of(written), section.keys[key].shape, key)
    if read is None or not read.is_whole:
        raise LookupError(f"{section.name}.{key}: its default cannot be read: {written!r}")
    return Entry(key, BUILT_IN, read)


def complete(mapping: TypedMapping) -> TypedMapping:
    """Return *mapping* with the built-in value of each key that is neither in it nor excluded."""
    entries = {
        name: replace(entry, node=_complete(entry.node)) for name, entry in mapping.entries.items()
    }
    section, written = mapping.section, entries.keys() | displaced_by(mapping)
    for name in section.keys if section else ():
        default = _complete_default(section, name) if section and name not in written else None
        if default is not None:
            entries[name] = default
    return replace(mapping, entries=entries)


@cache
def _complete_default(section: Section, key: str) -> Entry[TypedNode] | None:
    entry = built_in(section, key)
    return None if entry is None else replace(entry, node=_complete(entry.node))


def _complete(read: TypedNode) -> TypedNode:
    if isinstance(read, TypedMapping):
        return read if read.is_off else complete(read)
    if isinstance(read, TypedList):
        return replace(read, items=tuple(_complete(item) for item in read.items))
    return read


def _node_of(default: object) -> Node:
    """Return a default as a node, as if it were written in the file."""
    if isinstance(default, dict):
        return Mapping(BUILT_IN, {})
    if isinstance(default, list):
        return Sequence(BUILT_IN, tuple(_node_of(item) for item in default))
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return Scalar(text, BUILT_IN)
