"""Checks of the fallback of a route."""

from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.diagnostics.rounding import rounded_down, rounded_up
from proxy.config.diagnostics.units import format_duration
from proxy.config.read.effective import EffectiveSection
from proxy.config.read.typed_tree import key_of

_WITHOUT_BODY = frozenset({204, 205, 304})  # RFC 9110 6.4.1, 15.3.6


def check_fallback(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Check that a fallback has a response or an upstream, and time to be reached."""
    fallback = route.typed.mapping("fallback")
    if fallback is None:
        return
    if fallback.is_whole:
        _check_answer(route, diagnostics)
    _check_upstream(route, diagnostics)
    _check_time(route, diagnostics)


def _check_answer(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    entry = route.typed.entries["fallback"]
    status, body = route.scalar("fallback.status"), route.scalar("fallback.body")
    if status is None and route.scalar("fallback.upstream") is None:
        diagnostics.fault(
            key_of(entry),
            "it has neither a status nor an upstream, write status: 503 (say) or upstream: "
            "NAME in it",
        )
    if status is not None and status.value in _WITHOUT_BODY and body is not None and body.value:
        diagnostics.fault(
            body,
            f"a response with status {status.value} has no body, remove it or write status: 200",
        )


def _check_upstream(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    first, other = route.scalar("upstream"), route.scalar("fallback.upstream")
    if first is None or other is None or first.value != other.value:
        return
    where = "the route" if route.writer("fallback.upstream") == route.path else route.path
    diagnostics.fault(
        other,
        f"{where} sends to {other.written.shown} already, write another upstream or, in the route, "
        f"fallback: false",
    )


def _check_time(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn if the attempts before the fallback may use up the timeout."""
    entry = route.typed.entries["fallback"]
    limit, timeout = route.scalar("retry.attempt_timeout"), route.scalar("timeout")
    attempts = route.scalar("retry.attempts")
    if route.scalar("fallback.upstream") is None or not (limit and timeout and attempts):
        return
    if limit.value is None or timeout.value is None or limit.value >= timeout.value:
        return
    # Rounded: as floats, three times 0.3 is a little less than 0.9.
    if round(attempts.value * limit.value, 6) < timeout.value:
        return
    tries = attempts.value + 1
    shorter, longer = rounded_down(timeout.value / tries), rounded_up(limit.value * tries)
    instead = f"timeout: {format_duration(longer)}"
    if shorter:
        instead = f"attempt_timeout: {format_duration(shorter)} or {instead}"
    if limit.written.references or timeout.written.references or attempts.written.references:
        instead = "a shorter attempt_timeout or a longer timeout"
    diagnostics.warn(
        key_of(entry),
        f"{attempts.written.bare} attempts of {limit.written.bare} use up timeout "
        f"{timeout.written.bare}"
        f"{route.named('fallback', 'timeout', 'retry.attempts', 'retry.attempt_timeout')}, so the "
        f"fallback may never run, write {instead}",
    )
