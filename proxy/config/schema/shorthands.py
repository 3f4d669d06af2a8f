"""Shorthands: short forms of a section or list, expanded before it is read."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.nearest import nearest
from proxy.config.diagnostics.other_products import OFF, ON
from proxy.config.source.nodes import Entry, Mapping, Node, Scalar, Sequence
from proxy.config.values.paths import instead_of_rule


class Shorthand(ABC):
    """Expands a short form into the long one, and leaves the long one unchanged."""

    @abstractmethod
    def expand(self, node: Node) -> Node:
        """Return the long form of *node*; raise :class:`InvalidValue` if it is neither form."""


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


@dataclass(frozen=True, slots=True)
class SetsKey(Shorthand):
    """A single value in place of a section: the value of its most important key."""

    key: str
    listed: bool = False
    """Whether the key takes a list, and not a single item in its place."""
    named: bool = False
    """Whether messages name the key as if it had been written."""

    def expand(self, node: Node) -> Node:
        if not isinstance(node, Scalar) or node.type == "null":
            return node
        value: Node = Sequence(node.position, (node,), implied=True) if self.listed else node
        return replace(_implied(node, {self.key: value}), implied=not self.named)


@dataclass(frozen=True, slots=True)
class ListSetsKey(Shorthand):
    """A list in place of a section: the value of the key that takes one."""

    key: str

    def expand(self, node: Node) -> Node:
        return _implied(node, {self.key: node}) if isinstance(node, Sequence) else node


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
        word = node.text.lower()
        if word in {"true", "false"}:
            raise InvalidValue(f"{node.shown} is text here, write {word} without quotes")
        near = nearest(word, ("true", "false"))
        if near:
            raise InvalidValue(f"{node.shown} is neither true nor false, did you mean {near}?")
        return node


class MethodAndPath(Shorthand):
    """``/v1/**`` or ``POST /v1/charges`` in place of a match."""

    def expand(self, node: Node) -> Node:
        if isinstance(node, Sequence):
            raise InvalidValue("a list stands where a path belongs, write match: {path: [/a, /b]}")
        if not isinstance(node, Scalar) or node.type == "null":
            return node
        rule = instead_of_rule(node.text)
        if rule:
            raise InvalidValue(f"{node.shown} is no path, write {rule}")
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


def _implied(node: Scalar | Sequence, keys: dict[str, Node]) -> Mapping:
    entries = {key: Entry(key, node.position, value) for key, value in keys.items()}
    return Mapping(node.position, entries, implied=True)
