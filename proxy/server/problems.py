"""Answers that Holdfast makes itself: the one place that writes them.

Refusals, and what a route's ``fallback`` says in place of a failure.

``application/problem+json`` (RFC 9457) with a ``Proxy-Status`` (RFC 9209) that
tells a client, or the next proxy, that the upstream did not say this.
"""

import json

from proxy.core.date_header import date_line
from proxy.core.exchange import Exchange
from proxy.http.hop import Hop
from proxy.http.refusal import QuotaLeft, Refusal, RefusalReason
from proxy.http.response_head import status_line
from proxy.policy.settings import FallbackSettings

_WITHOUT_BODY = frozenset({204, 304})
"""Statuses that a fallback may have, with neither a body nor a length."""

ALLOWED = b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, QUERY"


def problem_bytes(refusal: Refusal, exchange: Exchange, hop: Hop, *, close: bool) -> bytes:
    """Return the whole answer of *hop*, head and body; to a HEAD only the head."""
    members: dict[str, object] = {
        "type": f"urn:holdfast:problem:{refusal.reason}",
        "title": refusal.title,
        "status": refusal.status,
        "detail": refusal.detail,
    }
    if refusal.cause:
        members["cause"] = refusal.cause
    if exchange.attempts:
        members["attempts"] = len(exchange.attempts)
    if refusal.record:
        members["record"] = refusal.record
    lines = [
        b"Content-Type: application/problem+json",
        b"Cache-Control: no-store",
        b"Proxy-Status: %b; error=%b" % (hop.proxy_status, refusal.proxy_error.encode()),
    ]
    if refusal.retry_after is not None:
        lines.append(b"Retry-After: %d" % refusal.retry_after)
    if refusal.quotas:
        lines += _quota_lines(refusal.quotas)
    if refusal.reason is RefusalReason.METHOD:
        lines.append(ALLOWED)
    body = json.dumps(members).encode()
    return _answer_bytes(refusal.status, lines, body, exchange, close=close)


def _quota_lines(quotas: tuple[QuotaLeft, ...]) -> tuple[bytes, bytes]:
    """Return the rate limit fields (draft-ietf-httpapi-ratelimit-headers-10) for *quotas*."""
    policies, states = [], []
    for quota in quotas:
        # Concurrent requests are counted in a unit of their own, and have no window.
        unit = ';qu="concurrent-requests"' if quota.window is None else f";w={quota.window}"
        reset = "" if quota.reset is None else f";t={quota.reset}"
        policies.append(f'"{quota.name}";q={quota.limit}{unit}')
        states.append(f'"{quota.name}";r={quota.remaining}{reset}')
    return (
        b"RateLimit-Policy: %b" % ", ".join(policies).encode(),
        b"RateLimit: %b" % ", ".join(states).encode(),
    )


def fallback_bytes(
    fallback: FallbackSettings, exchange: Exchange, hop: Hop, *, close: bool
) -> bytes:
    """Return the route's fixed answer, marked as one that the upstream did not give."""
    lines = [f"{name}: {value}".encode("latin-1") for name, value in fallback.headers]
    lines.append(b'Proxy-Status: %b; details="fallback"' % hop.proxy_status)
    return _answer_bytes(fallback.status, lines, fallback.body.encode(), exchange, close=close)


def _answer_bytes(
    status: int, lines: list[bytes], body: bytes, exchange: Exchange, *, close: bool
) -> bytes:
    has_body = status not in _WITHOUT_BODY
    ours = [b"Content-Length: %d" % len(body)] if has_body else []
    ours.append(date_line())
    if exchange.id_line:
        ours.append(exchange.id_line)
    if len(exchange.attempts) > 1:
        ours.append(b"Holdfast-Attempts: %d" % len(exchange.attempts))
    if exchange.dead_letter:
        ours.append(b"Holdfast-Dead-Letter: " + exchange.dead_letter.encode())
    if close:
        ours.append(b"Connection: close")
    # A fallback may bring a field that we would add.
    theirs = {_name(line) for line in lines}
    ours = [line for line in ours if _name(line) not in theirs]
    head = b"\r\n".join((status_line(status, b""), *lines, *ours, b"", b""))
    return head if exchange.method == "HEAD" or not has_body else head + body


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].lower()
