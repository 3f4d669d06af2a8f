"""Value types of header fields: names, editable names, values, and our name in Via."""

import re
from collections.abc import Mapping
from typing import ClassVar

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.source.nodes import Scalar
from proxy.config.values.base import PatternText, ValueType, string_schema
from proxy.http.fields import HOP_BY_HOP

# RFC 9110 5.6.2.
_NAME_SIGN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]"
HEADER_NAME = re.compile(f"{_NAME_SIGN}+")
# RFC 9110 5.5: visible characters, spaces and tabs; bytes beyond ASCII are opaque.
_VALUE = re.compile(r"(?:[\x21-\x7e\xa0-\xff](?:[\t \x21-\x7e\xa0-\xff]*[\x21-\x7e\xa0-\xff])?)?")

_SECRET_NAME = re.compile(
    r"(?:^|-)(?:authorization|cookie|auth|api-?key|access-?key|token|secret|password|signature)"
    r"(?:-|$)",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"(?:bearer|basic|token)\s+\S", re.IGNORECASE)

_NOT_TO_EDIT = {
    "host": "write host: preserve or host: upstream in the upstream",
    "content-length": "it follows from the body, remove it here",
    "transfer-encoding": "it follows from the body, remove it here",
    "upgrade": "write upgrades: [websocket] in the route",
    "via": "it keeps requests from going in circles, remove it here",
    "expect": "the proxy answers it, remove it here",
}


class HeaderName(PatternText):
    """The name of a header field, in upper or lower case."""

    noun = "name of a header"
    example = "X-Tenant"
    pattern = HEADER_NAME.pattern
    schema: ClassVar = {"type": "string", "pattern": f"^{HEADER_NAME.pattern}$"}

    @property
    def expects(self) -> str:
        return f"the name of a header: {self.example}"

    def same_key(self, key: str) -> str:
        return key.lower()


class EditableHeader(HeaderName):
    """The name of a header field that a route may set or remove."""

    def read(self, scalar: Scalar) -> str:
        name = super().read(scalar)
        suggestion = _NOT_TO_EDIT.get(name.lower())
        if suggestion is None and name.lower().encode() in HOP_BY_HOP:
            suggestion = "it belongs to one connection, remove it here"
        if suggestion is not None:
            raise InvalidValue(f"{name} cannot be edited, {suggestion}")
        return name


_LONGEST_PSEUDONYM = 64


class Pseudonym(ValueType[str]):
    """The name of this proxy in Via and Proxy-Status: a token (RFC 9110 7.6.3)."""

    noun = "name"
    example = "egress"
    expects = f"one word of letters, digits, - . and _, at most {_LONGEST_PSEUDONYM}: {example}"
    schema = string_schema(f"^{_NAME_SIGN}{{1,{_LONGEST_PSEUDONYM}}}$")

    def read(self, scalar: Scalar) -> str:
        if len(scalar.text) > _LONGEST_PSEUDONYM:
            raise InvalidValue(
                f"a name has at most {_LONGEST_PSEUDONYM} characters, write a shorter one"
            )
        if not HEADER_NAME.fullmatch(scalar.text):
            raise InvalidValue(
                f"{scalar.shown} cannot stand in Via, write one word of letters, digits, - . and _ "
                f"(name: {self.example}, say)"
            )
        return scalar.text


class HeaderValue(ValueType[str]):
    """The value of a header field. Never quoted in messages: it may be a secret."""

    noun = "value of a header"
    example = '"text"'
    expects = "the value of a header, in quotes: one line of text"
    is_hidden = True  # nothing of a secret may be shown
    examples = ("text",)
    schema: ClassVar = {"type": ["string", "number", "boolean"]}

    def read(self, scalar: Scalar) -> str:
        if not _VALUE.fullmatch(scalar.text):
            raise InvalidValue(
                "a header's value is one line of Latin-1 text without spaces around it, write one"
            )
        return scalar.text


def field_lines(fields: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return a table of header fields as pairs of name and value."""
    return tuple(fields.items())


def looks_secret(name: str, value: str) -> bool:
    """Return whether a header with this name or value is likely to carry a credential."""
    return bool(value) and bool(_SECRET_NAME.search(name) or _SECRET_VALUE.match(value))
