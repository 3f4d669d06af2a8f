"""Checks of the retries of a route."""

from collections.abc import Iterable

from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.diagnostics.rounding import rounded_down
from proxy.config.diagnostics.units import format_duration
from proxy.config.read.effective import EffectiveSection
from proxy.config.read.typed_tree import TypedMapping, key_of, with_entry
from proxy.config.source.nodes import Entry
from proxy.config.values.outcomes import BUILT_IN, hinted_status, statuses_of
from proxy.policy.repeatable import REPEATABLE_METHODS, status_may_have_run
from proxy.policy.settings import USUAL_REFUSALS, JitterStrategy, Match, UnsafeRetries

# A list that names one of these was written by an author who knows the built-in list.
_SHOWS_KNOWLEDGE = frozenset({"connect", "reset", "timeout", "default"})
_MAY_HAVE_RUN = frozenset({"reset", "timeout", "protocol"})
_BASE = "retry.backoff.base"
_WAITS = (_BASE, "retry.retry_after.max")
_ONLY_FOR = {"factor": "exponential", "increment": "linear"}


def check_retry(
    route: EffectiveSection, match: Match, refused: frozenset[int], diagnostics: Diagnostics
) -> None:
    """Check the retries of a route whose upstream refuses work by the statuses *refused*."""
    if route.typed.mapping("retry") is None:
        return
    check_outcomes(route, diagnostics, "retry.on")
    check_unsafe(route, match, refused, diagnostics, "retry")
    _check_attempt_timeout(route, diagnostics)
    check_backoff(route, diagnostics, "retry.backoff")


def check_buffer(route: EffectiveSection, file: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn if a body that is kept for a retry can exceed the memory for all of them.

    Each of several workers has its share of that memory; ``auto`` counts as one worker, because
    the number of cores is unknown here.
    """
    buffer, memory = route.scalar("buffer"), file.scalar("limits.replay_memory")
    workers = file.scalar("workers")
    count = (workers.value if workers is not None else None) or 1
    if buffer is None or memory is None or buffer.value <= memory.value // count:
        return
    divided = f" divided among {count} workers" if count > 1 else ""
    if route.writer("buffer"):
        diagnostics.warn(
            buffer,
            f"{buffer.written.bare} is above limits.replay_memory {memory.written.bare}{divided}, "
            f"so a body that large is never kept, write a larger replay_memory or a smaller buffer",
        )
    elif memory.value:  # zero is intended
        diagnostics.warn(
            memory,
            f"{memory.written.bare}{divided} is below buffer {buffer.written.bare}, so a body that "
            f"large is never kept, write a larger replay_memory or a smaller buffer",
        )


def check_key_memory(
    route: EffectiveSection, honoured: TypedMapping, diagnostics: Diagnostics
) -> None:
    """Warn where an upstream forgets a key before a second attempt could arrive."""
    if route.typed.mapping("retry") is None or "for" not in honoured.entries:
        return
    memory = honoured.scalar("for")
    scalars = [route.scalar("retry.attempt_timeout"), route.scalar("timeout")]
    limits = [scalar for scalar in scalars if scalar is not None and scalar.value is not None]
    if memory is None or not limits:
        return
    shortest = min(limits, key=lambda scalar: scalar.value)
    if shortest.value < memory.value:
        return
    diagnostics.warn(
        memory,
        f"{memory.written.bare} is not above {shortest.written.bare}, the longest attempt of "
        f"{route.path}, so nothing is repeated by its key, write a longer for or a shorter "
        f"retry.attempt_timeout",
    )


def with_fitting_base(route: EffectiveSection, keys: str) -> TypedMapping:
    """Return the route with the ``base`` of the back-off at *keys* lowered to its ``max``.

    Only where just ``max`` was written.
    """
    base, longest = route.scalar(f"{keys}.base"), route.scalar(f"{keys}.max")
    if base is None or longest is None or route.writer(f"{keys}.base"):
        return route.typed
    if base.value <= longest.value:
        return route.typed
    return with_entry(route.typed, (*keys.split("."),), Entry("base", longest.position, longest))


def check_outcomes(route: EffectiveSection, diagnostics: Diagnostics, keys: str) -> None:
    """Warn of a list of outcomes at *keys* that was probably meant to add to the built-in list."""
    entry, listed = route.entry(keys), route.values(keys)
    if entry is None or not route.writer(keys):
        return
    if not _SHOWS_KNOWLEDGE.isdisjoint(listed):
        return
    covered = {*listed}.union(*(statuses_of(outcome) for outcome in listed))
    if not covered.isdisjoint(USUAL_REFUSALS):
        covered.add("refused")
    lost = [outcome for outcome in BUILT_IN if outcome not in covered]
    added = [outcome for outcome in listed if outcome not in {*BUILT_IN, *USUAL_REFUSALS}]
    instead = (
        f"write on: [{_joined(['default', *added])}] to add {_joined(added)}"
        if added
        else "write on: [default] to retry these too"
    )
    diagnostics.warn(
        key_of(entry),
        f"this list replaces the built-in one, so {_joined(lost)} are no longer retried, {instead}",
    )


def check_unsafe(
    route: EffectiveSection,
    match: Match,
    refused: frozenset[int],
    diagnostics: Diagnostics,
    keys: str,
) -> None:
    """Warn of requests that may run twice by the retries at *keys*."""
    unsafe, listed = route.scalar(f"{keys}.unsafe"), route.values(f"{keys}.on")
    if unsafe is None or unsafe.value is not UnsafeRetries.ALWAYS:
        return
    methods = [method for method in match.methods or ("POST",) if method not in REPEATABLE_METHODS]
    spelled_out = [
        outcome for item in listed for outcome in (BUILT_IN if item == "default" else (item,))
    ]
    risky = [outcome for outcome in spelled_out if _may_have_run(outcome, refused)]
    if not methods or not risky:
        return
    diagnostics.warn(
        unsafe,
        f"a {methods[0]}{route.named(f'{keys}.unsafe', f'{keys}.on')} is sent again after "
        f"{_joined(dict.fromkeys(risky))} and may run twice, write unsafe: auto or take these out "
        f"of on",
    )


def _may_have_run(outcome: str | int, refused: frozenset[int]) -> bool:
    """Return whether the upstream may have begun the work: a 4xx says that it did not."""
    if outcome in _MAY_HAVE_RUN:
        return True
    hinted = hinted_status(outcome)
    statuses = statuses_of(outcome) if hinted is None else {hinted}
    return any(status_may_have_run(status, refused) for status in statuses)


def _check_attempt_timeout(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    limit, timeout = route.scalar("retry.attempt_timeout"), route.scalar("timeout")
    attempts = route.scalar("retry.attempts")
    if limit is None or timeout is None or attempts is None or attempts.value == 1:
        return
    if limit.value is None or timeout.value is None or limit.value < timeout.value:
        return
    shorter = rounded_down(timeout.value / attempts.value)
    instead = f"{format_duration(shorter)} for {attempts.value} attempts or " if shorter else ""
    if limit.written.references or timeout.written.references or attempts.written.references:
        instead = "a shorter one or "
    diagnostics.fault(
        limit,
        f"{limit.written.bare} is not below timeout {timeout.written.bare}"
        f"{route.named('retry.attempt_timeout', 'timeout')}, so no second attempt can follow, "
        f"write {instead}a longer timeout",
    )


def check_backoff(route: EffectiveSection, diagnostics: Diagnostics, keys: str) -> None:
    """Check the values of the back-off at *keys* against each other."""
    base, longest = route.scalar(f"{keys}.base"), route.scalar(f"{keys}.max")
    is_written = bool(route.writer(f"{keys}.base"))
    if is_written and base is not None and longest is not None and base.value > longest.value:
        diagnostics.fault(
            base,
            f"{base.written.bare} is above max {longest.written.bare}"
            f"{route.named(f'{keys}.base', f'{keys}.max')}, write a base of at most "
            f"{longest.written.bare} or a larger max",
        )
    if keys == "retry.backoff":
        _check_waits(route, diagnostics)
    strategy = route.scalar(f"{keys}.strategy")
    for key, needed in _ONLY_FOR.items():
        scalar, writer = route.scalar(f"{keys}.{key}"), route.writer(f"{keys}.{key}")
        if scalar is None or strategy is None or strategy.value == needed or not writer:
            continue
        # A policy's key for another strategy is harmless to a route that sets its own strategy.
        if route.writer(f"{keys}.strategy") in {writer, ""} or writer == route.path:
            diagnostics.warn(
                scalar,
                f"the strategy is {strategy.value} and only {needed} uses it, write strategy: "
                f"{needed} or remove it",
            )


def _check_waits(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn of waits before a retry that are not shorter than the whole request may take."""
    timeout, attempts = route.scalar("timeout"), route.scalar("retry.attempts")
    if timeout is None or timeout.value is None or attempts is None or attempts.value == 1:
        return
    for key in _WAITS:
        wait = route.scalar(key)
        if wait is None or not route.writer(key) or not _is_too_long(route, key, timeout.value):
            continue
        shorter = rounded_down(timeout.value / (2 * attempts.value))
        name = key.rpartition(".")[2]
        instead = f"write {name}: {format_duration(shorter)} (say) or a longer timeout"
        if not shorter or wait.written.references or timeout.written.references:
            instead = f"write a shorter {name} or a longer timeout"
        diagnostics.warn(
            wait,
            f"a wait of {wait.written.bare} cannot fit into timeout {timeout.written.bare}"
            f"{route.named(key, 'timeout')}, {_effect_of(route, key, timeout.value)}, {instead}",
        )


def _is_too_long(route: EffectiveSection, key: str, timeout: float) -> bool:
    """Return whether a wait is not below *timeout*; one that is wrong anyway is not."""
    wait, longest = route.scalar(key), route.scalar("retry.backoff.max")
    if wait is None or longest is None:
        return False
    # The longest hint may be as long as the request may take: it is an upper bound only.
    return bool(timeout <= wait.value <= longest.value if key == _BASE else wait.value > timeout)


def _effect_of(route: EffectiveSection, key: str, timeout: float) -> str:
    """Return what becomes of retries whose wait is not below *timeout*."""
    if key != _BASE:
        return "so no retry waits for that long"
    base, jitter = route.scalar(_BASE), route.scalar("retry.backoff.jitter")
    if base is None or jitter is None or jitter.value is JitterStrategy.FULL:
        return "so few retries can follow"
    if isinstance(jitter.value, JitterStrategy):
        least = base.value / 2 if jitter.value is JitterStrategy.EQUAL else base.value
    else:
        least = base.value * (1 - jitter.value)
    return "so no retry can follow" if least >= timeout else "so few retries can follow"


def check_repeats(
    route: EffectiveSection, match: Match, file: TypedMapping, name: str, diagnostics: Diagnostics
) -> None:
    """Warn of retries on a route with idempotency where nothing makes a repetition safe.

    The upstream called *name* honours no keys. Not where the author has said so, or has said by
    which statuses it refuses work, or how a POST is to be treated.
    """
    upstreams = file.mapping("upstreams")
    upstream = upstreams.mapping(name) if upstreams else None
    entry, attempts = route.entry("retry"), route.scalar("retry.attempts")
    unsafe = route.scalar("retry.unsafe")
    if route.typed.mapping("idempotency") is None or route.typed.mapping("retry") is None:
        return
    if upstream is None or entry is None or unsafe is None or attempts is None:
        return
    has_said = not {"honours_key", "refused"}.isdisjoint(upstream.entries.keys() | upstream.broken)
    if has_said or attempts.value == 1 or route.writer("retry.unsafe"):
        return
    # Retries of defaults or a policy are meant for other routes as well.
    if route.writer("retry") != route.path or not match.methods:
        return
    if not REPEATABLE_METHODS.isdisjoint(match.methods):
        return
    listed = route.values("retry.on")
    spelled_out = [*(BUILT_IN if "default" in listed else ()), *listed]
    refused = frozenset(USUAL_REFUSALS)
    lost = [outcome for outcome in spelled_out if _may_have_run(outcome, refused)]
    if lost:
        diagnostics.warn(
            key_of(entry),
            f"a {match.methods[0]} is not sent again after {_joined(dict.fromkeys(lost))}, because "
            f"it may have run, write honours_key: true in upstreams.{name} if it runs a request "
            f"with the same key once, or honours_key: false if it does not",
        )


def _joined(outcomes: Iterable[str | int]) -> str:
    return ", ".join(str(outcome) for outcome in outcomes)
