"""Checks of header fields that distinguish callers: fields that may come in several lines."""

from collections.abc import Iterator, Sequence

from proxy.config.checks.routes import DraftRoute
from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.read.effective import EffectiveSection
from proxy.config.read.typed_tree import TypedScalar
from proxy.policy.caller_fields import LIST_FIELDS, display_name
from proxy.policy.settings import CallerSource, ThrottleKey

_ADDRESS_FIELDS = frozenset({"x-forwarded-for", "forwarded"})


def check_list_fields(
    drafts: Sequence[DraftRoute],
    routes: Sequence[EffectiveSection],
    upstreams: Sequence[EffectiveSection],
    diagnostics: Diagnostics,
) -> None:
    """Warn of list fields in matches, throttle keys and scopes, where one line is allowed."""
    named = [
        *(pair for draft in drafts for pair in _exact_matches(draft)),
        *(pair for section in (*routes, *upstreams) for pair in _throttle_keys(section)),
        *(pair for route in routes for pair in _scopes(route)),
    ]
    for name, scalar in named:
        if name not in LIST_FIELDS:
            continue
        instead = "write one that has a single value"
        if name in _ADDRESS_FIELDS and isinstance(scalar.value, ThrottleKey):
            instead = "write key: client_ip, and the proxies before us in trusted_proxies"
        diagnostics.warn(
            scalar,
            f"{display_name(name)} is a list and may come in several lines, and such a request "
            f"gets 400 here, {instead}",
        )


def _exact_matches(draft: DraftRoute) -> Iterator[tuple[str, TypedScalar]]:
    match = draft.written.mapping("match")
    table = match.mapping("headers") if match else None
    for name, entry in table.entries.items() if table else ():
        if isinstance(entry.node, TypedScalar) and not entry.node.value.endswith("*"):
            yield name, entry.node


def _throttle_keys(section: EffectiveSection) -> Iterator[tuple[str, TypedScalar]]:
    scalar = section.scalar("throttle.key") if section.typed.mapping("throttle") else None
    key = None if scalar is None else scalar.value
    if scalar is not None and key is not None and key.source is CallerSource.HEADER:
        yield scalar.value.name, scalar


def _scopes(route: EffectiveSection) -> Iterator[tuple[str, TypedScalar]]:
    if route.typed.mapping("idempotency"):
        yield from ((scalar.value, scalar) for scalar in route.scalars("idempotency.scope"))
