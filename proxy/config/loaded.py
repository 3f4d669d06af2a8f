"""The result of loading: settings without faults.

Importing this module imports neither the loader nor the schema: a worker needs no more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.config.diagnostics.diagnostics import CheckReport, Fault
from proxy.policy.explain_command import ExplainContext
from proxy.policy.settings import Settings

HiddenValues = Mapping[tuple[str, ...], bytes]
"""A digest of each value that is masked, by its path: to tell whether it has changed."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded configuration without faults."""

    settings: Settings
    report: CheckReport
    effective: dict[str, Any] = field(repr=False)
    """The whole configuration in long form, policies merged and secrets masked; fit for JSON."""
    hidden: HiddenValues = field(default_factory=dict, repr=False)

    @property
    def warnings(self) -> tuple[Fault, ...]:
        return self.report.warnings

    def explain_context(self) -> ExplainContext:
        """Return what requests are explained by, after the fact."""
        shown = {
            (route["name"], name.lower(), value)
            for route in self.effective.get("routes", ())
            for name, value in (route["match"].get("headers") or {}).items()
        }
        masked = frozenset(
            (route.name, name)
            for route in self.settings.routes
            for name, value in route.match.headers
            if (route.name, name, value) not in shown
        )
        return ExplainContext(self.report.files, self.settings, masked)

    @property
    def store_url(self) -> str:
        """The URL of the store, masked: what an operator knows it by."""
        return str(self.effective["store"]["url"])

    @property
    def summary(self) -> str:
        """The last line of ``check``: ``holdfast.yaml: ok (4 routes, 2 upstreams); …``."""
        counts = [
            f"{len(things)} {noun}" if len(things) == 1 else f"{len(things)} {noun}s"
            for things, noun in (
                (self.settings.routes, "route"),
                (self.settings.upstreams, "upstream"),
            )
        ]
        verdict = self.report.summary(f"ok ({', '.join(counts)})")
        *others, last = self.not_checked
        listed = f"{', '.join(others)} and {last}" if others else last
        return f"{verdict}; not checked: whether {listed}"

    @property
    def not_checked(self) -> tuple[str, ...]:
        """What a file cannot tell, and only a start shows; each completes ``whether …``."""
        settings, store = self.settings, self.settings.store
        found = ["upstreams answer"] if settings.upstreams else []
        if store.shares_limits:  # it is a server
            found = ["upstreams and the store answer" if found else "the store answers"]
        found.append("addresses are free")
        writable = ["the store"] if store.shares_keys and not store.shares_limits else []
        if any(route.dead_letter is not None for route in settings.routes):
            writable.append("state_dir")
        if writable:
            found.append(f"{' and '.join(writable)} can be written")
        return tuple(found)
