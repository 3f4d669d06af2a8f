"""Value types of idempotency: headers and methods of keys, their scope, statuses that are kept."""

import re
from collections.abc import Iterable

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.nearest import meant
from proxy.config.source.nodes import Mapping, Scalar
from proxy.config.values.base import (
    Choice,
    Integer,
    JsonSchema,
    ValueType,
    alternatives,
    either,
    merged,
    or_reference,
    string_schema,
)
from proxy.config.values.headers import HEADER_NAME, HeaderName
from proxy.config.values.paths import Method
from proxy.config.values.throttling import (
    CLIENT_IP_SYNONYMS,
    OPEN_AND_CLOSED_SYNONYMS,
    SOURCE_SYNONYMS,
    caller_header,
    joined_by_colon,
    refuse_spaces,
)
from proxy.http.durations import parse_duration
from proxy.http.fields import HOP_BY_HOP
from proxy.policy.settings import (
    NEVER_KEPT_BY_CLASS,
    AmbiguousKeys,
    InFlightDuplicates,
    KeysWithoutStore,
)

_METHODS = ("POST", "PATCH", "PUT", "DELETE")
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "QUERY"})

_MISMATCH_STATUSES = (422, 409)

KEPT_CLASSES = ("2xx", "3xx", "4xx")
"""The default of ``keep``: classes of statuses whose responses are stored."""
_CLASS = re.compile(r"[2-5]xx")

_NO_KEY = frozenset({b"host", b"content-length", b"content-type"}) | HOP_BY_HOP

IN_FLIGHT = Choice(
    *InFlightDuplicates,
    synonyms={"wait": "block join queue", "reject": "conflict error fail 409"},
)
"""What a duplicate gets while the first request with its key is in flight."""

ON_AMBIGUOUS = Choice(
    *AmbiguousKeys,
    synonyms={"release": "retry allow", "hold": "lock block"},
)
"""What happens to a key whose request may have run."""

ON_KEY_STORE_ERROR = Choice(
    *KeysWithoutStore,
    synonyms={
        **OPEN_AND_CLOSED_SYNONYMS,
        "closed (503), or open to run without a record of it": "local",
    },
)
"""How requests with a key are treated while the store does not answer."""


def kept_statuses(item: str | int) -> frozenset[int]:
    """Return the statuses that an item of ``keep`` stands for.

    A class leaves out the statuses that depend on the moment or on the caller; a number
    stands for itself.
    """
    if isinstance(item, int):
        return frozenset({item})
    first = int(item[0]) * 100
    return frozenset(range(first, first + 100)) - NEVER_KEPT_BY_CLASS


def all_kept_statuses(items: Iterable[str | int]) -> frozenset[int]:
    """Return the statuses that a list of ``keep`` stands for."""
    return frozenset[int]().union(*map(kept_statuses, items))


class RequestKeyHeader(HeaderName):
    """The name of the header field that carries an idempotency key."""

    example = "Idempotency-Key"

    def read(self, scalar: Scalar) -> str:
        name = super().read(scalar)
        if name.lower().encode() in _NO_KEY:
            raise InvalidValue(f"{name} has a meaning of its own, write {self.example} (say)")
        return name


class HonouredHeader(RequestKeyHeader):
    """The header field in which an upstream honours a key; refuses other values of ``honours_key``.

    ``24h`` and ``"true"`` could be names of header fields, but are not meant as such, and no
    request would carry such a key.
    """

    def read(self, scalar: Scalar) -> str:
        text = scalar.text
        if parse_duration(text) is not None:
            raise InvalidValue(f"{text} is a time, write honours_key: {{for: {text}}}")
        if text.lower() in {"true", "false"}:
            raise InvalidValue(f'"{text}" is text here, write {text.lower()} without quotes')
        source, colon, name = text.partition(":")
        if source == "header" and colon and HEADER_NAME.fullmatch(name.strip()):
            raise InvalidValue(f"{scalar.shown} is no name of a header, write {name.strip()}")
        if text.isdigit():
            raise InvalidValue(f"{text} is no name of a header, write {self.example} (say)")
        return super().read(scalar)


class KeyedMethod(ValueType[str]):
    """A method whose requests can have an idempotency key."""

    noun = "method that can have a key"
    example = "POST"
    expects = alternatives(_METHODS)
    examples = ()
    words = _METHODS
    schema = or_reference({"enum": list(_METHODS)})

    def read(self, scalar: Scalar) -> str:
        if scalar.text == "*":
            raise InvalidValue(f"* is no method, write {', '.join(_METHODS)}")
        name = Method().read(scalar)
        if name in _SAFE:
            raise InvalidValue(
                f"{name} changes nothing and needs no key, remove it ({', '.join(_METHODS)} can "
                f"have one)"
            )
        if name not in _METHODS:
            raise InvalidValue(f"{name} cannot have a key, write some of {', '.join(_METHODS)}")
        return name


class CallerHeader(ValueType[str]):
    """A header field that distinguishes callers, in lower case; written ``header:NAME``."""

    noun = "scope"
    example = "header:Authorization"
    expects = f"header: and a name, without a space: {example}"
    schema = string_schema(f"^header:{HEADER_NAME.pattern}$")

    def read(self, scalar: Scalar) -> str:
        text = scalar.text
        source, colon, name = text.partition(":")
        if not colon or source != "header":
            raise InvalidValue(f"{scalar.shown} is no scope, {_instead_of_scope(text)}")
        refuse_spaces(scalar, before="")
        return caller_header(name, self.example)

    def error_for_mapping(self, mapping: Mapping) -> str:
        return joined_by_colon(mapping, before="")

    def write(self, value: str) -> str:
        return f"header:{value}"


class MismatchStatus(ValueType[int]):
    """The status of the response to a key that is reused with another request."""

    noun = "status for a mismatch"
    example = "422"
    expects = alternatives(map(str, _MISMATCH_STATUSES))
    examples = ()
    schema = or_reference({"enum": list(_MISMATCH_STATUSES)})

    def read(self, scalar: Scalar) -> int:
        if scalar.text not in map(str, _MISMATCH_STATUSES):
            raise InvalidValue(f"{scalar.shown} is neither 422 nor 409, write one of them")
        return Integer(200, 599).read(scalar)


class KeptStatus(ValueType[str | int]):
    """One item of ``keep``: a status as a number, or a class of statuses as a word."""

    noun = "status that can be kept"
    example = "2xx"
    expects = "a status from 200 to 599, or a class: 2xx, 3xx, 4xx or 5xx"
    examples = ("2xx",)

    def read(self, scalar: Scalar) -> str | int:
        text = scalar.text
        if _CLASS.fullmatch(text):
            return text
        if re.fullmatch(r"[2-5][0-9]{2}", text):
            return int(text)
        if text == "default":
            raise InvalidValue(f"default has no meaning here, write {', '.join(KEPT_CLASSES)}")
        if re.fullmatch(r"[0-9]{1,4}|[0-9]xx", text):
            raise InvalidValue(
                f"{text} is no final status, write one from 200 to 599, or a class: 2xx"
            )
        raise InvalidValue(f"{scalar.shown} is no status, {_instead_of_status(text)}")

    def accepted(self) -> JsonSchema:
        status = {"type": "integer", "minimum": 200, "maximum": 599}
        numbers = merged(status, string_schema("^[2-5][0-9]{2}$"))
        return either({"enum": [f"{first}xx" for first in range(2, 6)]}, "a status", numbers)


def _instead_of_scope(text: str) -> str:
    if text == "none":
        return "write scope: [] if all callers are to share their keys"
    source, _, name = text.partition(":")
    if SOURCE_SYNONYMS.get(source.lower()) == "header" and name.strip():
        return f"write header:{name.strip()}"
    if name.strip() and meant(source, ("header",)):
        return f"did you mean header:{name.strip()}?"
    looks_like_one = "-" in text or text[:1].isupper() or text in {"authorization", "cookie"}
    if looks_like_one and HEADER_NAME.fullmatch(text) and text.lower() not in CLIENT_IP_SYNONYMS:
        return f"write header:{text}"
    return "only headers tell callers apart, write header:X-Tenant (say)"


def _instead_of_status(text: str) -> str:
    same = re.fullmatch(r"([2-5])(?:xx|00-(?:\1)99)", text.lower())
    if same:
        return f"write {same[1]}xx"
    if text in {"all", "any", "*"}:
        return "write 2xx, 3xx, 4xx, 5xx"
    if text in {"success", "ok", "successful"}:
        return "write 2xx"
    return "write 2xx, 3xx, 4xx, 5xx or a number"
