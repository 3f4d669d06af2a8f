"""Checks of the idempotency of a route."""

from proxy.config.checks.routes import check_methods
from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.read.effective import EffectiveSection
from proxy.config.read.typed_tree import TypedMapping, key_of
from proxy.config.values.idempotency import KEPT_CLASSES, kept_statuses
from proxy.policy.settings import Match

_UNAVAILABLE = 503
_SUCCESS = kept_statuses("2xx")
_USUAL = frozenset[int]().union(*map(kept_statuses, KEPT_CLASSES))


def check_idempotency(
    route: EffectiveSection, match: Match, file: EffectiveSection, diagnostics: Diagnostics
) -> None:
    """Check methods, scope, stored responses and times of a route with idempotency."""
    if route.typed.mapping("idempotency") is None:
        return
    check_methods(
        route, match, diagnostics, key="idempotency", does="acts on", instead="widen match.methods"
    )
    _check_scope(route, diagnostics)
    _check_kept(route, diagnostics)
    _check_held(route, file, diagnostics)
    _check_size(route, file, diagnostics)
    _check_time(route, diagnostics)
    _check_edits(route, diagnostics)


def check_held_by_503(
    route: EffectiveSection, upstream: str, refused: frozenset[int], diagnostics: Diagnostics
) -> None:
    """Warn where each 503 of a load balancer would hold a key.

    *upstream* honours no keys, and says by the statuses *refused* that it did not do the work.
    """
    ambiguous = route.scalar("idempotency.on_ambiguous")
    if ambiguous is None or ambiguous.value != "hold" or _UNAVAILABLE in refused:
        return
    if any(_UNAVAILABLE in kept_statuses(item) for item in route.values("idempotency.keep")):
        return
    added = ", ".join(map(str, sorted({*refused, _UNAVAILABLE})))
    diagnostics.warn(
        ambiguous,
        f"each 503 holds a key{route.named('idempotency.on_ambiguous')}, also that of a load "
        f"balancer with no server, write honours_key: true in upstreams.{upstream} if it runs a "
        f"request with the same key once, or refused: [{added}] if its 503 says that it did "
        f"nothing",
    )


def _check_scope(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Check that ``scope`` names a header if callers must identify themselves by one."""
    required, scope = route.scalar("idempotency.scope_required"), route.items("idempotency.scope")
    if required is None or not required.value or scope is None or scope.items:
        return
    diagnostics.fault(
        required,
        f"no caller{route.named('idempotency.scope_required', 'idempotency.scope')} could pass, "
        f"since scope names no header, write scope: [header:Authorization] (say) or "
        f"scope_required: false",
    )


def _check_kept(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn of a ``keep`` that was probably meant to add to the built-in list."""
    entry, kept = route.entry("idempotency.keep"), route.values("idempotency.keep")
    if entry is None or not kept or not route.writer("idempotency.keep"):
        return
    if any(kept_statuses(item) & _SUCCESS for item in kept):
        return
    added = [str(item) for item in kept if not kept_statuses(item) <= _USUAL]
    instead = ", ".join([*KEPT_CLASSES, *added])
    purpose = f"add {', '.join(added)}" if added else "keep these too"
    diagnostics.warn(
        key_of(entry),
        f"this list replaces the built-in one, so no success is kept and a duplicate runs again, "
        f"write keep: [{instead}] to {purpose}",
    )


def _check_held(route: EffectiveSection, file: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn where a restart forgets keys that are to be held until a person releases them."""
    ambiguous, store = route.scalar("idempotency.on_ambiguous"), file.scalar("store.url")
    if ambiguous is None or ambiguous.value != "hold" or store is None or store.value is not None:
        return
    diagnostics.warn(
        ambiguous,
        "memory forgets at a restart what is held, write store: sqlite:PATH or store: redis://… at "
        "the top of the file",
    )


def _check_size(route: EffectiveSection, file: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn if the largest response that may be kept exceeds the memory for all of them."""
    largest, memory = route.scalar("idempotency.max_response"), file.scalar("store.bytes")
    store = file.scalar("store.url")
    if largest is None or memory is None or store is None or store.value is not None:
        return
    if largest.value <= memory.value:
        return
    instead = "write a larger bytes or a smaller max_response"
    if route.writer("idempotency.max_response"):
        diagnostics.warn(
            largest,
            f"{largest.written.bare} is above store.bytes {memory.written.bare}, so a response "
            f"that large is never kept, {instead}",
        )
    else:
        diagnostics.warn(
            memory,
            f"{memory.written.bare} is below idempotency.max_response {largest.written.bare}, so a "
            f"response that large is never kept, {instead}",
        )


def _check_time(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn where a request may take longer than ``ttl``, after which its key is forgotten."""
    ttl, timeout = route.scalar("idempotency.ttl"), route.scalar("timeout")
    if ttl is None or timeout is None or timeout.value is None or ttl.value >= timeout.value:
        return
    of = route.named("idempotency.ttl", "timeout")
    if route.writer("idempotency.ttl"):
        diagnostics.warn(
            ttl,
            f"{ttl.written.bare} is below timeout {timeout.written.bare}{of}, so a request that "
            f"takes longer loses its key while it runs, write a longer ttl or a shorter timeout",
        )
    else:
        diagnostics.warn(
            timeout,
            f"{timeout.written.bare} is above idempotency.ttl {ttl.written.bare}, so a request "
            f"that takes longer loses its key while it runs, write a longer ttl or a shorter "
            f"timeout",
        )


def _check_edits(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn where the upstream would not get the key that the caller sent."""
    header = route.scalar("idempotency.header")
    if header is None:
        return
    name = header.value.lower()
    replaced = route.entry("headers.request.set")
    if replaced is not None and isinstance(replaced.node, TypedMapping):
        entry = replaced.node.entries.get(name)
        if entry is not None:
            edit = route.named("headers.request.set", "idempotency.header")
            diagnostics.warn(
                key_of(entry),
                f"{entry.key} carries the caller's key{edit}, and the upstream would get another, "
                f"remove it here or write another idempotency.header",
            )
    for item in route.scalars("headers.request.remove"):
        if item.value.lower() == name:
            edit = route.named("headers.request.remove", "idempotency.header")
            diagnostics.warn(
                item,
                f"{item.written.bare} carries the caller's key{edit}, and the upstream would not "
                f"get it, remove it here or write another idempotency.header",
            )
