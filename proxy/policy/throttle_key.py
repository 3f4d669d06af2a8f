"""Which bucket a request belongs to, where each caller has its own.

The value is read from the request as it arrived: what the route sets or takes out
later makes no difference. A request without a value goes to the bucket that all those
share.

An IPv6 address counts as a whole. Somebody with a network of their own could use a new
one for each request, and what stops them is ``max_keys``, beyond which all share one
bucket; cutting addresses short would make one caller of all those behind a network.
"""

import re
from functools import lru_cache
from hashlib import blake2b

from proxy.policy.settings import ThrottleKey


def value_of(
    key: ThrottleKey, headers: tuple[tuple[bytes, bytes], ...], target: str, client_ip: str
) -> bytes | None:
    """What tells this caller from others, or None if nothing does.

    *target* is path and query as received, *client_ip* is empty where there is none.
    """
    match key.source:
        case "header":
            return _header(key.name.encode(), headers)
        case "query":
            return _parameter(key.name, target)
        case _:
            return client_ip.encode() or None


def digest(value: bytes) -> bytes:
    """Sixteen bytes that stand for *value*: however long it is, and not to be read back.

    Often it is a credential, and those are not kept.
    """
    return blake2b(value, digest_size=16).digest()


def _header(name: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> bytes | None:
    # RFC 9110 5.3: several lines of one name are one list.
    values = [value for field, value in headers if value and field.lower() == name]
    return b", ".join(values) or None


def _parameter(name: str, target: str) -> bytes | None:
    _, _, query = target.partition("?")
    # The very bytes: those that are no text were kept as lone surrogates.
    found = _finder(name).search(query.encode("utf-8", "surrogateescape"))
    if found is None:
        return None
    return _unescaped(found["value"] or b"") or None


def _unescaped(text: bytes) -> bytes:
    """As in a form: ``+`` is a blank, and what is no escape after all stays as it is."""
    return _escape.sub(_byte, text.replace(b"+", b" "))


_escape = re.compile(rb"%([0-9A-Fa-f]{2})")


def _byte(escape: re.Match[bytes]) -> bytes:
    return bytes((int(escape[1], 16),))


@lru_cache(maxsize=256)  # the names are those of the configuration
def _finder(name: str) -> re.Pattern[bytes]:
    """Finds the first parameter called *name*, however it is escaped.

    Each byte is looked at once: to split a long query and decode all its names takes ten
    times as long.
    """
    spelled = b"".join(map(_spellings, name.encode()))
    return re.compile(rb"(?:\A|&)" + spelled + rb"(?:=(?P<value>[^&]*))?(?=&|\Z)")


_NOT_AS_THEY_ARE = frozenset(b"&=+%")
"""Bytes that mean something else in a query unless they are escaped."""


def _spellings(byte: int) -> bytes:
    """A pattern for one byte of a name: as it is, or escaped."""
    escaped = rb"(?i:%%%02x)" % byte
    if byte in _NOT_AS_THEY_ARE:
        return escaped
    plain = rb"\+" if byte == ord(" ") else re.escape(bytes([byte]))
    return rb"(?:%b|%b)" % (plain, escaped)
