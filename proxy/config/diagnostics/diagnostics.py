"""What is wrong with a configuration, and where it stands.

A fault is one line that says where, what is wrong and what to write instead. It
never shows a class, a library or a secret.
"""

from dataclasses import dataclass

from proxy.config.diagnostics.position import Position, Source


class InvalidValue(Exception):
    """A value that cannot be read. Its text is what the user is told."""


class InvalidSecret(InvalidValue):
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
class CheckReport:
    """Everything that was found, in the order of the files."""

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
        """The last line: what *verdict* says if there are no faults, and the counts."""
        counts = [] if self.faults else [verdict]
        counts += [
            f"{len(found)} {noun}" if len(found) == 1 else f"{len(found)} {noun}s"
            for found, noun in ((self.faults, "fault"), (self.warnings, "warning"))
            if found
        ]
        return _on_one_line(f"{', '.join(self.files)}: {', '.join(counts)}")


class ConfigError(Exception):
    """The configuration has faults, so there is nothing to run with."""

    def __init__(self, report: CheckReport) -> None:
        super().__init__("\n".join(str(fault) for fault in report.diagnostics))
        self.report = report


class Diagnostics:
    """Collects what is wrong while a configuration is read."""

    def __init__(self) -> None:
        self._faults: list[tuple[Position, Fault]] = []

    def fault(self, position: Position, path: str, text: str) -> None:
        """Note something that must be put right."""
        self._add(position, path, text, warning=False)

    def warn(self, position: Position, path: str, text: str) -> None:
        """Note something that is allowed but probably not meant."""
        self._add(position, path, text, warning=True)

    def report(self, sources: tuple[Source, ...]) -> CheckReport:
        """All findings, sorted by where they stand."""
        in_order = sorted(
            self._faults, key=lambda found: (found[0].source.order, found[0].line, found[0].column)
        )
        # An alias shows one value in several places: the same words once are enough.
        unique = dict.fromkeys(fault for _, fault in in_order)
        return CheckReport(tuple(source.name for source in sources), tuple(unique))

    def _add(self, position: Position, path: str, text: str, *, warning: bool) -> None:
        # An option of the command line is its own path.
        path = path if position.line else ""
        self._faults.append(
            (
                position,
                Fault(position.source.name, position.line, position.column, path, text, warning),
            )
        )


def _on_one_line(text: str) -> str:
    """*text* with everything escaped that could break the line or the terminal."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
