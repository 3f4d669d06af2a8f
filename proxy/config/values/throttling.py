"""Value types of a throttle: algorithm, concurrency, burst, margin, and the key of callers."""

import re
from dataclasses import dataclass

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.nearest import nearest
from proxy.config.source.nodes import Mapping, Scalar
from proxy.config.values.base import Choice, Integer, JsonSchema, ValueType, string_schema
from proxy.config.values.headers import HEADER_NAME
from proxy.config.values.quantities import Duration
from proxy.http.durations import DURATION_PATTERN
from proxy.policy.settings import CallerSource, RateAlgorithm, ThrottleKey, ThrottleWithoutStore

CLIENT_IP_SYNONYMS = frozenset(
    {"ip", "client", "client.ip", "client-ip", "clientip", "source_ip", "address", "ipaddress"}
    | {"remote_addr", "remote_address", "$remote_addr", "$binary_remote_addr"}
)
"""Words of other products for the address of the client."""
SOURCE_SYNONYMS = {
    "header": "header",
    "headers": "header",
    "hdr": "header",
    "http": "header",
    "query": "query",
    "param": "query",
    "arg": "query",
}
"""Words of other products for ``header`` and ``query``, where the caller's name is found."""

ALGORITHM = Choice(
    *RateAlgorithm,
    synonyms={
        "token_bucket": "gcra, and burst for the size of the bucket",
        "leaky_bucket": "gcra",
        "sliding_window": "window",
        "sliding_window_log": "window",
        "sliding_window_counter": "window",
        "fixed_window": "window (at most so many in any such time)",
    },
)
"""The rate limit algorithm."""

ON_STORE_ERROR = Choice(
    *ThrottleWithoutStore,
    synonyms={
        "fail_open": "open",
        "fail-open": "open",
        "allow": "open",
        "fail_closed": "closed",
        "fail-closed": "closed",
        "deny": "closed",
        "memory": "local",
    },
)
"""How calls are limited while the store does not answer."""

_QUERY_NAME = r"[A-Za-z0-9._~$:@!\[\]-]+"


@dataclass(frozen=True, slots=True)
class CountOrNone(ValueType[int | None]):
    """A number of calls; None is ``none``: there is no such limit."""

    thing: str
    """The noun for what ``none`` switches off, for messages."""
    none = True
    noun = "whole number in range"
    example = "20"

    def read(self, scalar: Scalar) -> int | None:
        if scalar.text == "none":
            return None
        if not re.fullmatch(r"[-+]?[0-9]+", scalar.text):
            raise InvalidValue(
                f"{scalar.shown} is no whole number, write {self.example} (say) or none for no "
                f"{self.thing}"
            )
        return self._number.read(scalar)

    @property
    def _number(self) -> Integer:
        return Integer(1, zero=f"would let nothing through, write none for no {self.thing}")

    def write(self, value: int | None) -> int | str:
        return "none" if value is None else value

    def json_schema(self) -> JsonSchema:
        return {"anyOf": [{"const": "none"}, *self._number.json_schema()["anyOf"]]}


CONCURRENCY = CountOrNone("limit")
"""The number of calls that may be in flight."""
BURST = CountOrNone("burst")
"""The number of calls that may go out at once; ``none``: no more than the rate's number."""


@dataclass(frozen=True, slots=True)
class DurationOrAuto(ValueType[float | None]):
    """A duration in seconds; None is ``auto``: derived from the rate."""

    duration: Duration
    none = True
    noun = "duration in range"
    example = "auto"

    def read(self, scalar: Scalar) -> float | None:
        return None if scalar.text == "auto" else self.duration.read(scalar)

    def write(self, value: float | None) -> str:
        return "auto" if value is None else str(self.duration.write(value))

    def json_schema(self) -> JsonSchema:
        return string_schema(f"^(auto|{DURATION_PATTERN})$")


class CallerKey(ValueType[ThrottleKey | None]):
    """The property that distinguishes callers; None is ``none``: all share one limit."""

    none = True
    noun = "key"
    example = "client_ip"

    def read(self, scalar: Scalar) -> ThrottleKey | None:
        text = scalar.text
        if text == "none":
            return None
        if text == "client_ip":
            return ThrottleKey(CallerSource.CLIENT_IP)
        source, colon, name = text.partition(":")
        if not colon or source not in {"header", "query"}:
            raise InvalidValue(f"{scalar.shown} is no key, {_instead_of_key(text)}")
        if name.strip() and name != name.strip() and not scalar.plain:
            raise InvalidValue(f"{scalar.shown} has a space in it, write {source}:{name.strip()}")
        if name != name.strip() or not name:
            raise InvalidValue(two_keys_error(source, name.strip()))
        if source == "header":
            if not HEADER_NAME.fullmatch(name):
                raise InvalidValue(f'"{name}" is no name of a header, write header:X-Tenant (say)')
            return ThrottleKey(CallerSource.HEADER, name.lower())
        if not re.fullmatch(_QUERY_NAME, name):
            raise InvalidValue(
                f'"{name}" is no name of a query parameter, write query:tenant (say)'
            )
        return ThrottleKey(CallerSource.QUERY, name)

    def error_for_mapping(self, mapping: Mapping) -> str:
        return joined_by_colon(mapping, before="key: ")

    def write(self, value: ThrottleKey | None) -> str:
        if value is None:
            return "none"
        return f"{value.source}:{value.name}" if value.name else value.source

    def json_schema(self) -> JsonSchema:
        named = f"header:{HEADER_NAME.pattern}|query:{_QUERY_NAME}"
        return string_schema(f"^(none|client_ip|{named})$")


def joined_by_colon(mapping: Mapping, before: str) -> str:
    """Return the message for ``{header: X-Tenant}`` where ``header:X-Tenant`` belongs.

    Empty if *mapping* does not look as if that were meant. *before* is as in two_keys_error.
    """
    entry = next(iter(mapping.entries.values()), None)
    if entry is None or not isinstance(entry.node, Scalar) or "$" in entry.node.text:
        return ""
    return two_keys_error(entry.key, entry.node.text, before)


def two_keys_error(source: str, name: str, before: str = "key: ") -> str:
    """Return the message for ``key: header: X-Tenant``, in which the second space is too many.

    *before* is the text before the value in the suggestion; empty for an item of a list.
    """
    if not name:
        example = "X-Tenant" if source == "header" else "tenant"
        return f'"{source}:" names none, write {before}{source}:{example} (say)'
    return f'"{source}: {name}" is two keys to YAML, write {before}{source}:{name} (no space)'


def _instead_of_key(text: str) -> str:
    if text.lower() in CLIENT_IP_SYNONYMS:
        return "write client_ip"
    source, _, name = text.partition(":")
    ours = SOURCE_SYNONYMS.get(source.lower())
    if ours and name:
        return f"write {ours}:{name.strip()}"
    near = nearest(text, ["client_ip", "none"])
    if near:
        return f"did you mean {near}?"
    if HEADER_NAME.fullmatch(text) and ("-" in text or text[0].isupper()):
        return f"write header:{text}"
    return "write client_ip, header:NAME or query:NAME"
