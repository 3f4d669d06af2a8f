"""How a reload ends: what it has changed, and what a reload cannot change."""

import logging
from collections.abc import Sequence

from proxy.admin.process import Reloaded
from proxy.config import CheckReport, Loaded
from proxy.config.changes import Change, changes_between, renamed_routes
from proxy.policy.settings import Settings

_log = logging.getLogger("holdfast")

_MOST_NAMED = 10
"""Changes that the log names, so that its line stays readable."""


def reloaded(before: Loaded, after: Loaded) -> Reloaded:
    """Log and return what the reload from *before* to *after*, which is in force, has changed."""
    changes = changes_between(before, after)
    files = after.report.files
    _log.info("configuration reloaded: %s", _summary(changes, has_file=bool(files)))
    warnings = [*map(str, after.warnings), *renamed_routes(before, after)]
    for warning in warnings:
        _log.warning("%s", warning)
    return Reloaded((), warnings, [change.to_json() for change in changes], files)


def refused(faults: Sequence[str], warnings: Sequence[str] = ()) -> Reloaded:
    """Log and return why a configuration was not put in force."""
    for fault in faults:
        _log.error("reload refused: %s", fault)
    for warning in warnings:
        _log.warning("%s", warning)
    return Reloaded(faults, warnings)


def faulty(report: CheckReport) -> Reloaded:
    """Log and return what is wrong with a configuration that cannot be used."""
    return refused([*map(str, report.faults)], [*map(str, report.warnings)])


def _summary(changes: list[Change], *, has_file: bool) -> str:
    if not changes:
        return "nothing changed" if has_file else "nothing changed, there is no file to read"
    named = [f"{change.path} ({change.kind})" for change in changes[:_MOST_NAMED]]
    more = [f"and {len(changes) - _MOST_NAMED} more"] if len(changes) > _MOST_NAMED else []
    return ", ".join(named + more)


def needs_restart(old: Settings, new: Settings) -> list[str]:
    """List what a reload cannot apply, one line each."""
    pairs = (
        ("listen", old.listen, new.listen),
        ("admin", old.admin, new.admin),
        ("workers", old.workers, new.workers),
        ("store", old.store, new.store),
        ("state_dir", old.state_dir, new.state_dir),
    )
    return [
        f"{key}: changed, and that needs a restart; write it as it was to reload the rest"
        for key, before, after in pairs
        if before != after
    ]
