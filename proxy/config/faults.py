"""What is wrong with a configuration, and where it stands.

A fault is one line that says where, what is wrong and what to write instead. It
never shows a class, a library or a secret.
"""

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
class Spot:
    """A place in a source, counted from 1; line 0 where a source has no lines."""

    source: Source
    line: int = 0
    column: int = 0


class Mistake(Exception):
    """A value that cannot be read. Its text is what the user is told."""


class DiscreetMistake(Mistake):
    """The same, with a text that shows nothing of the value, even if that is a secret."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, or with *warning* one that is probably not meant."""

    file: str
    line: int
    column: int
    path: str
    """Keys joined by dots, such as ``routes.charges.timeout``; may be empty."""
    text: str
    warning: bool = False

    def __str__(self) -> str:
        """The line that users, editors and CI read."""
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        parts = [where, self.path, "warning" if self.warning else "", self.text]
        return _on_one_line(": ".join(part for part in parts if part))


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was found, in the order of the files."""

    files: tuple[str, ...]
    findings: tuple[Fault, ...]
    """Faults and warnings."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(finding for finding in self.findings if not finding.warning)

    @property
    def warnings(self) -> tuple[Fault, ...]:
        return tuple(finding for finding in self.findings if finding.warning)

    def summary(self, praise: str = "ok") -> str:
        """The last line: what *praise* says if there are no faults, and the counts."""
        counts = [] if self.faults else [praise]
        counts += [
            f"{len(found)} {noun}" if len(found) == 1 else f"{len(found)} {noun}s"
            for found, noun in ((self.faults, "fault"), (self.warnings, "warning"))
            if found
        ]
        return _on_one_line(f"{', '.join(self.files)}: {', '.join(counts)}")


class ConfigError(Exception):
    """The configuration has faults, so there is nothing to run with."""

    def __init__(self, report: Report) -> None:
        super().__init__("\n".join(str(finding) for finding in report.findings))
        self.report = report


class Findings:
    """Collects what is wrong while a configuration is read."""

    def __init__(self) -> None:
        self._found: list[tuple[Spot, Fault]] = []

    def fault(self, spot: Spot, path: str, text: str) -> None:
        """Note something that must be put right."""
        self._add(spot, path, text, warning=False)

    def warn(self, spot: Spot, path: str, text: str) -> None:
        """Note something that is allowed but probably not meant."""
        self._add(spot, path, text, warning=True)

    def report(self, sources: tuple[Source, ...]) -> Report:
        """All findings, sorted by where they stand."""
        in_order = sorted(
            self._found, key=lambda found: (found[0].source.order, found[0].line, found[0].column)
        )
        # An alias shows one value in several places: the same words once are enough.
        unique = dict.fromkeys(fault for _, fault in in_order)
        return Report(tuple(source.name for source in sources), tuple(unique))

    def _add(self, spot: Spot, path: str, text: str, *, warning: bool) -> None:
        # An option of the command line is its own path.
        path = path if spot.line else ""
        self._found.append(
            (spot, Fault(spot.source.name, spot.line, spot.column, path, text, warning))
        )


def _on_one_line(text: str) -> str:
    """*text* with everything escaped that could break the line or the terminal."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
