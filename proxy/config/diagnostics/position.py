"""Positions in the configuration: a source, a line and a column."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Source:
    """An origin of configuration values: a file, or an option of the command line."""

    name: str
    """The name as the user wrote it."""
    order: int = 0
    """The number of this source among all; faults are sorted by it."""
    path: Path = field(default_factory=Path)
    """The absolute path of a file; unused for options."""

    @property
    def directory(self) -> Path:
        """The folder to which relative paths in this source are relative."""
        return self.path.parent


@dataclass(frozen=True, slots=True)
class Position:
    """A line and column of a source, counted from 1; line 0 where a source has no lines."""

    source: Source
    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """A position, and the path of the key that stands there."""

    position: Position
    path: str
    """Joined by dots, such as ``routes.charges.timeout``; may be empty."""
