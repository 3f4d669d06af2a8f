"""What has been read: settings without faults. Who only serves them needs no more of this room."""

from dataclasses import dataclass, field
from typing import Any

from proxy.config.diagnostics.diagnostics import CheckReport, Fault
from proxy.policy.settings import Settings


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration without faults."""

    settings: Settings
    report: CheckReport
    effective: dict[str, Any] = field(repr=False)
    """All of it in long form, policies merged and secrets masked; fit for JSON."""

    @property
    def warnings(self) -> tuple[Fault, ...]:
        return self.report.warnings

    @property
    def summary(self) -> str:
        """``holdfast.yaml: ok (4 routes, 2 upstreams)``."""
        counts = [
            f"{len(things)} {noun}" if len(things) == 1 else f"{len(things)} {noun}s"
            for things, noun in (
                (self.settings.routes, "route"),
                (self.settings.upstreams, "upstream"),
            )
        ]
        return self.report.summary(f"ok ({', '.join(counts)})")
