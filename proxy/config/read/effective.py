"""Effective values of a section: as written in the file, or else the built-in default."""

from typing import Any

from proxy.config.read.defaults import BUILT_IN, built_in
from proxy.config.read.typed_tree import TypedList, TypedMapping, TypedNode, TypedScalar
from proxy.config.source.nodes import Entry


class EffectiveSection:
    """A section with its built-in defaults filled in, and where each value was written."""

    def __init__(self, section: TypedMapping, path: str) -> None:
        self.typed = section
        """The section as read; a route has its policies and ``defaults`` merged in."""
        self.path = path
        """The path of the section itself, such as ``routes.api``."""

    def entry(self, keys: str) -> Entry[TypedNode] | None:
        """Return the effective entry under *keys*, such as ``retry.on``.

        None if there is none, or if it is unknown because it could not be read.
        """
        mapping = self.typed
        *outer, last = keys.split(".")
        for key in outer:
            entry = self._entry(mapping, key)
            if entry is None or not isinstance(entry.node, TypedMapping) or entry.node.is_off:
                return None
            mapping = entry.node
        return self._entry(mapping, last)

    def scalar(self, keys: str) -> TypedScalar | None:
        """Return the effective scalar under *keys*; None if there is none."""
        entry = self.entry(keys)
        return entry.node if entry is not None and isinstance(entry.node, TypedScalar) else None

    def items(self, keys: str) -> TypedList | None:
        """Return the effective list under *keys*; None if there is none."""
        entry = self.entry(keys)
        return entry.node if entry is not None and isinstance(entry.node, TypedList) else None

    def scalars(self, keys: str) -> list[TypedScalar]:
        """Return the scalars in the effective list under *keys*; empty if there is none."""
        listed = self.items(keys)
        return [item for item in listed.items if isinstance(item, TypedScalar)] if listed else []

    def values(self, keys: str) -> list[Any]:
        """Return the values of the scalars in the effective list under *keys*."""
        return [scalar.value for scalar in self.scalars(keys)]

    def writer(self, keys: str) -> str:
        """Return the section that wrote *keys*; empty if the value is built in.

        Such as ``routes.api``, ``policies.patient`` or ``defaults``.
        """
        entry = self.entry(keys)
        if entry is None or entry.position == BUILT_IN:
            return ""
        return entry.node.path.removesuffix(f".{keys}")

    def named(self, keys: str, *others: str) -> str:
        """Return `` of routes.api``, for a message at *keys* that would not name the route.

        Empty where *keys* is written in the section itself, and where *others* are written
        in the same section as *keys*: that is wrong for every route that uses it.
        """
        writer = self.writer(keys)
        if writer == self.path or {self.writer(other) for other in others} <= {writer, ""}:
            return ""
        return f" of {self.path}"

    def _entry(self, mapping: TypedMapping, key: str) -> Entry[TypedNode] | None:
        entry = mapping.entries.get(key)
        if key in mapping.broken:
            # A mapping that is partly broken may have sound keys; its own `broken` lists the rest.
            is_mapping = entry is not None and isinstance(entry.node, TypedMapping)
            return entry if is_mapping and entry and not entry.node.is_whole else None
        if entry is not None or mapping.section is None:
            return entry
        return built_in(mapping.section, key)
