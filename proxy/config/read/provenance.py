"""Provenance: every effective value, with the position at which it was written.

Values keep their positions while files, defaults, policies and routes are merged, so
that each value shows which of them won.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.config.diagnostics.position import Position
from proxy.config.read.defaults import BUILT_IN
from proxy.config.read.secrets import shown
from proxy.config.read.typed_tree import TypedMapping, TypedNode
from proxy.config.schema.route import ROUTE
from proxy.config.schema.upstream import UPSTREAM
from proxy.config.source.nodes import Entry


@dataclass(frozen=True, slots=True)
class Setting:
    """One key, its effective value, and where that was written."""

    keys: tuple[str, ...]
    """The path of the key below its route or upstream: ``("retry", "backoff", "base")``."""
    value: object
    """The value as it could be written in a file, in long form and with secrets masked.

    True for a mapping whose own keys follow, False for one that is switched off."""
    where: str
    """``built-in``, or file and line: ``holdfast.yaml:12``."""
    writer: str
    """The section that wrote it: ``defaults``, ``policies.patient``, ``routes.api``,
    ``upstreams.search``; empty if it is built in."""
    is_section: bool = False
    """Whether the key takes a mapping, even if that is switched off."""

    @property
    def is_built_in(self) -> bool:
        return not self.writer


class Provenance:
    """The effective values of a configuration without faults, each with where it was written."""

    def __init__(self, whole: TypedMapping) -> None:
        """Take the complete typed tree *whole*: routes merged, built-in defaults filled in."""
        self._whole = whole

    def of_route(self, name: str) -> list[Setting]:
        """Return the effective settings of the route called *name*, in the schema's order."""
        routes = self._whole.mappings("routes")
        route = next(item for item in routes if (of := item.scalar("name")) and of.value == name)
        policies = [f"policies.{policy}" for policy in route.values("policy")]
        writers = ["defaults", *policies, route.path]
        return list(_settings(route, writers, [*ROUTE.keys]))

    def of_upstream(self, name: str) -> list[Setting]:
        """Return the effective settings of the upstream called *name*, in the schema's order."""
        upstreams = self._whole.mapping("upstreams")
        upstream = None if upstreams is None else upstreams.mapping(name)
        if upstream is None:
            raise KeyError(name)
        return list(_settings(upstream, [upstream.path], [*UPSTREAM.keys]))


def _settings(
    mapping: TypedMapping, writers: list[str], order: list[str], outer: tuple[str, ...] = ()
) -> Iterator[Setting]:
    """Yield every key of *mapping* and of the mappings in it."""
    rank = {key: number for number, key in enumerate(order)}
    # Names that the user chose, such as those of header fields, keep the order of the file.
    for entry in sorted(mapping.entries.values(), key=lambda entry: rank.get(entry.key, 0)):
        keys, node = (*outer, entry.key), entry.node
        where, writer = _where(entry.position), _writer(entry, writers)
        if not isinstance(node, TypedMapping) or not (node.section or node.entries):
            yield Setting(keys, shown(node, entry.key), where, writer)
            continue
        yield Setting(keys, not node.is_off, where, writer, is_section=True)
        if not node.is_off:
            inner = [*node.section.keys] if node.section else []
            yield from _settings(node, writers, inner, keys)


def _where(position: Position) -> str:
    if position == BUILT_IN:
        return "built-in"
    return f"{position.source.name}:{position.line}"


def _writer(entry: Entry[TypedNode], writers: list[str]) -> str:
    """Return which of *writers* wrote *entry*; empty if it is built in."""
    if entry.position == BUILT_IN:
        return ""
    path = entry.node.path
    found = [name for name in writers if path == name or path.startswith((f"{name}.", f"{name}["))]
    # The longest match: policies may be called `slow` and `slow.api`.
    return max(found, key=len, default=writers[-1])
