"""Durations and sizes: a number and a unit, or ``none`` where there may be no limit."""

import re
from dataclasses import dataclass

from proxy.config.faults import Mistake
from proxy.config.kinds.base import JsonSchema, Kind, string_schema
from proxy.config.nodes import Scalar
from proxy.config.units import (
    SIZE_PATTERN,
    duration_with_other_unit,
    format_duration,
    format_size,
    parse_size,
    size_with_other_unit,
)
from proxy.policy.durations import DURATION_PATTERN, parse_duration

_LONGEST = 365 * 86400.0
_LARGEST = 1024**4


@dataclass(frozen=True, slots=True)
class Duration(Kind[float | None]):
    """A time in seconds; None is ``none``."""

    zero: str = ""
    """What to say to ``0s``: what it would mean, and what to write. Empty: 0s is fine."""
    least: float = 0.0
    """Less than this gets the same line as ``0s``."""
    none: bool = False
    """Whether ``none`` (no limit) can be written."""
    longest: float = _LONGEST
    noun = "duration in range"
    example = "30s"

    def read(self, scalar: Scalar) -> float | None:
        text = scalar.text
        if self.none and text == "none":
            return None
        seconds = parse_duration(text)
        if seconds is None:
            if self.zero and re.fullmatch(r"0+(\.0+)?", text):
                raise Mistake(f"{text} {self.zero}")
            raise Mistake(self._what_is_wrong(scalar))
        if self.zero and (seconds == 0 or seconds < self.least):
            raise Mistake(f"{text} {self.zero}")
        if seconds > self.longest:
            span = "a year" if self.longest == _LONGEST else format_duration(self.longest)
            raise Mistake(f"{text} is longer than {span}, write {self._no_limit()}")
        return seconds

    def _what_is_wrong(self, scalar: Scalar) -> str:
        text = scalar.text
        if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", text):
            return f"{text} has no unit, write {text}s"
        if text.startswith("-") and parse_duration(text[1:]) is not None:
            return f"{text} is negative, write {text[1:]}"
        other = duration_with_other_unit(text)
        if other is not None:
            unit, instead = other
            if re.search(r"\s", text):
                return f"{scalar.shown} has a space in it, write {instead or self.example}"
            return f'"{unit}" is no unit of time, write {instead or "ms, s, m, h or d"}'
        return f"{scalar.shown} is no duration, write {self.example} (say)" + (
            " or none for no limit" if self.none else ""
        )

    def _no_limit(self) -> str:
        return "none for no limit" if self.none else f"{format_duration(self.longest)} or less"

    def write(self, value: float | None) -> str:
        return "none" if value is None else format_duration(value)

    def json_schema(self) -> JsonSchema:
        none = "none|" if self.none else ""
        return string_schema(f"^({none}{DURATION_PATTERN})$")


@dataclass(frozen=True, slots=True)
class Size(Kind[int | None]):
    """A number of bytes; None is ``none``."""

    least: int = 0
    none: bool = False
    """Whether ``none`` (no limit) can be written."""
    noun = "size in range"
    example = "64KiB"

    def read(self, scalar: Scalar) -> int | None:
        text = scalar.text
        if self.none and text == "none":
            return None
        size = parse_size(text)
        if size is None:
            raise Mistake(self._what_is_wrong(scalar))
        if not self.least <= size <= _LARGEST:
            span = f"{format_size(self.least)} to {format_size(_LARGEST)}"
            raise Mistake(f"{text} is out of range, write {span}")
        return size

    def _what_is_wrong(self, scalar: Scalar) -> str:
        text = scalar.text
        if re.fullmatch(r"[0-9]{1,15}", text):
            return f"{text} has no unit, write {format_size(int(text))}"
        other = size_with_other_unit(text)
        if other is not None:
            unit, instead = other
            if re.search(r"\s", text):
                return f"{scalar.shown} has a space in it, write {instead or self.example}"
            return f'"{unit}" is no unit of size, write {instead or "B, KiB, MiB or GiB"}'
        return f"{scalar.shown} is no size, write {self.example} (say)" + (
            " or none for no limit" if self.none else ""
        )

    def write(self, value: int | None) -> str:
        return "none" if value is None else format_size(value)

    def json_schema(self) -> JsonSchema:
        none = "none|" if self.none else ""
        return string_schema(f"^({none}{SIZE_PATTERN})$")
