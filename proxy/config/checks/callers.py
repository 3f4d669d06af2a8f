"""What is wrong with fields that tell callers apart: those that properly come more than once."""

from collections.abc import Iterator, Sequence

from proxy.config.checks.routes import DraftRoute
from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.read.effective import EffectiveSection
from proxy.config.read.typed_tree import TypedScalar
from proxy.policy.caller_fields import LIST_FIELDS, display_name
from proxy.policy.settings import ThrottleKey

_TELL_ADDRESSES = frozenset({"x-forwarded-for", "forwarded"})


def check_list_fields(
    drafts: Sequence[DraftRoute],
    routes: Sequence[EffectiveSection],
    upstreams: Sequence[EffectiveSection],
    diagnostics: Diagnostics,
) -> None:
    """Warn of a list among the fields of which a request may have one line only."""
    named = [
        *(pair for draft in drafts for pair in _exact_matches(draft)),
        *(pair for owner in (*routes, *upstreams) for pair in _throttle_keys(owner)),
        *(pair for route in routes for pair in _scopes(route)),
    ]
    for name, leaf in named:
        if name not in LIST_FIELDS:
            continue
        instead = "write one that has a single value"
        if name in _TELL_ADDRESSES and isinstance(leaf.value, ThrottleKey):
            instead = "write key: client_ip, and the proxies before us in trusted_proxies"
        diagnostics.warn(
            leaf.position,
            leaf.path,
            f"{display_name(name)} is a list and may come in several lines, and such a request "
            f"gets 400 here, {instead}",
        )


def _exact_matches(draft: DraftRoute) -> Iterator[tuple[str, TypedScalar]]:
    match = draft.written.branch("match")
    table = match.branch("headers") if match else None
    for name, entry in table.entries.items() if table else ():
        if isinstance(entry.node, TypedScalar) and not entry.node.value.endswith("*"):
            yield name, entry.node


def _throttle_keys(owner: EffectiveSection) -> Iterator[tuple[str, TypedScalar]]:
    leaf = owner.leaf("throttle.key") if owner.section.branch("throttle") else None
    if leaf is not None and leaf.value is not None and leaf.value.source == "header":
        yield leaf.value.name, leaf


def _scopes(route: EffectiveSection) -> Iterator[tuple[str, TypedScalar]]:
    items = route.items("idempotency.scope") if route.section.branch("idempotency") else None
    for item in items.items if items else ():
        if isinstance(item, TypedScalar):
            yield item.value, item
