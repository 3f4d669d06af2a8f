"""Loader: files → settings, or a report of every fault."""

from collections.abc import Callable, Mapping as EnvironMapping, Sequence as SequenceOf
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from proxy.config.checks.callers import check_list_fields
from proxy.config.checks.certificates import certificate_files, check_listen_tls
from proxy.config.checks.dead_letters import check_dead_letter, check_state_dir
from proxy.config.checks.fallbacks import check_fallback
from proxy.config.checks.hand_off import check_hand_off, check_status_path, check_storage
from proxy.config.checks.idempotency import check_held_by_503, check_idempotency
from proxy.config.checks.listeners import (
    check_listeners,
    check_own_addresses,
    check_readiness,
    check_trust,
)
from proxy.config.checks.retries import (
    check_buffer,
    check_key_memory,
    check_repeats,
    check_retry,
    with_fitting_base,
)
from proxy.config.checks.routes import (
    check_method_names,
    check_order,
    check_prefixes,
    check_presence,
    check_references,
    draft_routes,
    name_routes,
)
from proxy.config.checks.stores import check_store
from proxy.config.checks.throttles import check_throttles
from proxy.config.checks.upstreams import check_upstreams, honoured_key, refused_by
from proxy.config.checks.workers import check_workers
from proxy.config.diagnostics.diagnostics import ConfigError, Diagnostics
from proxy.config.diagnostics.position import Position, Source
from proxy.config.loaded import Loaded
from proxy.config.read.defaults import complete
from proxy.config.read.effective import EffectiveSection
from proxy.config.read.provenance import Provenance
from proxy.config.read.reader import Reader
from proxy.config.read.secrets import check_secrets, effective, hidden_values
from proxy.config.read.settings import make_settings
from proxy.config.read.typed_tree import TypedList, TypedMapping
from proxy.config.schema.file import FILE
from proxy.config.source.interpolation import Interpolation
from proxy.config.source.nodes import Entry, Mapping, Node, Scalar, Sequence, merge_files
from proxy.config.source.parse import parse_file


def load(
    paths: SequenceOf[str | Path],
    environ: EnvironMapping[str, str],
    *,
    listen: SequenceOf[str] | None = None,
    admin: str | None = None,
    workers: str | None = None,
    upstream: str | None = None,
    on_read: Callable[[Path], object] = lambda _: None,
) -> Loaded:
    """Load *paths*: later files override earlier ones, *listen*, *admin* and *workers* all of them.

    Without a file, everything goes to *upstream*, a URL, under the defaults.
    *on_read* is called with every file whose content matters, before it is read and
    whether or not it exists; with some more than once.
    Raises :class:`ConfigError` with every fault at once.
    """
    options = _options(listen, admin, workers, environ.get(STATE_DIR))
    loaded, _ = _load(paths, environ, options, on_read, upstream)
    return loaded


def load_with_origins(
    paths: SequenceOf[str | Path], environ: EnvironMapping[str, str]
) -> tuple[Loaded, Provenance]:
    """Load *paths*, and return with the result where each value was written, for ``explain``."""
    return _load(paths, environ, _options(None, None, None, environ.get(STATE_DIR)), lambda _: None)


def _load(
    paths: SequenceOf[str | Path],
    environ: EnvironMapping[str, str],
    options: Mapping,
    on_read: Callable[[Path], object],
    upstream: str | None = None,
) -> tuple[Loaded, Provenance]:
    sources = tuple(
        Source(str(path), order, Path(path).absolute()) for order, path in enumerate(paths, 1)
    )
    for source in sources:
        on_read(source.path)
    diagnostics = Diagnostics()
    trees = [parse_file(source, diagnostics) for source in sources]
    if not paths and upstream is not None:
        trees.append(_everything_to(upstream))
    readable = [tree for tree in trees if tree is not None]
    # The content of a broken file is unknown, so the others cannot be checked either.
    if not readable or len(readable) < len(trees):
        raise ConfigError(diagnostics.report(sources))
    root = reduce(merge_files, [_default_state_dir(readable[0]), *readable, options])
    reader = Reader(diagnostics, Interpolation(environ, on_read))
    file = reader.read_file(root, FILE)
    for path in certificate_files(file):
        on_read(path)
    routes = _check(file, diagnostics)
    report = diagnostics.report(sources)
    if report.faults:
        raise ConfigError(report)
    merged = _with_routes(file, routes)
    whole = complete(merged)
    loaded = Loaded(
        settings=make_settings(FILE, merged),
        report=report,
        effective=_without_policies(effective(whole)),
        hidden=hidden_values(whole),
    )
    return loaded, Provenance(whole)


def _everything_to(upstream: str) -> Mapping:
    """Return what stands for a file where there is none: one route, to the URL of ``--upstream``.

    Paths are relative to the working directory.
    """
    at = Position(Source("--upstream", path=Path("without-a-file").absolute()))

    def mapping(**values: Node) -> Mapping:
        return Mapping(at, {key: Entry(key, at, value) for key, value in values.items()})

    def text(value: str) -> Scalar:
        # Not interpolated: a $ in the option stands for itself.
        return Scalar(value.replace("$", "$$"), at)

    route = mapping(name=text("all"), match=text("/**"), upstream=text("upstream"))
    return mapping(upstreams=mapping(upstream=text(upstream)), routes=Sequence(at, (route,)))


STATE_DIR = "HOLDFAST_STATE_DIR"
"""The environment variable that overrides ``state_dir``."""


def _default_state_dir(first: Mapping) -> Mapping:
    """Return a layer with the default ``state_dir``, relative to the first file."""
    position = Position(first.position.source)
    scalar = Scalar(str(FILE.written("state_dir")), position)
    return Mapping(first.position, {"state_dir": Entry("state_dir", position, scalar)})


def _options(
    listen: SequenceOf[str] | None,
    admin: str | None,
    workers: str | None,
    state_dir: str | None,
) -> Mapping:
    """Return the command-line options and the environment variable as the last layer."""
    entries: dict[str, Entry[Node]] = {}
    if listen:
        position = Position(Source("--listen"))
        items = tuple(Scalar(text, position) for text in listen)
        entries["listen"] = Entry("listen", position, Sequence(position, items))
    if admin is not None:
        position = Position(Source("--admin"))
        entries["admin"] = Entry("admin", position, Scalar(admin, position))
    if workers is not None:
        position = Position(Source("--workers"))
        entries["workers"] = Entry("workers", position, Scalar(workers, position))
    if state_dir:
        position = Position(Source(STATE_DIR))
        # Not interpolated: a $ in the variable stands for itself.
        folder = Scalar(state_dir.replace("$", "$$"), position)
        entries["state_dir"] = Entry("state_dir", position, folder)
    return Mapping(Position(Source("options")), entries)


def _check(file: TypedMapping, diagnostics: Diagnostics) -> list[TypedMapping]:
    """Run the checks that involve more than one value. Return the merged, named routes."""
    drafts = draft_routes(file)
    whole = EffectiveSection(file, "")
    check_listeners(file, diagnostics)
    check_readiness(file, diagnostics)
    check_listen_tls(file, diagnostics)
    check_trust(file, diagnostics)
    check_store(file, diagnostics)
    check_upstreams(file, diagnostics)
    check_own_addresses(file, whole, diagnostics)
    check_presence(file, diagnostics)
    check_references(file, drafts, diagnostics)
    check_order(drafts, diagnostics)
    check_method_names(drafts, diagnostics)
    check_prefixes(drafts, diagnostics)
    routes = [EffectiveSection(draft.merged, draft.path) for draft in drafts]
    for draft, route in zip(drafts, routes, strict=True):
        upstream = draft.written.scalar("upstream")
        refused = refused_by(file, upstream)
        check_retry(route, draft.match, refused, diagnostics)
        check_fallback(route, diagnostics)
        check_idempotency(route, draft.match, whole, diagnostics)
        honoured = honoured_key(file, upstream)
        if honoured is not None:
            check_key_memory(route, honoured, diagnostics)
        elif upstream is not None:
            check_held_by_503(route, upstream.value, refused, diagnostics)
            check_repeats(route, draft.match, file, upstream.value, diagnostics)
        check_buffer(route, whole, diagnostics)
        check_dead_letter(route, draft.match, diagnostics)
        check_hand_off(route, draft.match, whole, diagnostics, refused=refused, honoured=honoured)
    check_status_path(drafts, routes, whole, diagnostics)
    check_storage(routes, whole, diagnostics)
    check_state_dir(routes, whole, diagnostics)
    upstreams = file.mapping("upstreams")
    upstream_sections = [
        EffectiveSection(entry.node, entry.node.path)
        for entry in (upstreams.entries.values() if upstreams else ())
        if isinstance(entry.node, TypedMapping)
    ]
    check_throttles(routes, upstream_sections, whole, diagnostics)
    check_list_fields(drafts, routes, upstream_sections, diagnostics)
    check_workers(routes, upstream_sections, whole, diagnostics)
    check_secrets(file, diagnostics)
    named = name_routes(drafts, diagnostics)
    for keys in ("retry.backoff", "hand_off.retry.backoff"):
        named = [with_fitting_base(EffectiveSection(route, route.path), keys) for route in named]
    return named


def _with_routes(file: TypedMapping, routes: list[TypedMapping]) -> TypedMapping:
    items = TypedList("routes", file.position, tuple(routes))
    return replace(file, entries=file.entries | {"routes": Entry("routes", file.position, items)})


def _without_policies(shown: dict[str, Any]) -> dict[str, Any]:
    """Remove defaults and policies, which have been merged into the routes."""
    routes = [{key: route[key] for key in route if key != "policy"} for route in shown["routes"]]
    kept = {key: shown[key] for key in shown if key not in {"defaults", "policies"}}
    return kept | {"routes": routes}
