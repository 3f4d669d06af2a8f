"""A route's ``headers``: fields to put in place of what is there, or to take out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeaderEdits:
    """Fields to put in place of what is there, and fields to take out."""

    set: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()
    """Names in lower case."""


NO_EDITS = HeaderEdits()


@dataclass(frozen=True, slots=True)
class CompiledEdits:
    """Header edits in the form in which they are applied."""

    names: frozenset[bytes]
    """Fields that must not stay as they came, in lower case."""
    lines: tuple[bytes, ...]
    """What is put in their place."""

    def apply(self, lines: list[bytes]) -> list[bytes]:
        """*lines* (each one field), edited."""
        kept = [line for line in lines if line.partition(b":")[0].lower() not in self.names]
        kept += self.lines
        return kept


def compile_edits(edits: HeaderEdits) -> CompiledEdits | None:
    """Made ready once, at load time; None if there is nothing to do."""
    if not edits.set and not edits.remove:
        return None
    names = (*edits.remove, *(name.lower() for name, _ in edits.set))
    lines = tuple(f"{name}: {value}".encode("latin-1") for name, value in edits.set)
    return CompiledEdits(frozenset(name.encode() for name in names), lines)
