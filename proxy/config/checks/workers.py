"""Checks of several worker processes: state that they cannot share, limits they cannot divide."""

from collections.abc import Sequence

from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.read.effective import EffectiveSection
from proxy.config.read.typed_tree import TypedScalar
from proxy.config.values.stores import store_kind

_MOST_NAMED = 3
"""The number of paths that a message names."""


def check_workers(
    routes: Sequence[EffectiveSection],
    upstreams: Sequence[EffectiveSection],
    file: EffectiveSection,
    diagnostics: Diagnostics,
) -> None:
    """Check that limits and keys are in a shared store, and that each worker gets a share.

    ``auto`` counts as several on every machine: a file that is valid on a small machine must
    not become invalid on a larger one.
    """
    workers, store = file.scalar("workers"), file.scalar("store.url")
    if workers is None or store is None or workers.value == 1:
        return
    several = f"{workers.written.bare} workers"
    if workers.value is None:
        several = "auto may be several workers, which"
    limited = _paths_with("throttle", (*routes, *upstreams))
    if limited and not store_kind(store.value).shares_limits:
        diagnostics.fault(
            workers,
            f"{several} cannot share a limit in memory ({_named(limited)}), write store: "
            f"redis://…, or workers: 1",
        )
    keyed = _paths_with("idempotency", routes)
    if keyed and not store_kind(store.value).shares_keys:
        diagnostics.fault(
            workers,
            f"{several} cannot share idempotency keys in memory ({_named(keyed)}), write store: "
            f"redis://… or sqlite:PATH, or workers: 1",
        )
    if workers.value is not None:
        _check_share(file.scalar("limits.connections"), workers, diagnostics)
        for upstream in upstreams:
            _check_share(upstream.scalar("max_connections"), workers, diagnostics)


def _check_share(limit: TypedScalar | None, workers: TypedScalar, diagnostics: Diagnostics) -> None:
    """Refuse a limit that is divided among the workers if a worker would get none of it."""
    if limit is None or limit.value >= workers.value:
        return
    number = workers.written.bare
    diagnostics.fault(
        limit,
        f"{limit.written.bare} cannot be divided among {number} workers, write {number} or more, "
        f"or fewer workers",
    )


def _paths_with(policy: str, sections: Sequence[EffectiveSection]) -> list[str]:
    """Return the paths of *policy* in those sections in which it is switched on."""
    return [
        f"{section.path}.{policy}"
        for section in sections
        if section.typed.mapping(policy) is not None
    ]


def _named(paths: list[str]) -> str:
    more = len(paths) - _MOST_NAMED
    return ", ".join(paths[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
