"""Value type of a rate limit: a number of calls and the period in which they are counted."""

import re
from fractions import Fraction

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.units import duration_with_other_unit, format_duration
from proxy.config.source.nodes import Scalar
from proxy.config.values.base import ValueType, string_schema
from proxy.http.durations import DURATION_PATTERN, NUMBER_PATTERN, SECONDS, parse_duration
from proxy.policy.settings import Rate

_MOST_PER_SECOND = 1_000_000
_SHORTEST_PERIOD = 0.001
_LONGEST_PERIOD = 365 * 86400.0

_UNITS = "|".join(SECONDS)
_RATE = re.compile(r"(?P<count>[^/]*)/(?P<period>[^/]*)")
_COUNT = re.compile(r"[0-9]{1,15}")
# `100 per second`, `100r/s`, `100rps`.
_IN_WORDS = re.compile(
    rf"(?P<count>{NUMBER_PATTERN})\s*(?:calls?|requests?|req|reqs|r)?"
    r"\s*(?:/|per|a|an|p)\s*(?P<unit>[a-z]+)",
    re.IGNORECASE,
)


class CallRate(ValueType[Rate]):
    """A rate limit: calls per period, such as ``100/s``, ``600/m`` or ``10/500ms``."""

    noun = "rate in range"
    example = "100/s"
    expects = "a number of calls in a time: 20/s, 600/m or 10/500ms"
    examples = ("20/s", "600/m", "10/500ms")
    schema = string_schema(rf"^0*[1-9][0-9]*/({_UNITS}|{DURATION_PATTERN})$")

    def read(self, scalar: Scalar) -> Rate:
        found = _RATE.fullmatch(scalar.text)
        period = _period(found["period"]) if found else None
        if found is None or period is None or not _COUNT.fullmatch(found["count"]):
            raise InvalidValue(_error_text(scalar))
        count = int(found["count"])
        if count == 0:
            raise InvalidValue(
                f"{scalar.text} lets nothing through, write 1/{found['period']} or more, or none "
                f"for no limit"
            )
        if period == 0:
            raise InvalidValue(f"{scalar.text} leaves no time to count in, write {count}/s")
        if not _SHORTEST_PERIOD <= period <= _LONGEST_PERIOD:
            raise InvalidValue(f"{scalar.text} counts over a time out of range, write 1ms to 365d")
        if count > _MOST_PER_SECOND * period:
            raise InvalidValue(
                f"{scalar.text} is more than anybody can send, write at most "
                f"{_MOST_PER_SECOND}/s, or none for no limit"
            )
        return Rate(count, period)

    def write(self, value: Rate) -> str:
        return f"{value.count}/{_shortest(format_duration(value.period))}"


def _period(text: str) -> float | None:
    """Read a period into seconds; ``s`` alone is one second."""
    return parse_duration(f"1{text}" if text in SECONDS else text)


def _shortest(duration: str) -> str:
    """Return ``s`` for ``1s``: a one is left out."""
    return duration[1:] if duration[1:] in SECONDS and duration[0] == "1" else duration


def _error_text(scalar: Scalar) -> str:
    text = scalar.text
    if re.fullmatch(r"[0-9]{1,15}", text):
        return f"{text} has no unit, write {text}/s (or {text}/m, {text}/h)"
    if text == "none":
        return "none is no rate of a list, remove it, or write rate: none"
    if text.startswith("-"):
        return f"{scalar.shown} is negative, write {text.lstrip('-') or '100/s'}"
    found = _RATE.fullmatch(text)
    if found is not None and re.fullmatch(NUMBER_PATTERN, found["count"]):
        return _error_within(found["count"], found["period"], text)
    in_words = _IN_WORDS.fullmatch(text)
    unit = _our_unit(in_words["unit"]) if in_words else ""
    if in_words and unit:
        return f"{scalar.shown} is no rate, write {in_words['count']}/{unit}"
    return f"{scalar.shown} is no rate, write 100/s (say) or none for no limit"


def _error_within(count: str, period: str, text: str) -> str:
    """Return the message for a rate with a number and a slash whose number or period is wrong."""
    seconds = _period(period)
    if seconds is not None:  # the period is right, so the number is not whole
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
    """Return ``s`` for ``second``, ``sec`` and the like; empty if *word* is no known unit."""
    if word in SECONDS:
        return word
    other = duration_with_other_unit(f"1{word}")
    return _shortest(other[1]) if other else ""
