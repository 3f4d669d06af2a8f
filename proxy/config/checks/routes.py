"""Merging of policies into routes, and checks of routes against each other.

Precedence, key by key at every depth: built-in < ``defaults`` < ``policy`` (of
several the later) < the route itself.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from proxy.config.diagnostics.diagnostics import Diagnostics, InvalidValue
from proxy.config.diagnostics.nearest import meant, nearest
from proxy.config.diagnostics.position import Place
from proxy.config.read.effective import EffectiveSection
from proxy.config.read.typed_tree import (
    TypedMapping,
    TypedNode,
    TypedScalar,
    key_of,
    merge_mappings,
    scalars,
)
from proxy.config.source.nodes import Entry, Scalar
from proxy.config.values.base import Name
from proxy.config.values.paths import KNOWN_METHODS, below
from proxy.policy.routing.match import covers
from proxy.policy.routing.paths import ANY_PATH, PathIndex
from proxy.policy.settings import Match


@dataclass(frozen=True, slots=True)
class DraftRoute:
    """A route of the file before the built-in values are added."""

    written: TypedMapping
    merged: TypedMapping
    match: Match
    """The match without the parts that could not be read, so at least as wide as it is meant."""

    @property
    def path(self) -> str:
        return self.written.path

    @property
    def line(self) -> int:
        return self.written.position.line

    @property
    def has_whole_match(self) -> bool:
        return "match" in self.written.entries and "match" not in self.written.broken


def draft_routes(file: TypedMapping) -> list[DraftRoute]:
    """Return the routes in order, each merged over its policies and the defaults."""
    defaults = file.mapping("defaults")
    policies = file.mapping("policies")
    drafts = []
    for route in file.mappings("routes"):
        layers = [] if defaults is None else [defaults]
        for name in route.values("policy"):
            policy = None if policies is None else policies.mapping(name)
            layers += [] if policy is None else [policy]
        merged = route
        for layer in reversed(layers):
            merged = merge_mappings(layer, merged)
        drafts.append(DraftRoute(route, merged, _match(route)))
    return drafts


def name_routes(drafts: list[DraftRoute], diagnostics: Diagnostics) -> list[TypedMapping]:
    """Return the merged routes, each with a unique name."""
    lines: dict[str, int] = {}
    named = []
    for draft in drafts:
        scalar = _name(draft, diagnostics)
        if scalar is None:
            continue
        if scalar.value not in lines:
            lines[scalar.value] = draft.line
        elif "name" in draft.written.entries:
            diagnostics.fault(
                scalar,
                f"already the name of the route at line {lines[scalar.value]}, write another "
                f"(metrics and stored keys go by it)",
            )
        else:
            diagnostics.fault(
                scalar,
                f"this route would be called by its path, as the one at line {lines[scalar.value]} "
                f"is, write a name",
            )
        entry: Entry[TypedNode] = Entry("name", scalar.position, scalar)
        named.append(replace(draft.merged, entries={"name": entry} | draft.merged.entries))
    return named


def check_references(
    file: TypedMapping, drafts: list[DraftRoute], diagnostics: Diagnostics
) -> None:
    """Check that each upstream and policy that a route names exists, and that each is used."""
    for group, key in (("upstreams", "upstream"), ("policies", "policy")):
        table = file.mapping(group)
        if table is None and group in file.broken:
            continue
        names = {} if table is None else table.entries.keys() | table.broken
        used = set()
        is_sure = "routes" not in file.broken or "routes" in file.entries
        for draft in drafts:
            is_sure = is_sure and draft.merged.broken.isdisjoint({key, "fallback"})
            for scalar in _references(draft, key):
                used.add(scalar.value)
                if scalar.value not in names:
                    diagnostics.fault(scalar, _no_such(key, group, scalar, names))
                    is_sure = False
        # If any reference is wrong, it may be the one that uses this entry: no warning then.
        for entry in table.entries.values() if table and is_sure else ():
            if entry.key not in used:
                diagnostics.warn(
                    key_of(entry),
                    f"no route uses it, write {key}: {entry.key} in a route or remove it",
                )


def check_presence(file: TypedMapping, diagnostics: Diagnostics) -> None:
    """Warn of a file that serves nothing."""
    if not file.items("routes") and "routes" not in file.broken:
        position = file.entries["routes"].position if "routes" in file.entries else file.position
        diagnostics.warn(
            Place(position, "routes"),
            "there are none, so every request gets 404, write one with match and upstream",
        )


def check_order(drafts: list[DraftRoute], diagnostics: Diagnostics) -> None:
    """Warn of routes that are never reached, and of ``*`` where ``**`` is probably meant."""
    index = PathIndex(
        (
            (path, number)
            for number, draft in enumerate(drafts)
            if draft.has_whole_match
            for path in draft.match.paths
        ),
        frozenset(),
    )
    for number, later in enumerate(drafts):
        if "match" in later.written.entries:
            earlier = _reached_before(later.match, drafts[:number], index)
            if earlier:
                diagnostics.warn(later.written, _never_reached(later, earlier))
    if all(draft.has_whole_match for draft in drafts):
        for draft in drafts:
            _check_final_star(draft, index, diagnostics)


def _reached_before(later: Match, drafts: list[DraftRoute], index: PathIndex) -> list[DraftRoute]:
    """Return the routes before, one or several, that take every request that *later* would take.

    Several take them between them if each of its paths, with each of its methods and hosts, is
    taken by one of them. Empty if some request may get to *later*.
    """
    found: dict[int, DraftRoute] = {}
    for path in later.paths:
        # Compare only routes that match the beginning of the path: there may be thousands.
        candidates = [
            number
            for number in index.candidates(path.removesuffix(ANY_PATH))
            if number < len(drafts)
        ]
        for method, host in product(later.methods or (None,), later.hosts or (None,)):
            part = replace(
                later,
                paths=(path,),
                methods=() if method is None else (method,),
                hosts=() if host is None else (host,),
            )
            first = next((n for n in candidates if covers(drafts[n].match, part)), None)
            if first is None:
                return []
            found[first] = drafts[first]
    whole = next((draft for draft in found.values() if covers(draft.match, later)), None)
    return [found[number] for number in sorted(found)] if whole is None else [whole]


def _never_reached(later: DraftRoute, earlier: list[DraftRoute]) -> str:
    *others, last = [f"{draft.path} (line {draft.line})" for draft in earlier]
    if others:
        named = f"{', '.join(others)} and {last}"
        above = f"move it above line {earlier[0].line}"
        return f"never reached, {named} match first between them, {above}, or remove it"
    if covers(later.match, earlier[0].match):
        return f"never reached, {last} matches the same requests, remove one of them"
    return f"never reached, {last} matches first, move it above line {earlier[0].line}"


def check_methods(
    route: EffectiveSection,
    match: Match,
    diagnostics: Diagnostics,
    *,
    key: str,
    does: str,
    instead: str,
) -> None:
    """Warn where no request that the route matches has one of the methods that *key* acts on.

    Not where *key* is written in defaults or a policy: it is meant for other routes then.
    """
    entry, methods = route.entry(key), route.values(f"{key}.methods")
    if entry is None or not methods or route.writer(key) != route.path:
        return
    if match.methods and set(match.methods).isdisjoint(methods):
        diagnostics.warn(
            key_of(entry),
            f"the route matches {_listed(match.methods)} only and {key} {does} {_listed(methods)}, "
            f"remove it or {instead}",
        )


def check_method_names(drafts: list[DraftRoute], diagnostics: Diagnostics) -> None:
    """Warn of a method that is nearly one of HTTP's own: others are allowed, and rare."""
    for draft in drafts:
        match = draft.written.mapping("match")
        for item in match.scalars("methods") if match else ():
            near = "" if item.value in KNOWN_METHODS else meant(item.value, KNOWN_METHODS)
            if near and not item.written.references:
                diagnostics.warn(
                    item, f"{item.written.bare} is no method of HTTP, did you mean {near}?"
                )


def check_prefixes(drafts: list[DraftRoute], diagnostics: Diagnostics) -> None:
    """Warn of a prefix that no path of its route begins with."""
    for draft in drafts:
        scalar = draft.merged.scalar("strip_prefix")
        # A prefix in defaults is meant for those routes that it fits.
        if scalar is None or scalar.path.startswith("defaults.") or not draft.has_whole_match:
            continue
        if not any(_may_begin_with(pattern, scalar.value) for pattern in draft.match.paths):
            diagnostics.warn(
                scalar,
                f"no path of {draft.path} begins with {scalar.written.bare}, so nothing "
                f"is stripped, correct it or remove it",
            )


def _references(draft: DraftRoute, key: str) -> Iterator[TypedScalar]:
    """Yield every value by which a route names an upstream or a policy, depending on *key*."""
    node = draft.written.node(key)
    for _, scalar in scalars(node) if node else ():
        yield scalar
    fallback = draft.merged.mapping("fallback")
    named_by_fallback = fallback.scalar(key) if fallback else None
    if named_by_fallback is not None:
        yield named_by_fallback


def _match(route: TypedMapping) -> Match:
    match = route.mapping("match")
    if match is None:
        return Match()
    table = match.mapping("headers")
    headers = {} if table is None or "headers" in match.broken else table.entries
    return Match(
        paths=_readable(match, "path") or Match().paths,
        methods=_readable(match, "methods"),
        hosts=_readable(match, "host"),
        headers=tuple(
            (name, entry.node.value)
            for name, entry in headers.items()
            if isinstance(entry.node, TypedScalar)
        ),
    )


def _readable(match: TypedMapping, key: str) -> tuple[str, ...]:
    return () if key in match.broken else match.values(key)


def _name(draft: DraftRoute, diagnostics: Diagnostics) -> TypedScalar | None:
    """Return the name as written, or else the first path; None if neither is usable."""
    written = draft.written.scalar("name")
    if written is not None or "name" in draft.written.broken:
        return written
    match = draft.written.mapping("match")
    first = next(iter(match.items("path")), None) if match and draft.has_whole_match else None
    if not isinstance(first, TypedScalar):
        # A match without a path takes any path, and the route is named after that pattern.
        first = TypedScalar(draft.path, Name(), Scalar(ANY_PATH, draft.written.position), ANY_PATH)
        return first if draft.has_whole_match else None
    if first.written.references:
        problem = "the path may hold a secret, and metrics would show it"
    else:
        try:
            return TypedScalar(draft.path, Name(), first.written, Name().read(first.written))
        except InvalidValue:
            problem = "the path is too long to be a name"
    diagnostics.fault(Place(first.position, draft.path), f"{problem}, write name: hooks (say)")
    return None


def _no_such(key: str, group: str, scalar: TypedScalar, names: Collection[str]) -> str:
    if "://" in scalar.value:
        return f"a URL stands where a name belongs, write the URL in {group} and its name here"
    near = nearest(scalar.value, sorted(names))
    if near:
        hint = f'did you mean "{near}"?'
    else:
        hint = f"write one of {', '.join(sorted(names))}" if names else f"write it in {group}"
    return f"no {key} is called {scalar.written.shown}, {hint}"


def _check_final_star(draft: DraftRoute, index: PathIndex, diagnostics: Diagnostics) -> None:
    match = draft.written.mapping("match")
    for item in match.scalars("path") if match else ():
        if not item.value.endswith("/*") or item.written.references:
            continue
        probe = item.value.replace("*", "a") + "/b"
        if index.candidates(probe):
            continue
        parent = item.value.removesuffix("/*")
        everything = f"everything below {parent}" if parent else "everything"
        diagnostics.warn(
            item, f"* is one segment, so {probe} gets 404, write {below(parent)} for {everything}"
        )


def _listed(methods: Iterable[str]) -> str:
    *others, last = methods
    return f"{', '.join(others)} and {last}" if others else last


def _may_begin_with(pattern: str, prefix: str) -> bool:
    """Return whether some path that *pattern* matches begins with *prefix*."""
    wanted = prefix.split("/")
    offered = pattern.split("/")
    if offered[-1] == "**":
        offered[-1:] = ["*"] * len(wanted)
    return len(offered) >= len(wanted) and all(
        segment in {"*", want} for segment, want in zip(offered, wanted, strict=False)
    )
