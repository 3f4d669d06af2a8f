"""How many calls in how much time, and whose calls are counted together."""

import re
from dataclasses import dataclass
from fractions import Fraction

from proxy.config.faults import Mistake
from proxy.config.kinds.base import Choice, Integer, JsonSchema, Kind, string_schema
from proxy.config.kinds.headers import HeaderName, is_header_name
from proxy.config.nodes import Scalar
from proxy.config.units import duration_with_other_unit, format_duration
from proxy.config.words import nearest
from proxy.policy.durations import DURATION_PATTERN, NUMBER_PATTERN, SECONDS, parse_duration
from proxy.policy.settings import Rate, ThrottleKey

_MOST_PER_SECOND = 1_000_000
_SHORTEST_PERIOD = 0.001
_LONGEST_PERIOD = 365 * 86400.0

_UNITS = "|".join(SECONDS)
_RATE = re.compile(r"(?P<count>[^/]*)/(?P<period>[^/]*)")
_COUNT = re.compile(r"[0-9]{1,15}")
# What people write for a rate where no slash stands between a number and a unit.
_IN_WORDS = re.compile(
    rf"(?P<count>{NUMBER_PATTERN})\s*(?:calls?|requests?|req|reqs|r)?"
    r"\s*(?:/|per|a|an|p)\s*(?P<unit>[a-z]+)",
    re.IGNORECASE,
)

_NO_CLIENT_IP = frozenset(
    {"ip", "client", "address", "remote_addr", "remote_address", "source_ip", "clientip"}
    | {"client.ip", "client-ip", "$remote_addr", "$binary_remote_addr", "ipaddress"}
)
"""Words of other products for the address of the client."""
_SOURCES = {
    "header": "header",
    "headers": "header",
    "hdr": "header",
    "http": "header",
    "query": "query",
    "param": "query",
    "arg": "query",
}
"""And for where to find a name."""

ALGORITHM = Choice(
    "gcra",
    "window",
    elsewhere={
        "token_bucket": "gcra, and burst for the size of the bucket",
        "leaky_bucket": "gcra, and burst: 1",
        "sliding_window": "window",
        "sliding_window_log": "window",
        "sliding_window_counter": "window",
        "fixed_window": "window (at most so many in any such time)",
    },
)
"""How calls are counted."""

ON_STORE_ERROR = Choice(
    "local",
    "open",
    "closed",
    elsewhere={
        "fail_open": "open",
        "fail-open": "open",
        "allow": "open",
        "fail_closed": "closed",
        "fail-closed": "closed",
        "deny": "closed",
        "memory": "local",
    },
)
"""What to do while the store does not answer."""

_QUERY_NAME = r"[A-Za-z0-9._~$:@!\[\]-]+"


@dataclass(frozen=True, slots=True)
class CallRate(Kind[Rate]):
    """``100/s``, ``600/m``, ``10/500ms``: so many calls in so much time."""

    noun = "rate in range"
    example = "100/s"

    def read(self, scalar: Scalar) -> Rate:
        found = _RATE.fullmatch(scalar.text)
        period = _period(found["period"]) if found else None
        if found is None or period is None or not _COUNT.fullmatch(found["count"]):
            raise Mistake(_what_is_no_rate(scalar))
        rate = Rate(int(found["count"]), period)
        if rate.count == 0:
            raise Mistake(
                f"{scalar.text} lets nothing through, write 1/{found['period']} or more, or none "
                f"for no limit"
            )
        if period == 0:
            raise Mistake(f"{scalar.text} leaves no time to count in, write {rate.count}/s")
        if not _SHORTEST_PERIOD <= period <= _LONGEST_PERIOD:
            raise Mistake(f"{scalar.text} counts over a time out of range, write 1ms to 365d")
        if rate.count > _MOST_PER_SECOND * period:
            raise Mistake(
                f"{scalar.text} is more than anybody can send, write at most "
                f"{_MOST_PER_SECOND}/s, or none for no limit"
            )
        return rate

    def write(self, value: Rate) -> str:
        return f"{value.count}/{_shortest(format_duration(value.period))}"

    def json_schema(self) -> JsonSchema:
        return string_schema(rf"^0*[1-9][0-9]*/({_UNITS}|{DURATION_PATTERN})$")


@dataclass(frozen=True, slots=True)
class Concurrency(Kind[int | None]):
    """How many calls may be in flight; None is ``none``."""

    noun = "whole number in range"
    example = "20"

    def read(self, scalar: Scalar) -> int | None:
        if scalar.text == "none":
            return None
        if not re.fullmatch(r"[-+]?[0-9]+", scalar.text):
            raise Mistake(
                f"{scalar.shown} is no whole number, write {self.example} (say) or none for no "
                f"limit"
            )
        return self._number.read(scalar)

    @property
    def _number(self) -> Integer:
        return Integer(1, zero="would let nothing through, write none for no limit")

    def write(self, value: int | None) -> int | str:
        return "none" if value is None else value

    def json_schema(self) -> JsonSchema:
        return {"anyOf": [{"const": "none"}, *self._number.json_schema()["anyOf"]]}


@dataclass(frozen=True, slots=True)
class CallerKey(Kind[ThrottleKey | None]):
    """What tells callers apart; None is ``none``: nothing does."""

    noun = "key"
    example = "client_ip"

    def read(self, scalar: Scalar) -> ThrottleKey | None:
        text = scalar.text
        if text == "none":
            return None
        if text == "client_ip":
            return ThrottleKey(text)
        source, colon, name = text.partition(":")
        if not colon or source not in {"header", "query"}:
            raise Mistake(f"{scalar.shown} is no key, {_instead_of_key(text)}")
        if name.strip() and name != name.strip() and not scalar.plain:
            raise Mistake(f"{scalar.shown} has a space in it, write {source}:{name.strip()}")
        if name != name.strip() or not name:
            raise Mistake(two_keys(source, name.strip()))
        if source == "header":
            if not is_header_name(name):
                raise Mistake(f'"{name}" is no name of a header, write header:X-Tenant (say)')
            return ThrottleKey(source, name.lower())
        if not re.fullmatch(_QUERY_NAME, name):
            raise Mistake(f'"{name}" is no name of a query parameter, write query:tenant (say)')
        return ThrottleKey(source, name)

    def write(self, value: ThrottleKey | None) -> str:
        if value is None:
            return "none"
        return f"{value.source}:{value.name}" if value.name else value.source

    def json_schema(self) -> JsonSchema:
        header = HeaderName().json_schema()["pattern"].strip("^$")
        return string_schema(rf"^(none|client_ip|header:{header}|query:{_QUERY_NAME})$")


def two_keys(source: str, name: str) -> str:
    """What to say to ``key: header: X-Tenant``, in which a space is too many."""
    if not name:
        example = "X-Tenant" if source == "header" else "tenant"
        return f'"{source}:" names none, write key: {source}:{example} (say)'
    return f'"{source}: {name}" is two keys to YAML, write key: {source}:{name} (no space)'


def _period(text: str) -> float | None:
    """Seconds; ``s`` alone is one second."""
    return parse_duration(f"1{text}" if text in SECONDS else text)


def _shortest(duration: str) -> str:
    """``s`` for ``1s``: the one needs no saying."""
    return duration[1:] if duration[1:] in SECONDS and duration[0] == "1" else duration


def _what_is_no_rate(scalar: Scalar) -> str:
    text = scalar.text
    if re.fullmatch(r"[0-9]{1,15}", text):
        return f"{text} has no unit, write {text}/s (or {text}/m, {text}/h)"
    if text == "none":
        return "none is no rate of a list, remove it, or write rate: none"
    if text.startswith("-"):
        return f"{scalar.shown} is negative, write {text.lstrip('-') or '100/s'}"
    found = _RATE.fullmatch(text)
    if found is not None and re.fullmatch(NUMBER_PATTERN, found["count"]):
        return _what_is_wrong_within(found["count"], found["period"], text)
    in_words = _IN_WORDS.fullmatch(text)
    unit = _our_unit(in_words["unit"]) if in_words else ""
    if in_words and unit:
        return f"{scalar.shown} is no rate, write {in_words['count']}/{unit}"
    return f"{scalar.shown} is no rate, write 100/s (say) or none for no limit"


def _what_is_wrong_within(count: str, period: str, text: str) -> str:
    """About a rate that has a number, a slash and something after it, or nothing."""
    seconds = _period(period)
    if seconds is not None:  # so the number is not whole
        calls = Fraction(count)
        longer = format_duration(seconds * calls.denominator)
        return f"{text} is no whole number of calls, write {calls.numerator}/{_shortest(longer)}"
    if not period:
        return f"{text} has no unit, write {count}/s (or {count}/m, {count}/h)"
    if re.fullmatch(NUMBER_PATTERN, period):
        return f"{text} has no unit of time, write {text}s (or {text}m, {text}h)"
    other = duration_with_other_unit(period if period[0].isdigit() else f"1{period}")
    if other is None:
        return f'"{period}" is no time, write {count}/s (say)'
    unit, instead = other
    if re.search(r"\s", period):
        return f'"{text}" has a space in it, write {count}/{_shortest(instead) or "s"}'
    return (
        f'"{unit}" is no unit of time, write {count}/{_shortest(instead)}'
        if instead
        else f'"{unit}" is no unit of time, write {count}/s (or {count}/m, {count}/h)'
    )


def _our_unit(word: str) -> str:
    """``s`` for ``second``, ``sec`` and the like; empty if it is no unit of anybody."""
    if word in SECONDS:
        return word
    other = duration_with_other_unit(f"1{word}")
    return _shortest(other[1]) if other else ""


def _instead_of_key(text: str) -> str:
    if text.lower() in _NO_CLIENT_IP:
        return "write client_ip"
    source, _, name = text.partition(":")
    ours = _SOURCES.get(source.lower())
    if ours and name:
        return f"write {ours}:{name.strip()}"
    near = nearest(text, ["client_ip", "none"])
    if near:
        return f"did you mean {near}?"
    if is_header_name(text) and ("-" in text or text[0].isupper()):
        return f"write header:{text}"
    return "write client_ip, header:NAME or query:NAME"
