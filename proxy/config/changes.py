"""What differs between two configurations, key by key: what a reload has changed.

Compared is what is in force, in long form: a value that moved from ``defaults`` to a route has not
changed. Values that are masked are compared by a digest, and shown masked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from proxy.config.loaded import HiddenValues, Loaded

_Path = tuple[str, ...]


class ChangeKind(StrEnum):
    """How a key differs."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REORDERED = "reordered"


@dataclass(frozen=True, slots=True)
class Change:
    """A key that differs. Only a changed one has values: they fit into JSON."""

    path: str
    """Joined by dots, such as ``routes.charges.timeout``."""
    kind: ChangeKind
    before: object = None
    after: object = None

    def to_json(self) -> dict[str, object]:
        """Return the change as the admin listener has it."""
        content: dict[str, object] = {"path": self.path, "change": self.kind.value}
        if self.kind is ChangeKind.CHANGED:
            content |= {"from": self.before, "to": self.after}
        return content


def changes_between(before: Loaded, after: Loaded) -> list[Change]:
    """Return every difference, in the order of the new configuration."""
    one, other = (_by_name(loaded.effective) for loaded in (before, after))
    # Mostly no hidden value has changed, and then what is equal need not be walked through.
    hidden = ({}, {}) if before.hidden == after.hidden else (before.hidden, after.hidden)
    found = list(_compare((), one, other, *hidden))
    routes, now = (list(_mapping(shown.get("routes"))) for shown in (one, other))
    both = set(routes) & set(now)
    if [name for name in routes if name in both] != [name for name in now if name in both]:
        found.append(Change("routes", ChangeKind.REORDERED))
    return found


def renamed_routes(before: Loaded, after: Loaded) -> list[str]:
    """Return a warning for each route with idempotency keys that has another name now.

    Its keys and limits go by the name. A route that matches the same as one that is gone is taken
    to be that one.
    """
    names = {route.name for route in after.settings.routes}
    gone = {
        route.match: route.name
        for route in before.settings.routes
        if route.name not in names and route.idempotency is not None
    }
    known = {route.name for route in before.settings.routes}
    return [
        f"routes.{route.name}: warning: it was called {gone[route.match]}, and idempotency keys "
        f"go by the name of their route, so a duplicate of an earlier request runs again; write "
        f"name: {gone[route.match]} to prevent that"
        for route in after.settings.routes
        if route.name not in known and route.idempotency is not None and route.match in gone
    ]


def _by_name(effective: Mapping[str, object]) -> dict[str, object]:
    """Return a configuration whose routes are found by their names, as upstreams are."""
    routes = effective.get("routes")
    listed = routes if isinstance(routes, list) else []
    return {**effective, "routes": {str(route["name"]): route for route in listed}}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _compare(
    path: _Path, before: object, after: object, hidden: HiddenValues, hidden_now: HiddenValues
) -> Iterator[Change]:
    if not hidden and not hidden_now and before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        # Removed keys come last.
        for key in (*after, *(key for key in before if key not in after)):
            below = (*path, str(key))
            if key not in before:
                yield Change(".".join(below), ChangeKind.ADDED)
            elif key not in after:
                yield Change(".".join(below), ChangeKind.REMOVED)
            else:
                yield from _compare(below, before[key], after[key], hidden, hidden_now)
    elif before != after or hidden.get(path) != hidden_now.get(path):
        yield Change(".".join(path), ChangeKind.CHANGED, before, after)
