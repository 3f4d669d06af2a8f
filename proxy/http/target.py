r"""Request targets: which are accepted, and how one is rewritten for the upstream.

The proxy matches the path as received and passes on the very same bytes. The
upstream may read them otherwise: resolve ``..``, decode ``%2e``, take ``\`` for
``/``, drop what follows ``;``. Then a request would end up where its route never
allowed it to go. So a path that can be read in two ways is refused, and every other
one is relayed as received, byte for byte (RFC 9110 7.7). ``%2F``, ``%5C``, ``;`` and
``//`` are fine where they do not set off a dot segment.

The query takes part in no route match and is not resolved by upstreams, so
it may contain anything: ``?q=100%``, ``?text=a%0Ab`` and ``?dir=..\x`` are
everyday requests.
"""

import re

from proxy.http.hosts import BAD_HOST, host_name
from proxy.http.refusal import Refusal, RefusalReason

# A plain tuple, because one is made for every request: 0.03 µs, a class takes 0.16.
Target = tuple[str, str, str | None]
"""The path; path and query; the authority of an absolute target, or None."""

ASTERISK = "*"
"""The path of a request to the server as a whole (``OPTIONS *``)."""


def _rules(*table: tuple[str, str]) -> tuple[tuple[re.Pattern[str], Refusal], ...]:
    return tuple(
        (re.compile(pattern, re.IGNORECASE | re.ASCII), Refusal(RefusalReason.BAD_REQUEST, detail))
        for pattern, detail in table
    )


_NOWHERE_IN_A_TARGET = _rules(
    (
        r"[\x00-\x20\x7f]",
        "The request target holds a space or a control character; percent-encode it.",
    ),
    ("#", "The request target holds a '#'; leave the fragment out, or write %23."),
)
_NOWHERE_IN_A_PATH = _rules(
    (r"\\", "The path holds a backslash; write '/' or %5C."),
    (
        r"(?:/|%2f|%5c)(?:\.|%2e){1,2}(?:/|%2f|%5c|;|%3b|\Z)",
        "The path holds a '.' or '..' segment; send the path that it resolves to.",
    ),
    ("%(?![0-9a-f]{2})", "The path holds a '%' without two hex digits; write %25."),
    ("%0[0ad]", "The path holds an encoded NUL, CR or LF; leave it out."),
)
_NOT_A_PATH = Refusal(
    RefusalReason.BAD_REQUEST, "The request target is not a path; send one that begins with '/'."
)
_NOT_OPTIONS = Refusal(
    RefusalReason.BAD_REQUEST, "The target '*' is for OPTIONS alone; send a path."
)

# Visible ASCII but for '#', '%' and the backslash: no further check is needed,
# unless a segment begins with a dot.
_is_plain = re.compile(r"/[!\"$&-\[\]-~]*").fullmatch
_absolute_form = re.compile(r"https?://([^/?]*)(.*)", re.IGNORECASE | re.ASCII).fullmatch


def split_target(method: str, target: str) -> Target | Refusal:
    """Split the target of a request line, or return why it is refused.

    CONNECT has a target form of its own; the caller has refused that method before.
    """
    if _is_plain(target) and "/." not in target:
        return (target if "?" not in target else target.partition("?")[0]), target, None
    refusal = _first_breach(_NOWHERE_IN_A_TARGET, target)
    if refusal is not None:
        return refusal
    if target.startswith("/"):
        return _split_path(target, None)
    if target == ASTERISK:
        return (ASTERISK, ASTERISK, None) if method == "OPTIONS" else _NOT_OPTIONS
    return _split_absolute(method, target)


def _split_absolute(method: str, target: str) -> Target | Refusal:
    parts = _absolute_form(target)
    if parts is None:
        return _NOT_A_PATH
    authority, rest = parts.groups()
    # Host may be empty, but an http URL needs one (RFC 9110 4.2.1).
    if not host_name(authority):
        return BAD_HOST
    if not rest and method == "OPTIONS":  # the same as `*`: RFC 9112 3.2.4
        return ASTERISK, ASTERISK, authority
    return _split_path(rest if rest.startswith("/") else f"/{rest}", authority)


def _split_path(target: str, authority: str | None) -> Target | Refusal:
    path = target.partition("?")[0]
    return _first_breach(_NOWHERE_IN_A_PATH, path) or (path, target, authority)


def _first_breach(rules: tuple[tuple[re.Pattern[str], Refusal], ...], text: str) -> Refusal | None:
    for pattern, refusal in rules:
        if pattern.search(text):
            return refusal
    return None


def rewrite_target(target: str, strip_prefix: str, base_path: str) -> str:
    """Return the path and query to send upstream in place of *target*.

    *strip_prefix* is removed only where it ends with a segment, *base_path*
    is put in front. Neither of them ends in a slash.
    """
    if strip_prefix and target.startswith(strip_prefix):
        rest = target[len(strip_prefix) :]
        if not rest or rest[0] in "/?":
            target = rest
    if base_path:
        target = base_path + target
    return target if target[:1] == "/" else f"/{target}"


def readable_target(target: str) -> str:
    """Escape lone surrogates, which strict JSON readers refuse: bytes that are no UTF-8."""
    return target.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
