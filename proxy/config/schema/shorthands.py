"""Shorthands: short forms of a section or list, expanded before it is read."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.other_products import OFF, ON
from proxy.config.source.nodes import Entry, Mapping, Node, Scalar, Sequence
from proxy.config.values.base import JsonSchema, Switch, ValueType, string_schema
from proxy.config.values.throttling import two_keys_error


class Shorthand(ABC):
    """Expands a short form into the long one, and leaves the long one unchanged."""

    @abstractmethod
    def expand(self, node: Node) -> Node:
        """Return the long form of *node*; raise :class:`InvalidValue` if it is neither form."""

    @abstractmethod
    def json_schema(self, long: JsonSchema) -> JsonSchema:
        """Return the JSON Schema of the short form, which is accepted besides *long*."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchema:
        long = handler(core_schema)
        return {"anyOf": [self.json_schema(long), long]}


@dataclass(frozen=True, slots=True)
class OneOrMore(Shorthand):
    """A single item in place of a list."""

    none: bool = False
    """Whether ``none`` can be written for an empty list."""
    nothing: str = ""
    """What to write for an empty list, where a key without a value is refused; empty: it is not."""

    def expand(self, node: Node) -> Node:
        is_nothing = isinstance(node, Scalar) and node.type == "null"
        if is_nothing and self.nothing:
            raise InvalidValue(f"there is no value, {self.nothing}")
        if isinstance(node, Sequence) or is_nothing:
            return node
        if self.none and isinstance(node, Scalar) and node.text == "none":
            return Sequence(node.position, (), implied=True)
        return Sequence(node.position, (node,), implied=True)

    def json_schema(self, long: JsonSchema) -> JsonSchema:
        # A list that may be absent is described as that list or null.
        array: JsonSchema = next(form for form in (*long.get("anyOf", ()), long) if "items" in form)
        items: JsonSchema = array["items"]
        return {"anyOf": [{"const": "none"}, items]} if self.none else items


@dataclass(frozen=True, slots=True)
class SetsKey(Shorthand):
    """A single value in place of a mapping: the value of its most important key."""

    key: str
    value_type: ValueType[Any]
    """The type of the value."""
    listed: bool = False
    """Whether the key takes a list."""
    named: bool = False
    """Whether messages name the key as if it had been written."""

    def expand(self, node: Node) -> Node:
        if not isinstance(node, Scalar) or node.type == "null":
            return node
        value: Node = Sequence(node.position, (node,), implied=True) if self.listed else node
        return replace(_implied(node, {self.key: value}), implied=not self.named)

    def json_schema(self, long: JsonSchema) -> JsonSchema:  # noqa: ARG002 - the value type knows
        return self.value_type.json_schema()


class Switchable(Shorthand):
    """``false`` switches a section off, ``true`` on, with the values of the rest of the file."""

    def expand(self, node: Node) -> Node:
        if not isinstance(node, Scalar):
            return node
        if node.type == "null":
            raise InvalidValue("there is no value, write true to switch it on or false for off")
        if node.type == "bool":
            return replace(_implied(node, {}), is_off=node.text[0] in "fF")
        if node.text in OFF:
            raise InvalidValue(
                f"{node.shown} is neither true nor false, write false to switch it off"
            )
        if node.text in ON:
            raise InvalidValue(
                f"{node.shown} is neither true nor false, write true to switch it on"
            )
        return node

    def json_schema(self, long: JsonSchema) -> JsonSchema:  # noqa: ARG002 - nothing to add
        return Switch().json_schema()


@dataclass(frozen=True, slots=True)
class JoinedByColon(Shorthand):
    """No short form: suggests what to write for ``{header: X-Tenant}`` where one value belongs."""

    before: str = "key: "
    """The text before the value in the suggestion; empty for an item of a list."""

    def expand(self, node: Node) -> Node:
        entry = next(iter(node.entries.values()), None) if isinstance(node, Mapping) else None
        if entry is None or not isinstance(entry.node, Scalar) or "$" in entry.node.text:
            return node
        raise InvalidValue(two_keys_error(entry.key, entry.node.text, self.before))

    def json_schema(self, long: JsonSchema) -> JsonSchema:
        return long


class MethodAndPath(Shorthand):
    """``/v1/**`` or ``POST /v1/charges`` in place of a match."""

    def expand(self, node: Node) -> Node:
        if isinstance(node, Sequence):
            raise InvalidValue("a list stands where a path belongs, write match: {path: [/a, /b]}")
        if not isinstance(node, Scalar) or node.type == "null":
            return node
        words = [replace(node, text=word, plain=False) for word in node.text.split()]
        if len(words) == 1:
            return _implied(node, {"path": Sequence(node.position, tuple(words), implied=True)})
        if len(words) != 2:
            raise InvalidValue(f"{node.shown} is no path, write /v1/** or POST /v1/charges (say)")
        method, path = words
        return _implied(
            node,
            {
                "path": Sequence(node.position, (path,), implied=True),
                "methods": Sequence(node.position, (method,), implied=True),
            },
        )

    def json_schema(self, long: JsonSchema) -> JsonSchema:  # noqa: ARG002 - nothing to add
        return string_schema(r"^([A-Z]+ +)?/\S*$")


def _implied(node: Scalar, keys: dict[str, Node]) -> Mapping:
    entries = {key: Entry(key, node.position, value) for key, value in keys.items()}
    return Mapping(node.position, entries, implied=True)
