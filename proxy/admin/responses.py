"""The responses of the admin listener: JSON, problems (RFC 9457), and safe headers.

As on the proxied side a problem is typed ``urn:holdfast:problem:REASON``, is not
to be stored, and carries no text of an exception.
"""

import json

from aiohttp import web

_COMMON_FIELDS = {
    "Cache-Control": "no-store",
    "Server": "holdfast",
    # Nothing here is a page: no script, no frame, no guessing of types, no embedding.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


STREAMED = _COMMON_FIELDS
"""Header fields of a response that is written piece by piece."""


def data(
    body: bytes, content_type: str, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """Make a response with *body* as it is."""
    return web.Response(
        body=body,
        status=status,
        headers={**_COMMON_FIELDS, "Content-Type": content_type, **(headers or {})},
    )


def document(content: dict[str, object], status: int = 200) -> web.Response:
    """Make a response in JSON, indented for the person who calls curl."""
    return data(_json(content), "application/json", status)


def problem(
    status: int,
    reason: str,
    detail: str,
    headers: dict[str, str] | None = None,
    **extensions: object,
) -> web.Response:
    """Make a problem; *detail* tells the reader what to do instead."""
    content = {
        "type": f"urn:holdfast:problem:{reason}",
        "title": _TITLES[reason],
        "status": status,
        "detail": detail,
        **extensions,
    }
    return data(_json(content), "application/problem+json", status, headers)


_TITLES = {
    "token": "Token missing or wrong",
    "foreign_host": "Foreign Host",
    "foreign_origin": "Foreign origin",
    "bad_request": "Bad request",
    "not_found": "Not found",
    "no_record": "No such record",
    "no_attempts": "No such request",
    "key_in_flight": "Still running",
    "no_letter": "No such dead letter",
    "letter_replaying": "Being sent again",
    "letter_without_body": "Body not kept",
    "letter_uncertain": "Outcome uncertain",
    "letter_may_have_run": "It may have run",
    "letter_without_route": "No such route",
    "letters": "Dead letters unavailable",
    "no_delivery": "No such delivery",
    "delivery_under_way": "Being sent",
    "delivery_over": "The delivery has ended",
    "delivery_may_have_run": "It may have run",
    "delivery_open": "Another one is open",
    "delivery_changed": "It changes just now",
    "deliveries": "Deliveries unavailable",
    "draining": "Shutting down",
    "method": "Method not allowed",
    "body_too_large": "Body too large",
    "slow_client": "Request took too long to arrive",
    "config": "Configuration refused",
    "store": "Store unavailable",
    "internal": "Internal error",
}


def _json(content: dict[str, object]) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"
