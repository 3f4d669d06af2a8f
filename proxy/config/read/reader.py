"""Nodes → typed values, by the models of the schema. Reports every fault on the way.

Each method reads one shape: a scalar, a list, a table (any names, values of one type)
or a section (the keys of a model). None stands for what could not be read.
"""

from dataclasses import replace
from types import UnionType
from typing import Any, Union, get_args, get_origin

from annotated_types import MinLen
from pydantic.fields import FieldInfo

from proxy.config.diagnostics.diagnostics import Diagnostics, InvalidSecret, InvalidValue
from proxy.config.diagnostics.position import Position, Source
from proxy.config.read.typed_tree import TypedList, TypedMapping, TypedNode, TypedScalar
from proxy.config.read.unknown_keys import unknown_key
from proxy.config.schema.section import Section
from proxy.config.schema.shorthands import Shorthand
from proxy.config.source.interpolation import Interpolation
from proxy.config.source.nodes import Entry, Mapping, Node, Scalar, Sequence
from proxy.config.values.base import Name, ValueType

BUILT_IN = Position(Source("built-in"))


class Reader:
    """Reads a tree of nodes into a typed tree, by a model."""

    def __init__(self, diagnostics: Diagnostics, interpolation: Interpolation) -> None:
        self._diagnostics = diagnostics
        self._interpolation = interpolation
        self._built_in: dict[tuple[type[Section], str], TypedNode | None] = {}

    def read_file(self, root: Mapping, model: type[Section]) -> TypedMapping:
        """Read the root mapping of the merged files."""
        return self._section(root, model, "")

    def complete(self, mapping: TypedMapping) -> TypedMapping:
        """Return *mapping* with the built-in value of each key that is not written in it."""
        entries = dict(mapping.entries)
        section = mapping.section
        for name in section.model_fields if section else ():
            default = self.built_in(section, name) if section and name not in entries else None
            if default is not None:
                entries[name] = Entry(name, BUILT_IN, default)
        completed = {
            name: replace(entry, node=self._complete(entry.node)) for name, entry in entries.items()
        }
        return replace(mapping, entries=completed)

    def built_in(self, section: type[Section], key: str) -> TypedNode | None:
        """Return the default of *key* in *section*; None if it has none."""
        if (section, key) not in self._built_in:
            model_field = section.model_fields[key]
            default = model_field.default
            self._built_in[section, key] = (
                None if default is None else self._read(_node_of(default), model_field, key)
            )
        return self._built_in[section, key]

    def _complete(self, read: TypedNode) -> TypedNode:
        if isinstance(read, TypedMapping):
            return read if read.is_off else self.complete(read)
        if isinstance(read, TypedList):
            return replace(read, items=tuple(self._complete(item) for item in read.items))
        return read

    def _read(self, node: Node, annotation: Any, path: str) -> TypedNode | None:  # noqa: ANN401 - a type is anything that can be annotated
        """Read *node* as the annotated type *annotation*; None if it is none, which is reported."""
        shape, metadata = _type_and_metadata(annotation)
        try:
            if isinstance(node, Scalar):
                node = self._interpolation.apply(node)
            for mark in metadata:
                if isinstance(mark, Shorthand):
                    node = mark.expand(node)
        except InvalidValue as error:
            self._diagnostics.fault(node.position, path, str(error))
            return None
        value_type = next((mark for mark in metadata if isinstance(mark, ValueType)), None)
        if value_type is not None:
            return self._scalar(node, value_type, path)
        if isinstance(node, Scalar) and node.type == "null":
            if not isinstance(annotation, FieldInfo) or annotation.is_required():
                self._diagnostics.fault(
                    node.position, path, "there is no value, write one or remove it"
                )
                return None
            # A key whose lines below are all commented out is an empty list or mapping.
            node = (
                Sequence(node.position, ())
                if get_origin(shape) is list
                else Mapping(node.position, {})
            )
        if get_origin(shape) is list:
            return self._list(
                node, get_args(shape)[0], path, can_be_empty=MinLen(1) not in metadata
            )
        if get_origin(shape) is dict:
            key_annotation, value_annotation = get_args(shape)
            return self._table(node, key_annotation, value_annotation, path)
        return self._section(node, shape, path)

    def _scalar(self, node: Node, value_type: ValueType[Any], path: str) -> TypedScalar | None:
        if not isinstance(node, Scalar):
            written = "mapping" if isinstance(node, Mapping) else "list"
            text = (
                f"a {written} stands where a single value belongs, write {value_type.example} (say)"
            )
        elif node.type == "null":
            text = f"there is no value, write {value_type.example} (say)"
        else:
            try:
                return TypedScalar(path, value_type, node, value_type.read(node))
            except InvalidValue as error:
                text = str(error)
                # The text of any other error may quote the value, which may be a secret.
                if node.references and not isinstance(error, InvalidSecret):
                    text = f"{node.shown} is no {value_type.noun}, write {value_type.example} (say)"
        self._diagnostics.fault(node.position, path, text)
        return None

    def _list(
        self,
        node: Node,
        item_annotation: Any,  # noqa: ANN401 - any type
        path: str,
        *,
        can_be_empty: bool,
    ) -> TypedList | None:
        if not isinstance(node, Sequence):
            instead = '"- " before each item'
            if isinstance(node, Scalar) and not node.references:
                instead = f"[{node.bare}]"
            self._diagnostics.fault(node.position, path, f"this has to be a list, write {instead}")
            return None
        if not node.items and not can_be_empty:
            self._diagnostics.fault(
                node.position, path, "the list is empty, write an item or remove it"
            )
            return None
        items = []
        for index, item in enumerate(node.items):
            item_path = path if node.implied else _item_path(path, index, item)
            items.append(self._read(item, item_annotation, item_path))
        readable = tuple(item for item in items if item is not None)
        is_whole = len(readable) == len(items) and all(item.is_whole for item in readable)
        return TypedList(path, node.position, readable, is_whole)

    def _table(
        self,
        node: Node,
        key_annotation: Any,  # noqa: ANN401 - any type
        value_annotation: Any,  # noqa: ANN401 - any type
        path: str,
    ) -> TypedMapping | None:
        if not isinstance(node, Mapping):
            self._diagnostics.fault(
                node.position, path, "names with values belong here, write them as a mapping"
            )
            return None
        self._report_repeated(node, path)
        _, (value_type,) = _type_and_metadata(key_annotation)
        entries: dict[str, Entry[TypedNode]] = {}
        broken = set()
        for entry in node.entries.values():
            entry_path = f"{path}.{entry.key}"
            if self._is_merge_key(entry, path):
                continue
            try:
                value_type.read(Scalar(entry.key, entry.position, plain=False))
            except InvalidValue as error:
                self._diagnostics.fault(entry.position, entry_path, str(error))
                broken.add(entry.key)
                continue
            same = value_type.same_key(entry.key)
            if same in entries:
                self._already_set(entry, entries[same].position, entry_path)
            typed = self._read(entry.node, value_annotation, entry_path)
            if typed is None or not typed.is_whole:
                broken.add(same)
            if typed is not None:
                entries.setdefault(same, Entry(entry.key, entry.position, typed))
        return TypedMapping(path, node.position, entries, None, frozenset(broken))

    def _section(self, node: Node, model: type[Section], path: str) -> TypedMapping:
        if not isinstance(node, Mapping):
            self._diagnostics.fault(
                node.position, path, f"keys belong here, write {_keys_of(model)}"
            )
            return TypedMapping(path, node.position, {}, model, frozenset(model.model_fields))
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
            model_field = model.model_fields.get(entry.key)
            if model_field is None:
                suggestion = unknown_key(entry, model)
                self._diagnostics.fault(
                    entry.position, entry_path, f"unknown key, {suggestion.text}"
                )
                broken |= {entry.key, suggestion.meant}
                continue
            typed = self._read(entry.node, model_field, entry_path)
            if typed is None or not typed.is_whole:
                broken.add(entry.key)
            if typed is not None:
                entries[entry.key] = Entry(entry.key, entry.position, typed)
        self._check_alternatives(entries, model, path)
        for name, model_field in model.model_fields.items():
            # A required key that an unknown key probably stands for is not reported as missing.
            if model_field.is_required() and name not in node.entries.keys() | broken:
                self._diagnostics.fault(
                    node.position, path, f"{name} is missing, write {name}: {_example(model_field)}"
                )
                broken.add(name)
        return TypedMapping(path, node.position, entries, model, frozenset(broken), node.is_off)

    def _check_alternatives(
        self, entries: dict[str, Entry[TypedNode]], model: type[Section], path: str
    ) -> None:
        groups = {key: group for group in model.alternatives for key in group if key in entries}
        first = next((key for key in entries if key in groups), "")
        for key, entry in entries.items():
            if key in groups and groups[key] != groups[first]:
                self._diagnostics.fault(
                    entry.position,
                    _key_path(path, key),
                    f"it cannot stand beside {first}, remove one of them",
                )
                break

    def _report_repeated(self, node: Mapping, path: str) -> None:
        for entry, first in node.repeated:
            self._already_set(entry, first, _key_path(path, entry.key))

    def _already_set(self, entry: Entry[Node], first: Position, path: str) -> None:
        instead = (
            "write both in one mapping" if isinstance(entry.node, Mapping) else "remove one of them"
        )
        self._diagnostics.fault(
            entry.position, path, f"already set at line {first.line}, {instead}"
        )

    def _is_merge_key(self, entry: Entry[Node], path: str) -> bool:
        if entry.key == "<<":
            self._diagnostics.fault(
                entry.position,
                path,
                "<< is not supported, write the keys out, or once in policies and policy: NAME "
                "in each route",
            )
        return entry.key == "<<"


def _type_and_metadata(annotation: Any) -> tuple[Any, tuple[Any, ...]]:  # noqa: ANN401 - any type
    """Split an annotation into its type, without None, and its metadata."""
    if isinstance(annotation, FieldInfo):
        return _without_none(annotation.annotation), tuple(annotation.metadata)
    if hasattr(annotation, "__metadata__"):
        return _without_none(annotation.__origin__), annotation.__metadata__
    return _without_none(annotation), ()


def _without_none(shape: Any) -> Any:  # noqa: ANN401 - any type
    """Return ``X`` of ``X | None``: the reader is not called for a key that is absent."""
    if get_origin(shape) in {UnionType, Union}:
        return next(part for part in get_args(shape) if part is not type(None))
    return shape


def _node_of(default: object) -> Node:
    """Return the default of a model as a node, as if it were written in the file."""
    if isinstance(default, dict):
        return Mapping(BUILT_IN, {})
    if isinstance(default, list):
        return Sequence(BUILT_IN, tuple(_node_of(item) for item in default))
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return Scalar(text, BUILT_IN)


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


def _keys_of(model: type[Section]) -> str:
    """Return what could be written in such a section, for a message."""
    (first, model_field), *others = model.model_fields.items()
    if not others:
        return f"{{{first}: {_example(model_field)}}}"
    return f"some of {', '.join(model.model_fields)}"


def _example(model_field: FieldInfo) -> str:
    shape, metadata = _type_and_metadata(model_field)
    value_type = next((mark for mark in metadata if isinstance(mark, ValueType)), None)
    if value_type is not None:
        return f"{value_type.example} (say)"
    if get_origin(shape) is list:
        _, (item_value_type,) = _type_and_metadata(get_args(shape)[0])
        return f"[{item_value_type.example}] (say)"
    return "/v1/** (say)"
