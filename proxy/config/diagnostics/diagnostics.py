"""Faults and warnings of a configuration, each with its position.

A fault is one line that says where, what is wrong and what to write instead. A fault
never shows the name of a class or a library, nor a secret.
"""

from dataclasses import dataclass
from typing import Protocol

from proxy.config.diagnostics.position import Position, Source


class Located(Protocol):
    """What a fault is about: a value of the file or a key of it (``Place``)."""

    @property
    def position(self) -> Position: ...

    @property
    def path(self) -> str: ...


class InvalidValue(Exception):
    """A value that cannot be read. The text of the exception is shown to the user."""


class InvalidSecret(InvalidValue):
    """An invalid value whose text may be shown even if the value is a secret: it quotes nothing."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One error in a configuration, or with *warning* something that is probably not meant."""

    file: str
    line: int
    column: int
    path: str
    """Path of the key, joined by dots, such as ``routes.charges.timeout``; may be empty."""
    text: str
    warning: bool = False

    def __str__(self) -> str:
        """Format the fault as the one line that users, editors and CI read."""
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        parts = [where, self.path, "warning" if self.warning else "", self.text]
        return _on_one_line(": ".join(part for part in parts if part))


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All faults and warnings of one configuration, in the order of its files."""

    files: tuple[str, ...]
    diagnostics: tuple[Fault, ...]
    """Faults and warnings."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(fault for fault in self.diagnostics if not fault.warning)

    @property
    def warnings(self) -> tuple[Fault, ...]:
        return tuple(fault for fault in self.diagnostics if fault.warning)

    def summary(self, verdict: str = "ok") -> str:
        """Format the last line: *verdict* if there are no faults, then the counts."""
        counts = [] if self.faults else [verdict]
        counts += [
            f"{len(found)} {noun}" if len(found) == 1 else f"{len(found)} {noun}s"
            for found, noun in ((self.faults, "fault"), (self.warnings, "warning"))
            if found
        ]
        return _on_one_line(f"{', '.join(self.files)}: {', '.join(counts)}")


class ConfigError(Exception):
    """The configuration has faults and cannot be used; carries the report."""

    def __init__(self, report: CheckReport) -> None:
        super().__init__("\n".join(str(fault) for fault in report.diagnostics))
        self.report = report


class Diagnostics:
    """Collects faults and warnings while a configuration is read."""

    def __init__(self) -> None:
        self._faults: list[tuple[Position, Fault]] = []

    def fault(self, at: Located, text: str) -> None:
        """Record a fault: the configuration cannot be used until it is corrected."""
        self._add(at, text, warning=False)

    def warn(self, at: Located, text: str) -> None:
        """Record a warning: the value is allowed, but probably not meant."""
        self._add(at, text, warning=True)

    def report(self, sources: tuple[Source, ...]) -> CheckReport:
        """Return all faults and warnings, sorted by source, line and column."""
        in_order = sorted(
            self._faults, key=lambda found: (found[0].source.order, found[0].line, found[0].column)
        )
        # A YAML alias shows one value under several keys: report the same text once.
        unique = dict.fromkeys(fault for _, fault in in_order)
        return CheckReport(tuple(source.name for source in sources), tuple(unique))

    def _add(self, at: Located, text: str, *, warning: bool) -> None:
        position = at.position
        # A command-line option has no line, and its name already says which key is meant.
        path = at.path if position.line else ""
        fault = Fault(position.source.name, position.line, position.column, path, text, warning)
        self._faults.append((position, fault))


def _on_one_line(text: str) -> str:
    """Escape everything in *text* that could break the line or control the terminal."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
