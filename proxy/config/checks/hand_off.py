"""Checks of hand-off: what must not be delivered twice, what is not delivered, and the disk."""

from collections.abc import Sequence
from pathlib import Path

from proxy.config.checks.retries import check_backoff, check_outcomes, check_unsafe
from proxy.config.checks.routes import DraftRoute, check_methods
from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.read.effective import EffectiveSection
from proxy.config.read.typed_tree import TypedMapping, key_of
from proxy.config.source.files import passing_storage
from proxy.config.values.stores import store_kind
from proxy.policy.repeatable import MAY_CARRY_KEY, REPEATABLE_METHODS
from proxy.policy.routing.paths import PathIndex
from proxy.policy.settings import HandOffWhen, JitterStrategy, Match, UnsafeRetries

_UNASKED = (HandOffWhen.FAILED, HandOffWhen.ALWAYS)
_BACKOFF = "hand_off.retry.backoff"


def check_hand_off(
    route: EffectiveSection,
    match: Match,
    file: EffectiveSection,
    diagnostics: Diagnostics,
    *,
    refused: frozenset[int],
    honoured: TypedMapping | None,
) -> None:
    """Check the hand-off of a route.

    Its upstream refuses work by the statuses *refused*; *honoured* is its ``honours_key``, None if
    it honours no keys.
    """
    if route.typed.mapping("hand_off") is None:
        return
    methods = [
        method
        for method in route.values("hand_off.methods")
        if not match.methods or method in match.methods
    ]
    instead = f"write methods: [{', '.join(match.methods)}] in it"
    check_methods(route, match, diagnostics, key="hand_off", does="accepts", instead=instead)
    _check_duplicates(route, methods, diagnostics)
    _check_store(route, file, diagnostics)
    _check_repeatable(route, methods, honoured, diagnostics)
    _check_letters(route, diagnostics)
    _check_times(route, methods, honoured, diagnostics)
    _check_body(route, diagnostics)
    check_outcomes(route, diagnostics, "hand_off.retry.on")
    check_unsafe(route, match, refused, diagnostics, "hand_off.retry")
    check_backoff(route, diagnostics, _BACKOFF)
    _check_jitter(route, diagnostics)


def check_status_path(
    drafts: Sequence[DraftRoute],
    routes: Sequence[EffectiveSection],
    file: EffectiveSection,
    diagnostics: Diagnostics,
) -> None:
    """Warn of a route for the path at which clients ask for deliveries: it gets no request there.

    Not of one that names no segment of it, such as ``/**``, which is meant for all that is left.
    """
    status = file.scalar("deliveries.status")
    if status is None or status.value is None or not _hand_off(routes):
        return
    first = f"/{status.value.split('/')[1]}"
    for draft in drafts:
        own = draft.written.mapping("match")
        for path in own.scalars("path") if own else ():
            names_it = path.value == first or path.value.startswith(f"{first}/")
            index = PathIndex([(path.value, 0)], frozenset())
            below = (status.value, f"{status.value}/d", f"{status.value}/d/response")
            if names_it and any(index.candidates(target) for target in below):
                diagnostics.warn(
                    path,
                    f"deliveries.status {status.value} goes first, so this route gets no request "
                    f"there, write another status or another path",
                )


def check_storage(
    routes: Sequence[EffectiveSection], file: EffectiveSection, diagnostics: Diagnostics
) -> None:
    """Warn of a ``state_dir`` that is known to go away with the machine's or container's life."""
    folder = file.scalar("state_dir")
    if folder is None or not _hand_off(routes):
        return
    passing = passing_storage(Path(folder.value))
    if not passing:
        return
    lost = "a restart of the machine" if passing == "memory" else "a new container"
    kind = "in memory (tmpfs)" if passing == "memory" else "in a container's own layer"
    diagnostics.warn(
        folder,
        f"{folder.written.bare} is {kind}, and {lost} loses what was accepted with 202, write the "
        f"path of a lasting disk or volume",
    )


def _hand_off(routes: Sequence[EffectiveSection]) -> bool:
    return any(route.typed.mapping("hand_off") is not None for route in routes)


def _check_duplicates(
    route: EffectiveSection, methods: list[str], diagnostics: Diagnostics
) -> None:
    """Refuse 202 for clients that did not ask for it, where their second try would run again."""
    entry, when = route.entry("hand_off.when"), route.values("hand_off.when")
    unasked = [word for word in _UNASKED if word in when]
    if entry is None or not unasked or not route.writer("hand_off.when"):
        return
    required = route.scalar("idempotency.required")
    keyed = set(route.values("idempotency.methods")) if required and required.value else set()
    bare = [name for name in methods if name not in keyed and name not in REPEATABLE_METHODS]
    if not bare:
        return
    listed = f", methods: [{', '.join(sorted({*keyed, *bare}))}]" if keyed else ""
    diagnostics.fault(
        key_of(entry),
        f"a client{route.named('hand_off.when', 'idempotency.required')} that does not expect 202 "
        f"sends its {bare[0]} again, and without a key that is delivered twice ({unasked[0]}), "
        f"write idempotency: {{required: true{listed}}}, or methods: [PUT, DELETE] in hand_off",
    )


def _check_store(route: EffectiveSection, file: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Refuse keys that machines share beside deliveries that each has for itself."""
    store, entry = file.scalar("store.url"), route.entry("hand_off")
    if store is None or entry is None or route.typed.mapping("idempotency") is None:
        return
    if not store_kind(store.value).spans_machines:
        return
    diagnostics.fault(
        key_of(entry),
        f"the idempotency keys{route.named('hand_off', 'idempotency')} are in Redis and deliveries "
        f"in a file of each machine, so two machines could deliver one key, write store: "
        f"sqlite:PATH, or hand_off: false",
    )


def _unsafe(route: EffectiveSection) -> UnsafeRetries:
    """Return what holds for POST and PATCH in the background."""
    for keys in ("hand_off.retry.unsafe", "retry.unsafe"):
        scalar = route.scalar(keys)
        if scalar is not None:
            return UnsafeRetries(scalar.value)
    return UnsafeRetries.AUTO


def _check_repeatable(
    route: EffectiveSection,
    methods: list[str],
    honoured: TypedMapping | None,
    diagnostics: Diagnostics,
) -> None:
    """Warn where a delivery that may have run is not sent again."""
    entry, unsafe = route.entry("hand_off"), _unsafe(route)
    once = [method for method in methods if method not in REPEATABLE_METHODS]
    if unsafe is not UnsafeRetries.NEVER and honoured is not None:
        once = [method for method in once if method not in MAY_CARRY_KEY]
    if entry is None or not once or unsafe is UnsafeRetries.ALWAYS:
        return
    upstream = route.scalar("upstream")
    of = f" in upstreams.{upstream.value}" if upstream is not None else ""
    instead = f"write honours_key: true{of} if it runs a request with the same key once"
    if unsafe is UnsafeRetries.NEVER:
        instead = "write unsafe: auto in hand_off.retry if the upstream honours a key"
    diagnostics.warn(
        key_of(entry),
        f"a {once[0]}{route.named('hand_off')} that may have run is not sent again and fails, only "
        f"one that did not run is, {instead}",
    )


def _check_letters(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    entry = route.entry("hand_off")
    if entry is None or route.typed.mapping("dead_letter") or "dead_letter" in route.typed.broken:
        return
    diagnostics.warn(
        key_of(entry),
        f"a delivery{route.named('hand_off')} that fails is deleted after its ttl, write "
        f"dead_letter: true to keep it for a person",
    )


def _check_times(
    route: EffectiveSection,
    methods: list[str],
    honoured: TypedMapping | None,
    diagnostics: Diagnostics,
) -> None:
    """Warn where a key is forgotten before its delivery is given up."""
    age, entry = route.scalar("hand_off.give_up_after"), route.entry("hand_off")
    if age is None or entry is None:
        return
    given = route.writer("hand_off.give_up_after")
    ttl = route.scalar("idempotency.ttl")
    if ttl is not None and ttl.value < age.value:
        keys = "hand_off.give_up_after" if given else "idempotency.ttl"
        place = age if given else ttl if route.writer(keys) else key_of(entry)
        of = route.named(keys if route.writer(keys) else "hand_off", "idempotency.ttl")
        diagnostics.warn(
            place,
            f"idempotency.ttl {ttl.written.bare} is below hand_off.give_up_after "
            f"{age.written.bare}{of}, so a key may be forgotten before its delivery has ended, "
            f"write a longer ttl or a shorter give_up_after",
        )
    if honoured is None or MAY_CARRY_KEY.isdisjoint(methods):
        return
    memory = EffectiveSection(honoured, honoured.path).scalar("for")
    if memory is None or memory.value >= age.value or _unsafe(route) is not UnsafeRetries.AUTO:
        return
    diagnostics.warn(
        age if given else key_of(entry),
        f"the upstream remembers a key for {memory.written.bare}, which is below "
        f"hand_off.give_up_after {age.written.bare}"
        f"{route.named('hand_off.give_up_after' if given else 'hand_off')}, and what may have run "
        f"is not sent again later than that, write a shorter give_up_after, or a longer "
        f"{honoured.path}.for if it does remember",
    )


def _check_body(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn of a ``max_body`` above ``buffer``, which is all that a failed request has left."""
    largest, buffer = route.scalar("hand_off.max_body"), route.scalar("buffer")
    if largest is None or buffer is None or not route.writer("hand_off.max_body"):
        return
    if largest.value <= buffer.value or HandOffWhen.FAILED not in route.values("hand_off.when"):
        return
    diagnostics.warn(
        largest,
        f"{largest.written.bare} is above buffer {buffer.written.bare}"
        f"{route.named('hand_off.max_body', 'buffer')}, and of a request that failed no more than "
        f"that is left, write a larger buffer or a smaller max_body",
    )


def _check_jitter(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Refuse a random walk where the waits are listed."""
    jitter = route.scalar(f"{_BACKOFF}.jitter")
    if jitter is None or jitter.value != JitterStrategy.DECORRELATED:
        return
    if route.items(f"{_BACKOFF}.waits") is not None:
        diagnostics.fault(
            jitter,
            f"decorrelated jitter{route.named(f'{_BACKOFF}.jitter', f'{_BACKOFF}.waits')} follows "
            f"no list of waits, write 0.2 (say), full, equal or none",
        )
