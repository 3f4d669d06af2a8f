"""Which key a request carries, whose it is, and what makes two requests the same.

A key is one Structured Field string in quotes (draft-ietf-httpapi-idempotency-key-header,
RFC 9651 3.3.3), or the bare word that nearly all clients send. Both spellings of one text
are one key. Nobody sees the text again: stores, logs and answers know a key by the name of
its record, a digest of it, of the route and of the caller.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b, sha256
from operator import itemgetter

RawHeaders = tuple[tuple[bytes, bytes], ...]

LONGEST = 255
"""Characters of a key, as it reads without quotes and escapes."""

_is_bare = re.compile(rb"[!#-+\--\[\]-~]{1,255}").fullmatch
"""Visible ASCII but the quotation mark, the comma and the backslash."""

_PARAMETERS = (
    rb"(?:[ ]*;[ ]*[a-z*][a-z0-9_.*-]*(?:=(?:\"(?:[ !#-\[\]-~]|\\[\"\\])*\"|[!#-+\--:<-~]+))?)*"
)
_quoted = re.compile(rb"\"((?:[ !#-\[\]-~]|\\[\"\\])*)\"" + _PARAMETERS).fullmatch
_escape = re.compile(rb"\\(.)").sub


def values_of(name: bytes, headers: RawHeaders) -> list[bytes]:
    """The values of all fields called *name*, which is in lower case."""
    return [value for field, value in headers if field.lower() == name]


def read_key(values: Sequence[bytes]) -> bytes | None:
    """The key that these fields hold; None if they hold none, or more than one."""
    if len(values) != 1:
        return None
    value = values[0].strip(b" \t")
    if _is_bare(value):
        return value
    quoted = _quoted(value)
    if quoted is None:
        return None
    key = _escape(rb"\1", quoted[1])
    return key if 0 < len(key) <= LONGEST else None


def caller_of(scope: Collection[bytes], headers: RawHeaders) -> list[bytes]:
    """What tells this caller from others: the fields called as *scope* says, as they were sent.

    Empty where none of them is there: those callers share their keys.
    """
    return _values(scope, headers)


def _values(names: Collection[bytes], headers: RawHeaders) -> list[bytes]:
    """Names and values of the fields called *names*, in lower case, in turn."""
    found = [pair for field, value in headers if (pair := (field.lower(), value))[0] in names]
    # The order of different fields means nothing.
    found.sort(key=itemgetter(0))
    return [part for pair in found for part in pair]


def record_name(route: str, caller: Iterable[bytes], key: bytes) -> str:
    """The name of the record of *key*: the same for nobody else, on no other route.

    Neither the key nor a credential can be read back from it.
    """
    parts = _told_apart((route.encode(), key, *caller))
    return blake2b(parts, digest_size=16, person=b"holdfast key").hexdigest()


_is_record_name = re.compile(r"[0-9a-f]{32}").fullmatch


def read_record_name(text: str) -> str | None:
    """The name of a record that somebody typed, in any case; None if it cannot be one."""
    name = text.lower()
    return name if _is_record_name(name) else None


def fingerprint(method: str, target: str, headers: RawHeaders, body: bytes) -> bytes:
    """What a duplicate has in common with the first: method, target, content and its kind."""
    fields = _values(_KINDS_OF_CONTENT, headers)
    parts = (method.encode(), target.encode("utf-8", "surrogateescape"), *fields)
    return sha256(_told_apart(parts) + body).digest()


_KINDS_OF_CONTENT = frozenset({b"content-type", b"content-encoding"})


def _told_apart(parts: Iterable[bytes]) -> bytes:
    """Each part with its length before it, so that no two lists of parts look the same."""
    return b"".join([b"%d:%b" % (len(part), part) for part in parts]) + b"|"
