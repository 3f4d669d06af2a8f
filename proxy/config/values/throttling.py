"""Value types of a throttle: algorithm, concurrency, burst, margin, and the key of callers."""

import re
from dataclasses import dataclass

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.nearest import meant
from proxy.config.diagnostics.other_products import by_other_word
from proxy.config.source.nodes import Mapping, Scalar
from proxy.config.values.base import Choice, CountOrWord, Integer, ValueType, string_schema
from proxy.config.values.headers import HEADER_NAME
from proxy.config.values.quantities import Duration
from proxy.http.durations import DURATION_PATTERN
from proxy.policy.settings import CallerSource, RateAlgorithm, ThrottleKey, ThrottleWithoutStore

CLIENT_IP_SYNONYMS = frozenset(
    {"ip", "client", "client.ip", "client-ip", "clientip", "source_ip", "address", "ipaddress"}
    | {"remote_addr", "remote_address", "$remote_addr", "$binary_remote_addr"}
)
"""Words of other products for the address of the client."""
SOURCE_SYNONYMS = by_other_word({"header": "header headers hdr http", "query": "query param arg"})
"""Words of other products for ``header`` and ``query``, where the caller's name is found."""

ALGORITHM = Choice(
    *RateAlgorithm,
    synonyms={
        "gcra, and burst for the size of the bucket": "token_bucket",
        "gcra": "leaky_bucket",
        "window": "sliding_window sliding_window_log sliding_window_counter",
        "window (at most so many in any such time)": "fixed_window",
    },
)
"""The rate limit algorithm."""

OPEN_AND_CLOSED_SYNONYMS = {
    "open": "fail_open fail-open allow",
    "closed": "fail_closed fail-closed deny",
}
"""Words of other products for what is done while the store does not answer."""

ON_STORE_ERROR = Choice(
    *ThrottleWithoutStore, synonyms={**OPEN_AND_CLOSED_SYNONYMS, "local": "memory"}
)
"""How calls are limited while the store does not answer."""

_QUERY_NAME = r"[A-Za-z0-9._~$:@!\[\]-]+"


class CountOrNone(CountOrWord):
    """A number of calls; None is ``none``: there is no such limit."""

    noun = "whole number in range"
    example = "20"
    word = "none"

    def __init__(self, thing: str) -> None:
        """Take the noun for what ``none`` switches off, for messages."""
        self.number = Integer(1, zero=f"would let nothing through, write none for no {thing}")
        self.reason = f" or none for no {thing}"


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
    schema = string_schema(f"^(auto|{DURATION_PATTERN})$")

    words = ("auto",)

    @property
    def expects(self) -> str:
        return f"auto, or {self.duration.expects.replace('auto, or ', '')}"

    @property
    def examples(self) -> tuple[str, ...]:
        return ("auto", self.duration.example.removeprefix("auto, or "))

    def read(self, scalar: Scalar) -> float | None:
        return None if scalar.text == "auto" else self.duration.read(scalar)

    def write(self, value: float | None) -> str:
        return "auto" if value is None else str(self.duration.write(value))


class CallerKey(ValueType[ThrottleKey | None]):
    """The property that distinguishes callers; None is ``none``: all share one limit."""

    none = True
    noun = "key"
    example = "client_ip"
    expects = "client_ip, header:NAME or query:NAME (no space behind the colon), or none"
    examples = ("client_ip", "header:X-Tenant", "query:tenant", "none")
    schema = string_schema(f"^(none|client_ip|header:{HEADER_NAME.pattern}|query:{_QUERY_NAME})$")
    words = ("client_ip", "none")

    def read(self, scalar: Scalar) -> ThrottleKey | None:
        text = scalar.text
        if text == "none":
            return None
        if text == "client_ip":
            return ThrottleKey(CallerSource.CLIENT_IP)
        source, colon, name = text.partition(":")
        if not colon or source not in {"header", "query"}:
            raise InvalidValue(f"{scalar.shown} is no key, {_instead_of_key(text)}")
        refuse_spaces(scalar, before="key: ")
        if source == "header":
            return ThrottleKey(CallerSource.HEADER, caller_header(name, "header:X-Tenant"))
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


def joined_by_colon(mapping: Mapping, before: str) -> str:
    """Return the message for ``{header: X-Tenant}`` where ``header:X-Tenant`` belongs.

    Empty if *mapping* does not look as if that were meant. *before* is the text before the value in
    the suggestion; empty for an item of a list.
    """
    entry = next(iter(mapping.entries.values()), None)
    if entry is None or not isinstance(entry.node, Scalar) or "$" in entry.node.text:
        return ""
    return _two_keys_error(entry.key, entry.node.text, before)


def refuse_spaces(scalar: Scalar, before: str) -> None:
    """Refuse a space behind the colon, and an empty name; *before* as in joined_by_colon."""
    source, _, name = scalar.text.partition(":")
    bare = name.strip()
    if bare and name != bare and not scalar.plain:
        raise InvalidValue(f"{scalar.shown} has a space in it, write {source}:{bare}")
    if name != bare or not name:
        raise InvalidValue(_two_keys_error(source, bare, before))


def caller_header(name: str, example: str) -> str:
    """Return the name of a header field that distinguishes callers, in lower case."""
    if not HEADER_NAME.fullmatch(name):
        raise InvalidValue(f'"{name}" is no name of a header, write {example} (say)')
    return name.lower()


def _two_keys_error(source: str, name: str, before: str) -> str:
    """Return the message for ``key: header: X-Tenant``, in which the second space is too many."""
    if not name:
        example = "X-Tenant" if source == "header" else "tenant"
        return f'"{source}:" names none, write {before}{source}:{example} (say)'
    return f'"{source}: {name}" is two keys to YAML, write {before}{source}:{name} (no space)'


def _meant_source(source: str, name: str) -> str:
    """Return ``header:X-Tenant`` for ``haeder:X-Tenant``; empty if no source is near."""
    near = meant(source, ("header", "query")) if name.strip() else ""
    return f"{near}:{name.strip()}" if near else ""


def _instead_of_key(text: str) -> str:
    if text.lower() in CLIENT_IP_SYNONYMS:
        return "write client_ip"
    source, _, name = text.partition(":")
    ours = SOURCE_SYNONYMS.get(source.lower())
    if ours and name:
        return f"write {ours}:{name.strip()}"
    near = meant(text, CallerKey.words) or _meant_source(source, name)
    if near:
        return f"did you mean {near}?"
    if HEADER_NAME.fullmatch(text) and ("-" in text or text[0].isupper()):
        return f"write header:{text}"
    return "write client_ip, header:NAME or query:NAME"
