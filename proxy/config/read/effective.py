"""Values as they are in force: written somewhere, or else built in."""

from proxy.config.read.reader import BUILT_IN, Reader
from proxy.config.read.typed_tree import TypedList, TypedMapping, TypedNode, TypedScalar
from proxy.config.source.nodes import Entry


class EffectiveSection:
    """What a section says once the built-in values are in, and where each value was written."""

    def __init__(self, section: TypedMapping, path: str, reader: Reader) -> None:
        self.typed = section
        """For a route: with its policies and the defaults merged in."""
        self.path = path
        """The path of the section itself."""
        self._reader = reader

    def entry(self, keys: str) -> Entry[TypedNode] | None:
        """What stands under *keys*, such as ``retry.on``.

        None if nothing does, or if nobody can tell because it could not be read.
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
        """The same, if it is a single value."""
        entry = self.entry(keys)
        return entry.node if entry is not None and isinstance(entry.node, TypedScalar) else None

    def items(self, keys: str) -> TypedList | None:
        """The same, if it is a list."""
        entry = self.entry(keys)
        return entry.node if entry is not None and isinstance(entry.node, TypedList) else None

    def writer(self, keys: str) -> str:
        """What wrote *keys*: ``routes.api``, ``policies.patient``, ``defaults``; empty: nobody."""
        entry = self.entry(keys)
        if entry is None or entry.position == BUILT_IN:
            return ""
        return entry.node.path.removesuffix(f".{keys}")

    def named(self, keys: str, *others: str) -> str:
        """`` of routes.api``, for a message at *keys* that would not show whom it harms.

        Nobody needs to be named where *keys* is written in the section itself, nor
        where it is wrong whoever uses it: *others* are then written in the same place.
        """
        writer = self.writer(keys)
        if writer == self.path or {self.writer(other) for other in others} <= {writer, ""}:
            return ""
        return f" of {self.path}"

    def _entry(self, mapping: TypedMapping, key: str) -> Entry[TypedNode] | None:
        entry = mapping.entries.get(key)
        if key in mapping.broken:
            # Of a mapping some keys may be sound; it knows which.
            is_mapping = entry is not None and isinstance(entry.node, TypedMapping)
            return entry if is_mapping and entry and not entry.node.is_whole else None
        if entry is not None or mapping.section is None:
            return entry
        built_in = self._reader.built_in(mapping.section, key)
        return None if built_in is None else Entry(key, BUILT_IN, built_in)
