"""Typed values → settings: the last step, for a configuration without faults.

The sections say which field of which settings gets the value of each key. The field of a key that
is not written has its default.
"""

from typing import Any

from proxy.config.read.typed_tree import TypedList, TypedMapping, TypedNode, TypedScalar
from proxy.config.schema.section import NO_FIELD, ListOf, Section, Shape, TableOf


def make_settings(section: Section, mapping: TypedMapping, **more: object) -> Any:  # noqa: ANN401 - the section knows
    """Make the settings of *section* from what *mapping* has, and from the fields *more*."""
    make = section.make
    if make is None:
        (make,) = section.classes
    return make(**fields_of(section, mapping), **more)


def fields_of(section: Section, mapping: TypedMapping) -> dict[str, object]:
    """Return the fields for which *mapping* has a value, those of its parts included."""
    fields: dict[str, object] = {}
    for name, entry in mapping.entries.items():
        key, to = section.keys[name], section.field_of(name)
        shape = key.shape
        if isinstance(shape, Section) and section.has_part(shape):
            fields |= _fields_of_part(shape, entry.node)
        elif to != NO_FIELD:
            value = _value(shape, entry.node)
            fields[to] = value if key.make is None else key.make(value)
    return fields


def _fields_of_part(part: Section, node: TypedNode) -> dict[str, object]:
    """Return the fields that *part* fills; None in each if it is switched off."""
    if not isinstance(node, TypedMapping) or node.is_off:
        return {part.field_of(name): None for name in part.keys}
    return fields_of(part, node)


def _value(shape: Shape, node: TypedNode) -> object:
    """Return the value of *node*, which was read as a *shape*; None for a section that is off."""
    if isinstance(shape, ListOf) and isinstance(node, TypedList):
        return tuple(_value(shape.item, item) for item in node.items)
    if isinstance(shape, TableOf) and isinstance(node, TypedMapping):
        entries = node.entries.values()
        return {entry.key: _named_value(shape, entry.key, entry.node) for entry in entries}
    if isinstance(shape, Section) and isinstance(node, TypedMapping):
        return None if node.is_off else make_settings(shape, node)
    return node.value if isinstance(node, TypedScalar) else None


def _named_value(table: TableOf, name: str, node: TypedNode) -> object:
    """Return the value under *name* in a *table*, which may have its name as a field."""
    if table.name_to and isinstance(table.values, Section) and isinstance(node, TypedMapping):
        return make_settings(table.values, node, **{table.name_to: name})
    return _value(table.values, node)
