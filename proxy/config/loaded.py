"""The result of loading: settings without faults.

Importing this module imports neither the loader nor the schema: a worker needs no more.
"""

from dataclasses import dataclass, field
from typing import Any

from proxy.config.diagnostics.diagnostics import CheckReport, Fault
from proxy.policy.settings import Settings


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded configuration without faults."""

    settings: Settings
    report: CheckReport
    effective: dict[str, Any] = field(repr=False)
    """The whole configuration in long form, policies merged and secrets masked; fit for JSON."""

    @property
    def warnings(self) -> tuple[Fault, ...]:
        return self.report.warnings

    @property
    def store_url(self) -> str:
        """The URL of the store, masked: what an operator knows it by."""
        return str(self.effective["store"]["url"])

    @property
    def summary(self) -> str:
        """The last line of ``check``: ``holdfast.yaml: ok (4 routes, 2 upstreams)``."""
        counts = [
            f"{len(things)} {noun}" if len(things) == 1 else f"{len(things)} {noun}s"
            for things, noun in (
                (self.settings.routes, "route"),
                (self.settings.upstreams, "upstream"),
            )
        ]
        return self.report.summary(f"ok ({', '.join(counts)})")
