"""Nodes → typed values, by the sections of the schema. Reports every fault on the way.

Each method reads one shape: a scalar, a list, a table (any names, values of one type)
or a section (a fixed set of keys). None stands for what could not be read.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from proxy.config.diagnostics.diagnostics import Diagnostics, InvalidSecret, InvalidValue
from proxy.config.diagnostics.position import Place, Position
from proxy.config.read.typed_tree import TypedList, TypedMapping, TypedNode, TypedScalar
from proxy.config.read.unknown_keys import unknown_key
from proxy.config.schema.section import ListOf, Section, Shape, TableOf
from proxy.config.source.interpolation import Interpolation
from proxy.config.source.nodes import Entry, Mapping, Node, Scalar, Sequence
from proxy.config.values.base import Name, ValueType


class Reader:
    """Reads a tree of nodes into a typed tree, by a section."""

    def __init__(self, diagnostics: Diagnostics, interpolation: Interpolation) -> None:
        self._diagnostics = diagnostics
        self._interpolation = interpolation

    def read_file(self, root: Mapping, section: Section) -> TypedMapping:
        """Read the root mapping of the merged files."""
        return self._section(root, section, "")

    def read(
        self, node: Node, shape: Shape, path: str, *, can_be_null: bool = False
    ) -> TypedNode | None:
        """Read *node* as a *shape*; None if it is none, which is reported.

        *can_be_null*: whether a list or mapping without a value is an empty one.
        """
        try:
            if isinstance(node, Scalar):
                node = self._interpolation.apply(node)
            if isinstance(shape, ListOf | Section):
                for shorthand in shape.shorthands:
                    node = shorthand.expand(node)
        except InvalidValue as error:
            self._fault(node, path, str(error))
            return None
        if isinstance(shape, ValueType):
            return self._scalar(node, shape, path)
        if isinstance(node, Scalar) and node.type == "null":
            if not can_be_null:
                self._fault(node, path, "there is no value, write one or remove it")
                return None
            position, is_list = node.position, isinstance(shape, ListOf)
            node = Sequence(position, ()) if is_list else Mapping(position, {})
        if isinstance(shape, ListOf):
            return self._list(node, shape, path)
        if isinstance(shape, TableOf):
            return self._table(node, shape, path)
        return self._section(node, shape, path)

    def _scalar(self, node: Node, value_type: ValueType[Any], path: str) -> TypedScalar | None:
        if not isinstance(node, Scalar):
            written = "mapping" if isinstance(node, Mapping) else "list"
            text = (
                f"a {written} stands where a single value belongs, write {value_type.example} (say)"
            )
            if isinstance(node, Mapping):
                text = value_type.error_for_mapping(node) or text
        elif node.type == "null":
            text = f"there is no value, write {value_type.example} (say)"
        else:
            try:
                return TypedScalar(path, value_type, node, value_type.read(node))
            except InvalidValue as error:
                text = _with_meant_word(str(error), node, value_type)
                # The text of any other error may quote the value, which may be a secret.
                if node.references and not isinstance(error, InvalidSecret):
                    text = f"{node.shown} is no {value_type.noun}, write {value_type.example} (say)"
        self._fault(node, path, text)
        return None

    def _list(self, node: Node, shape: ListOf, path: str) -> TypedList | None:
        if not isinstance(node, Sequence):
            instead = '"- " before each item'
            if isinstance(node, Scalar) and not node.references:
                instead = f"[{node.bare}]"
            self._fault(node, path, f"this has to be a list, write {instead}")
            return None
        if not node.items and not shape.can_be_empty:
            self._fault(node, path, "the list is empty, write an item or remove it")
            return None
        items = []
        for index, item in enumerate(node.items):
            item_path = path if node.implied else _item_path(path, index, item)
            items.append(self.read(item, shape.item, item_path))
        readable = tuple(item for item in items if item is not None)
        is_whole = len(readable) == len(items) and all(item.is_whole for item in readable)
        return TypedList(path, node.position, readable, is_whole)

    def _table(self, node: Node, shape: TableOf, path: str) -> TypedMapping | None:
        if not isinstance(node, Mapping):
            self._fault(
                node,
                path,
                "names with values belong here, write them as a mapping: "
                f"{{{shape.names.example}: …}}",
            )
            return None
        self._report_repeated(node, path)
        entries: dict[str, Entry[TypedNode]] = {}
        broken = set()
        for entry in node.entries.values():
            entry_path = f"{path}.{entry.key}"
            if self._is_merge_key(entry, path):
                continue
            try:
                shape.names.read(Scalar(entry.key, entry.position, plain=False))
            except InvalidValue as error:
                self._fault(entry, entry_path, str(error))
                broken.add(entry.key)
                continue
            same = shape.names.same_key(entry.key)
            if same in entries:
                self._already_set(entry, entries[same].position, entry_path)
            typed = self.read(entry.node, shape.values, entry_path)
            if typed is None or not typed.is_whole:
                broken.add(same)
            if typed is not None:
                entries.setdefault(same, Entry(entry.key, entry.position, typed))
        return TypedMapping(path, node.position, entries, None, frozenset(broken))

    def _section(self, node: Node, section: Section, path: str) -> TypedMapping:
        if not isinstance(node, Mapping):
            instead = _as_key(node, section) or _keys_of(section)
            self._fault(node, path, f"keys belong here, write {instead}")
            return TypedMapping(path, node.position, {}, section, frozenset(section.keys))
        self._report_repeated(node, path)
        entries: dict[str, Entry[TypedNode]] = {}
        broken = set()
        for written in node.entries.values():
            # A template engine that reads `on:` as YAML 1.1 writes `true:`. No key has that name.
            entry = replace(written, key="on") if written.key.lower() == "true" else written
            entry_path = path if node.implied else _key_path(path, entry.key)
            if self._is_merge_key(entry, path):
                continue
            if entry.key in entries:
                self._already_set(entry, entries[entry.key].position, entry_path)
                continue
            key = section.keys.get(entry.key)
            if key is None:
                suggestion = unknown_key(entry, section)
                self._fault(entry, entry_path, f"unknown key, {suggestion.text}")
                broken |= {entry.key, suggestion.meant}
                continue
            # A key whose lines below are all commented out is an empty list or mapping.
            can_be_null = entry.key not in section.required
            typed = self.read(entry.node, key.shape, entry_path, can_be_null=can_be_null)
            if typed is None or not typed.is_whole:
                broken.add(entry.key)
            if typed is not None:
                entries[entry.key] = Entry(entry.key, entry.position, typed)
        self._check_alternatives(entries, section, path)
        for name, key in section.keys.items():
            # A required key that an unknown key probably stands for is not reported as missing.
            if name in section.required and name not in node.entries.keys() | broken:
                self._fault(node, path, f"{name} is missing, write {name}: {_example(key.shape)}")
                broken.add(name)
        return TypedMapping(path, node.position, entries, section, frozenset(broken), node.is_off)

    def _check_alternatives(
        self, entries: dict[str, Entry[TypedNode]], section: Section, path: str
    ) -> None:
        groups = {key: group for group in section.alternatives for key in group if key in entries}
        first = next((key for key in entries if key in groups), "")
        for key, entry in entries.items():
            if key in groups and groups[key] != groups[first]:
                self._fault(
                    entry,
                    _key_path(path, key),
                    f"it cannot stand beside {first}, remove one of them",
                )
                break

    def _fault(self, at: Node | Entry[Any], path: str, text: str) -> None:
        self._diagnostics.fault(Place(at.position, path), text)

    def _report_repeated(self, node: Mapping, path: str) -> None:
        for entry, first in node.repeated:
            self._already_set(entry, first, _key_path(path, entry.key))

    def _already_set(self, entry: Entry[Node], first: Position, path: str) -> None:
        instead = (
            "write both in one mapping" if isinstance(entry.node, Mapping) else "remove one of them"
        )
        self._fault(entry, path, f"already set at line {first.line}, {instead}")

    def _is_merge_key(self, entry: Entry[Node], path: str) -> bool:
        if entry.key == "<<":
            self._fault(
                entry,
                path,
                "<< is not supported, write the keys out, or once in policies and policy: NAME "
                "in each route",
            )
        return entry.key == "<<"


def _with_meant_word(text: str, node: Scalar, value_type: ValueType[Any]) -> str:
    """Return the message *text*, or one with the word that was probably meant."""
    near = value_type.meant(node.text)
    if not near or f"mean {near}" in text or f"write {near}" in text:
        return text
    return value_type.wrong_type(node, near).replace(f"write {near}", f"did you mean {near}?")


def _key_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _item_path(path: str, index: int, item: Node) -> str:
    """Return the path of a list item: by its name if that may be shown, else by its index."""
    named = item.entries.get("name") if isinstance(item, Mapping) else None
    if named is not None and isinstance(named.node, Scalar) and "$" not in named.node.text:
        try:
            return f"{path}.{Name().read(named.node)}"
        except InvalidValue:
            pass
    return f"{path}[{index}]"


def _as_key(node: Node, section: Section) -> str:
    """Return the section with *node* as the value of the only key that can have it; or nothing."""
    if not isinstance(node, Scalar) or node.references or node.type != "str":
        return ""
    able = []
    for name, key in section.keys.items():
        if isinstance(key.shape, ValueType) and not key.shape.is_hidden:
            with suppress(InvalidValue):
                key.shape.read(node)
                able.append(name)
    return f"{{{able[0]}: {node.bare}}}" if len(able) == 1 else ""


def _keys_of(section: Section) -> str:
    """Return what could be written in such a section, for a message."""
    (first, key), *others = section.keys.items()
    if not others:
        return f"{{{first}: {_example(key.shape)}}}"
    return f"some of {', '.join(section.keys)}"


def _example(shape: Shape) -> str:
    if isinstance(shape, ValueType):
        return f"{shape.example} (say)"
    if isinstance(shape, ListOf) and isinstance(shape.item, ValueType):
        return f"[{shape.item.example}] (say)"
    return "/v1/** (say)"
