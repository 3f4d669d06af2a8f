"""Where something stands: a source and a place in it."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Source:
    """Something that holds configuration: a file, or an option of the command line."""

    name: str
    """As the user wrote it."""
    order: int = 0
    """Its place among the sources; faults are sorted by it."""
    path: Path = field(default_factory=Path)
    """Of a file: where it is."""

    @property
    def directory(self) -> Path:
        """What relative paths in it are relative to."""
        return self.path.parent


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a source, counted from 1; line 0 where a source has no lines."""

    source: Source
    line: int = 0
    column: int = 0
