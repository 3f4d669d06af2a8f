"""Checks of upstreams."""

from proxy.config.checks.certificates import check_client_tls
from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.read.typed_tree import TypedMapping, TypedScalar, key_of
from proxy.policy.settings import USUAL_REFUSALS

_PERHAPS_PERCENT = 10
"""The ratio from which the author probably meant percent."""


def check_upstreams(file: TypedMapping, diagnostics: Diagnostics) -> None:
    """Check URLs, TLS settings, refusals and the retry budget of each upstream."""
    for upstream in file.mappings("upstreams"):
        _check_urls(upstream, diagnostics)
        _check_tls(upstream, diagnostics)
        _check_refused(upstream, diagnostics)
        _check_budget(upstream, diagnostics)


def refused_by(file: TypedMapping, name: TypedScalar | None) -> frozenset[int]:
    """Return the statuses by which the upstream called *name* says that it did nothing."""
    upstreams = file.mapping("upstreams")
    upstream = upstreams.mapping(name.value) if upstreams and name else None
    is_written = upstream is not None and "refused" in upstream.entries
    return frozenset(upstream.values("refused") if upstream and is_written else USUAL_REFUSALS)


def honoured_key(file: TypedMapping, name: TypedScalar | None) -> TypedMapping | None:
    """Return the ``honours_key`` of the upstream called *name*; None if it honours no keys."""
    upstreams = file.mapping("upstreams")
    upstream = upstreams.mapping(name.value) if upstreams and name else None
    return None if upstream is None else upstream.mapping("honours_key")


def _check_urls(upstream: TypedMapping, diagnostics: Diagnostics) -> None:
    seen = set()
    for item in upstream.scalars("urls"):
        if item.value in seen:
            diagnostics.fault(item, "this URL is already in the list, remove it")
        seen.add(item.value)


def _check_tls(upstream: TypedMapping, diagnostics: Diagnostics) -> None:
    tls = upstream.mapping("tls")
    if tls is None or not tls.entries:
        return
    if upstream.is_whole and all(origin.scheme == "http" for origin in upstream.values("urls")):
        diagnostics.warn(
            key_of(upstream.entries["tls"]),
            "no URL of this upstream is https, so this has no effect, write https:// or remove it",
        )
    check_client_tls(tls, "this upstream", diagnostics)


def _check_refused(upstream: TypedMapping, diagnostics: Diagnostics) -> None:
    """Warn of a ``refused`` that was probably meant to add to the built-in list."""
    written = upstream.values("refused")
    if not written or not set(written).isdisjoint(USUAL_REFUSALS) or "refused" in upstream.broken:
        return
    lost, added = (", ".join(map(str, statuses)) for statuses in (USUAL_REFUSALS, written))
    diagnostics.warn(
        key_of(upstream.entries["refused"]),
        f"this list replaces the built-in one, so {lost} no longer mean that nothing was done, "
        f"write refused: [{lost}, {added}] to add {added}",
    )


def _check_budget(upstream: TypedMapping, diagnostics: Diagnostics) -> None:
    """Warn of a retry budget that allows no retry, or any number."""
    budget = upstream.mapping("budget")
    ratio = budget.scalar("ratio") if budget else None
    if budget is None or ratio is None:
        return
    least = budget.scalar("min_per_second")
    if ratio.value == 0 and least is not None and least.value == 0:
        diagnostics.warn(
            key_of(upstream.entries["budget"]),
            "this allows no retry at all, write a larger ratio, or budget: false for any number",
        )
    elif ratio.value >= _PERHAPS_PERCENT:
        diagnostics.warn(
            ratio,
            f"{ratio.written.bare} retries for each request are no limit, write a ratio such as "
            f"0.2, or budget: false if that is meant",
        )
