"""Which caller a request belongs to, where a throttle gives each caller its own rate limit.

The value is read from the request as it arrived: fields that the route sets or removes
later make no difference. All requests without a value share one bucket. A request with
two values was refused before (``caller_fields.py``).

An IPv4 address is one caller, and so is an IPv6 network of 64 bits (``fair_share.py``):
every client with IPv6 has such a network, and could use another address of it for each
request.
"""

import re
from functools import lru_cache
from hashlib import blake2b

from proxy.http.fields import CREDENTIALS, comparable_credentials
from proxy.policy.fair_share import network_of
from proxy.policy.settings import CallerSource, ThrottleKey

_HEADER, _QUERY = CallerSource.HEADER, CallerSource.QUERY


def value_of(
    key: ThrottleKey, headers: tuple[tuple[bytes, bytes], ...], target: str, client_ip: str
) -> bytes | None:
    """Return the value that tells this caller from others, or None if the request has none.

    *target* is path and query as received; *client_ip* is empty where it is not known.
    """
    if key.source is _HEADER:
        return _header(key.name.encode(), headers)
    if key.source is _QUERY:
        return _parameter(key.name, target)
    return network_of(client_ip).encode() if client_ip else None


def digest(value: bytes, key: bytes = b"") -> bytes:
    """Return a digest of 16 bytes that stands for *value*, whatever its length.

    The value is often a credential, and credentials are not stored: it cannot be read back from the
    digest. Without *key* (64 bytes at most) not even a guess can be confirmed.
    """
    return blake2b(value, digest_size=16, key=key).digest()


def _header(name: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> bytes | None:
    for field, value in headers:
        if field.lower() == name:
            return (comparable_credentials(value) if name in CREDENTIALS else value) or None
    return None


def count_of_parameter(name: str, target: str) -> int:
    """Count how often the query of *target* has the parameter *name*, however that is escaped."""
    return sum(1 for _ in _finder(name).finditer(_query(target)))


def _parameter(name: str, target: str) -> bytes | None:
    found = _finder(name).search(_query(target))
    if found is None:
        return None
    return _unescaped(found["value"] or b"") or None


def _query(target: str) -> bytes:
    """Return the query's bytes as received: those that are no UTF-8 were kept as surrogates."""
    return target.partition("?")[2].encode("utf-8", "surrogateescape")


def _unescaped(text: bytes) -> bytes:
    """Decode *text* like a form: ``+`` is a blank, and an invalid escape stays as it is."""
    return _escape.sub(_byte, text.replace(b"+", b" "))


_escape = re.compile(rb"%([0-9A-Fa-f]{2})")


def _byte(escape: re.Match[bytes]) -> bytes:
    return bytes((int(escape[1], 16),))


@lru_cache(maxsize=256)  # the names are those of the configuration
def _finder(name: str) -> re.Pattern[bytes]:
    """Return a pattern that finds the parameters called *name*, however that is escaped.

    The pattern looks at each byte once: splitting a long query and decoding all its names takes ten
    times as long.
    """
    spelled = b"".join(map(_spellings, name.encode()))
    return re.compile(rb"(?:\A|&)" + spelled + rb"(?:=(?P<value>[^&]*))?(?=&|\Z)")


_NOT_AS_THEY_ARE = frozenset(b"&=+%")
"""Bytes that mean something else in a query unless they are escaped."""


def _spellings(byte: int) -> bytes:
    """Return a pattern for one byte of a name: as it is, or escaped."""
    escaped = rb"(?i:%%%02x)" % byte
    if byte in _NOT_AS_THEY_ARE:
        return escaped
    plain = rb"\+" if byte == ord(" ") else re.escape(bytes([byte]))
    return rb"(?:%b|%b)" % (plain, escaped)
