"""Answers that Holdfast makes itself: the one place that writes them.

``application/problem+json`` (RFC 9457) with a ``Proxy-Status`` (RFC 9209) that
tells a client, or the next proxy, that the upstream did not say this.
"""

import json

from proxy.policy.fields import PSEUDONYM
from proxy.policy.outcome import Attempt
from proxy.policy.refusal import Reason, Refusal
from proxy.policy.status_lines import status_line
from proxy.server.dates import date_line

ALLOWED = b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, QUERY"


def problem_bytes(
    refusal: Refusal,
    *,
    method: str = "GET",
    request_id: str = "",
    attempts: list[Attempt] | None = None,
    close: bool,
) -> bytes:
    """The whole answer, head and body; to a HEAD only the head."""
    members: dict[str, object] = {
        "type": f"urn:{PSEUDONYM}:problem:{refusal.reason}",
        "title": refusal.title,
        "status": refusal.status,
        "detail": refusal.detail,
    }
    if attempts:
        members["attempts"] = len(attempts)
    body = json.dumps(members).encode()
    lines = [
        status_line(refusal.status, b""),
        b"Content-Type: application/problem+json",
        b"Content-Length: %d" % len(body),
        b"Cache-Control: no-store",
        b"Proxy-Status: %b; error=%b" % (PSEUDONYM.encode(), refusal.proxy_error.encode()),
        date_line(),
    ]
    if refusal.retry_after is not None:
        lines.append(b"Retry-After: %d" % refusal.retry_after)
    if refusal.reason is Reason.METHOD:
        lines.append(ALLOWED)
    if request_id:
        lines.append(b"X-Request-Id: %b" % request_id.encode())
    if close:
        lines.append(b"Connection: close")
    head = b"\r\n".join((*lines, b"", b""))
    return head if method == "HEAD" else head + body
