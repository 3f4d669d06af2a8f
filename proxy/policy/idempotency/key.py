"""Which key a request carries, whose it is, and what makes two requests the same.

A key is one Structured Field string in quotes (draft-ietf-httpapi-idempotency-key-header,
RFC 9651 3.3.3), or the bare word that nearly all clients send. Both spellings of one text
are one key. The text itself is never stored or shown: stores, logs and answers know a key by
the name of its record, a digest of the key, the route and the caller.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b, sha256
from operator import itemgetter
from typing import NamedTuple

from proxy.http.fields import CREDENTIALS, RawHeaders, comparable_credentials
from proxy.policy.idempotency.record import make

LONGEST = 255
"""Characters of a key, as it reads without quotes and escapes."""

_is_bare = re.compile(rb"[!#-+\--\[\]-~]{1,255}").fullmatch
"""Matches visible ASCII but the quotation mark, the comma and the backslash."""

_PARAMETERS = (
    rb"(?:[ ]*;[ ]*[a-z*][a-z0-9_.*-]*(?:=(?:\"(?:[ !#-\[\]-~]|\\[\"\\])*\"|[!#-+\--:<-~]+))?)*"
)
_quoted = re.compile(rb"\"((?:[ !#-\[\]-~]|\\[\"\\])*)\"" + _PARAMETERS).fullmatch
_escape = re.compile(rb"\\(.)").sub


class KeyFields(NamedTuple):
    """What the header fields of a request say about its key."""

    keys: list[bytes]
    """Values of the field that carries the key: one, if all is well."""
    caller: list[bytes]
    """What tells this caller from others: the fields of ``scope``, alternating names and values, as
    ``credentials.py`` compares them. Empty where there is none of them, or none with a value: those
    callers share their keys."""
    content: list[bytes]
    """Alternating names and values of the fields that describe the content."""
    repeated: str
    """A field of ``scope`` that is there more than once; empty if none is."""


class KeyReader:
    """Finds in the fields of a request what a route needs to know of its key."""

    def __init__(self, header: bytes, scope: Iterable[bytes]) -> None:
        """Read the key from the field *header*; *scope* tells callers apart; all in lower case."""
        scope = frozenset(scope)
        uses = dict.fromkeys(scope, _CALLER) | dict.fromkeys(_KINDS_OF_CONTENT, _CONTENT)
        uses |= dict.fromkeys(scope & CREDENTIALS, _CREDENTIALS)
        # A field may tell callers apart and be the key at once.
        uses[header] = _BOTH if header in scope else _KEY
        self._uses = uses

    def read(self, headers: RawHeaders) -> KeyFields:
        """Read all of it in one pass, since each request with a key takes it."""
        uses = self._uses
        keys: list[bytes] = []
        caller: list[bytes] = []
        content: list[bytes] = []
        for field, value in headers:
            name = field.lower()
            use = uses.get(name)
            if use is None:
                continue
            if use == _KEY:
                keys.append(value)
            elif use == _CONTENT:
                content += (name, value)
            elif use == _CREDENTIALS:
                caller += (name, comparable_credentials(value))
            else:
                if use == _BOTH:
                    keys.append(value)
                caller += (name, value)
        repeated = ""
        if caller and (len(caller) > 2 or not caller[1]):
            repeated = _first_repeated(caller[::2])
            caller = _with_values(caller)
            _sort(caller)
        if len(content) > 2:
            _sort(content)
        return make(KeyFields, (keys, caller, content, repeated))


_KINDS_OF_CONTENT = (b"content-type", b"content-encoding")
_KEY, _CALLER, _CREDENTIALS, _CONTENT, _BOTH = range(5)
"""What a field is read for; the last is the key and tells callers apart."""


def _first_repeated(names: list[bytes]) -> str:
    return next((name.decode() for name in names if names.count(name) > 1), "")


def _with_values(fields: list[bytes]) -> list[bytes]:
    """Return the alternating names and values of *fields* that are not empty."""
    pairs = zip(fields[::2], fields[1::2], strict=True)
    return [part for pair in pairs if pair[1] for part in pair]


def _sort(fields: list[bytes]) -> None:
    """Sort by name: the order of different fields means nothing, that of equal ones does."""
    pairs = sorted(zip(fields[::2], fields[1::2], strict=True), key=itemgetter(0))
    fields[:] = [part for pair in pairs for part in pair]


def read_key(values: Sequence[bytes]) -> bytes | None:
    """Return the key of these field values; None if there is none, or more than one."""
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


def record_name(route: str, caller: Sequence[bytes], key: bytes) -> str:
    """Return the name of the record of *key*: unique to this caller and route.

    Neither the key nor a credential can be read back from it.
    """
    if caller:
        parts = _unambiguous((route.encode(), key, *caller))
    else:
        # speed: same as _unambiguous(), held by tests/policy/idempotency/test_key.py; many callers
        # send no credential; saves 3 of 8 calls, 0.9 instead of 1.5 µs
        own = route.encode()
        parts = b"%d:%b%d:%b|" % (len(own), own, len(key), key)
    return blake2b(parts, digest_size=16, person=b"holdfast key").hexdigest()


def scope_digest(caller: Sequence[bytes]) -> str:
    """Return a digest of the caller's ``scope`` fields; no credential can be read from it."""
    return blake2b(_unambiguous(caller), digest_size=8, person=b"holdfast scope").hexdigest()


_is_record_name = re.compile(r"[0-9a-f]{32}").fullmatch


def read_record_name(text: str) -> str | None:
    """Return the name of a record that was typed in any case; None if it cannot be one."""
    name = text.lower()
    return name if _is_record_name(name) else None


def fingerprint(method: str, target: str, content: Sequence[bytes], body: bytes) -> bytes:
    """Return what a duplicate has in common with the first: method, target, content and its type.

    *content* alternates names and values. Where the upstream sees the client's own host, it is one
    of them.
    """
    verb, path = method.encode(), target.encode("utf-8", "surrogateescape")
    if len(content) == 2:
        # speed: same as _unambiguous(), held by tests/policy/idempotency/test_key.py; mostly there
        # is the type alone; saves 2 of 12 calls, 1.1 instead of 1.9 µs
        kind, value = content
        sizes = (len(verb), verb, len(path), path, len(kind), kind, len(value), value)
        parts = b"%d:%b%d:%b%d:%b%d:%b|" % sizes
    else:
        parts = _unambiguous((verb, path, *content))
    return sha256(parts + body).digest()


def _unambiguous(parts: Sequence[bytes]) -> bytes:
    """Join *parts*, each with its length before it, so that no two lists of parts look the same."""
    sized = [size_or_part for part in parts for size_or_part in (len(part), part)]
    return (b"%d:%b" * len(parts) + b"|") % tuple(sized)
