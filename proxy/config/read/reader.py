"""Nodes → values, by the models. Reports everything that is wrong on the way.

Each method reads one shape: a single value, a list, a table (any names, values
alike) or a section (the keys of a model). None stands for what could not be read.
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
    """Reads a tree by a model."""

    def __init__(self, diagnostics: Diagnostics, interpolation: Interpolation) -> None:
        self._findings = diagnostics
        self._interpolation = interpolation
        self._built_in: dict[tuple[type[Section], str], TypedNode | None] = {}

    def read_file(self, root: Mapping, model: type[Section]) -> TypedMapping:
        """The whole file."""
        return self._section(root, model, "")

    def complete(self, branch: TypedMapping) -> TypedMapping:
        """*branch* with the built-in value of each key that it does not have."""
        entries = dict(branch.entries)
        section = branch.section
        for name in section.model_fields if section else ():
            default = self.built_in(section, name) if section and name not in entries else None
            if default is not None:
                entries[name] = Entry(name, BUILT_IN, default)
        completed = {
            name: replace(entry, node=self._complete(entry.node)) for name, entry in entries.items()
        }
        return replace(branch, entries=completed)

    def built_in(self, section: type[Section], key: str) -> TypedNode | None:
        """What *key* is where nobody writes it; None if it is nothing then."""
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
        """What *node* says, as a type with its metadata describes it; None if it is no such."""
        shape, metadata = _taken_apart(annotation)
        try:
            if isinstance(node, Scalar):
                node = self._interpolation.apply(node)
            for mark in metadata:
                if isinstance(mark, Shorthand):
                    node = mark.expand(node)
        except InvalidValue as mistake:
            self._findings.fault(node.position, path, str(mistake))
            return None
        kind = next((mark for mark in metadata if isinstance(mark, ValueType)), None)
        if kind is not None:
            return self._leaf(node, kind, path)
        if isinstance(node, Scalar) and node.type == "null":
            if not isinstance(annotation, FieldInfo) or annotation.is_required():
                self._findings.fault(
                    node.position, path, "there is no value, write one or remove it"
                )
                return None
            # A key with every line below it commented out.
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
            key_type, value_type = get_args(shape)
            return self._table(node, key_type, value_type, path)
        return self._section(node, shape, path)

    def _leaf(self, node: Node, kind: ValueType[Any], path: str) -> TypedScalar | None:
        if not isinstance(node, Scalar):
            written = "mapping" if isinstance(node, Mapping) else "list"
            text = f"a {written} stands where a single value belongs, write {kind.example} (say)"
        elif node.type == "null":
            text = f"there is no value, write {kind.example} (say)"
        else:
            try:
                return TypedScalar(path, kind, node, kind.read(node))
            except InvalidValue as mistake:
                text = str(mistake)
                # Other mistakes may quote what must not be seen.
                if node.references and not isinstance(mistake, InvalidSecret):
                    text = f"{node.shown} is no {kind.noun}, write {kind.example} (say)"
        self._findings.fault(node.position, path, text)
        return None

    def _list(
        self,
        node: Node,
        item_type: Any,  # noqa: ANN401 - any type
        path: str,
        *,
        can_be_empty: bool,
    ) -> TypedList | None:
        if not isinstance(node, Sequence):
            instead = '"- " before each item'
            if isinstance(node, Scalar) and not node.references:
                instead = f"[{node.bare}]"
            self._findings.fault(node.position, path, f"this has to be a list, write {instead}")
            return None
        if not node.items and not can_be_empty:
            self._findings.fault(
                node.position, path, "the list is empty, write an item or remove it"
            )
            return None
        items = []
        for index, item in enumerate(node.items):
            item_path = path if node.implied else _item_path(path, index, item)
            items.append(self._read(item, item_type, item_path))
        readable = tuple(item for item in items if item is not None)
        is_whole = len(readable) == len(items) and all(item.is_whole for item in readable)
        return TypedList(path, node.position, readable, is_whole)

    def _table(self, node: Node, key_type: Any, value_type: Any, path: str) -> TypedMapping | None:  # noqa: ANN401 - a type is anything that can be annotated
        if not isinstance(node, Mapping):
            self._findings.fault(
                node.position, path, "names with values belong here, write them as a mapping"
            )
            return None
        self._report_repeated(node, path)
        _, (kind,) = _taken_apart(key_type)
        entries: dict[str, Entry[TypedNode]] = {}
        broken = set()
        for entry in node.entries.values():
            entry_path = f"{path}.{entry.key}"
            if self._is_merge_key(entry, path):
                continue
            try:
                kind.read(Scalar(entry.key, entry.position, plain=False))
            except InvalidValue as mistake:
                self._findings.fault(entry.position, entry_path, str(mistake))
                broken.add(entry.key)
                continue
            same = kind.same_key(entry.key)
            if same in entries:
                self._already_set(entry, entries[same].position, entry_path)
            read = self._read(entry.node, value_type, entry_path)
            if read is None or not read.is_whole:
                broken.add(same)
            if read is not None:
                entries.setdefault(same, Entry(entry.key, entry.position, read))
        return TypedMapping(path, node.position, entries, None, frozenset(broken))

    def _section(self, node: Node, model: type[Section], path: str) -> TypedMapping:
        if not isinstance(node, Mapping):
            self._findings.fault(node.position, path, f"keys belong here, write {_keys_of(model)}")
            return TypedMapping(path, node.position, {}, model, frozenset(model.model_fields))
        self._report_repeated(node, path)
        entries: dict[str, Entry[TypedNode]] = {}
        broken = set()
        for written in node.entries.values():
            # A template engine that read `on:` as YAML 1.1 wrote `true:`. No key is called so.
            entry = replace(written, key="on") if written.key.lower() == "true" else written
            entry_path = path if node.implied else _key_path(path, entry.key)
            if self._is_merge_key(entry, path):
                continue
            if entry.key in entries:
                self._already_set(entry, entries[entry.key].position, entry_path)
                continue
            model_field = model.model_fields.get(entry.key)
            if model_field is None:
                advice = unknown_key(entry, model)
                self._findings.fault(entry.position, entry_path, f"unknown key, {advice.text}")
                broken |= {entry.key, advice.meant}
                continue
            read = self._read(entry.node, model_field, entry_path)
            if read is None or not read.is_whole:
                broken.add(entry.key)
            if read is not None:
                entries[entry.key] = Entry(entry.key, entry.position, read)
        self._check_alternatives(entries, model, path)
        for name, model_field in model.model_fields.items():
            # A key that was probably meant by an unknown one is not missing as well.
            if model_field.is_required() and name not in node.entries.keys() | broken:
                self._findings.fault(
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
                self._findings.fault(
                    entry.position,
                    _key_path(path, key),
                    f"it cannot stand beside {first}, remove one of them",
                )
                break

    def _report_repeated(self, node: Mapping, path: str) -> None:
        for entry, first in node.repeated:
            self._already_set(entry, first, _key_path(path, entry.key))

    def _already_set(self, entry: Entry[Node], first: Position, path: str) -> None:
        together = (
            "write both in one mapping" if isinstance(entry.node, Mapping) else "remove one of them"
        )
        self._findings.fault(entry.position, path, f"already set at line {first.line}, {together}")

    def _is_merge_key(self, entry: Entry[Node], path: str) -> bool:
        if entry.key == "<<":
            self._findings.fault(
                entry.position,
                path,
                "<< is not supported, write the keys out, or once in policies and policy: NAME "
                "in each route",
            )
        return entry.key == "<<"


def _taken_apart(annotation: Any) -> tuple[Any, tuple[Any, ...]]:  # noqa: ANN401 - any type
    """A type and the marks that it is annotated with."""
    if isinstance(annotation, FieldInfo):
        return _without_none(annotation.annotation), tuple(annotation.metadata)
    if hasattr(annotation, "__metadata__"):
        return _without_none(annotation.__origin__), annotation.__metadata__
    return _without_none(annotation), ()


def _without_none(shape: Any) -> Any:  # noqa: ANN401 - any type
    """``X`` of ``X | None``: a key that is not there is no matter of reading."""
    if get_origin(shape) in {UnionType, Union}:
        return next(part for part in get_args(shape) if part is not type(None))
    return shape


def _node_of(default: object) -> Node:
    """A default of a model, as if it stood in the file."""
    if isinstance(default, dict):
        return Mapping(BUILT_IN, {})
    if isinstance(default, list):
        return Sequence(BUILT_IN, tuple(_node_of(item) for item in default))
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return Scalar(text, BUILT_IN)


def _key_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _item_path(path: str, index: int, item: Node) -> str:
    """By its name if it has one that can be shown, else by its index."""
    named = item.entries.get("name") if isinstance(item, Mapping) else None
    if named is not None and isinstance(named.node, Scalar) and "$" not in named.node.text:
        try:
            return f"{path}.{Name().read(named.node)}"
        except InvalidValue:
            pass
    return f"{path}[{index}]"


def _keys_of(model: type[Section]) -> str:
    """What could stand in such a section."""
    (first, model_field), *others = model.model_fields.items()
    if not others:
        return f"{{{first}: {_example(model_field)}}}"
    return f"some of {', '.join(model.model_fields)}"


def _example(model_field: FieldInfo) -> str:
    shape, metadata = _taken_apart(model_field)
    kind = next((mark for mark in metadata if isinstance(mark, ValueType)), None)
    if kind is not None:
        return f"{kind.example} (say)"
    if get_origin(shape) is list:
        _, (item_kind,) = _taken_apart(get_args(shape)[0])
        return f"[{item_kind.example}] (say)"
    return "/v1/** (say)"
