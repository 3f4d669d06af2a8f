"""A route's ``headers``: fields to set in place of those received, and fields to remove."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeaderEdits:
    """Fields to set in place of those received, and fields to remove."""

    set: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()
    """Names in lower case."""


NO_EDITS = HeaderEdits()


@dataclass(frozen=True, slots=True)
class CompiledEdits:
    """Header edits as bytes, ready to be applied to a head."""

    names: frozenset[bytes]
    """Fields that are removed or replaced, in lower case."""
    lines: tuple[bytes, ...]
    """Fields that are set, a line each."""

    def apply(self, lines: list[bytes]) -> list[bytes]:
        """Return *lines* (each one field), edited."""
        kept = [line for line in lines if line.partition(b":")[0].lower() not in self.names]
        kept += self.lines
        return kept


def compile_edits(edits: HeaderEdits) -> CompiledEdits | None:
    """Compile a route's edits once, at load time; None if there are none."""
    if not edits.set and not edits.remove:
        return None
    names = (*edits.remove, *(name.lower() for name, _ in edits.set))
    lines = tuple(f"{name}: {value}".encode("latin-1") for name, value in edits.set)
    return CompiledEdits(frozenset(name.encode() for name in names), lines)
