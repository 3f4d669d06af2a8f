"""Value types of durations, sizes and byte rates: a number and a unit, or ``none`` (no limit)."""

import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.units import (
    SIZE_PATTERN,
    duration_with_other_unit,
    format_duration,
    format_size,
    parse_size,
    size_with_other_unit,
)
from proxy.config.source.nodes import Scalar
from proxy.config.values.base import JsonSchema, ValueType, string_schema
from proxy.http.durations import DURATION_PATTERN, SECONDS, parse_duration

_LONGEST = 365 * 86400.0
_LARGEST = 1024**4
_MANY_DIGITS = 4
"""The length of a number without a unit that is rather milliseconds than seconds."""
_FASTEST = 1024**3

NumberT = TypeVar("NumberT", int, float)

_BYTES_PER_TIME = re.compile(r"(?P<size>[^/]*?)\s*/\s*(?P<time>[^/]*)")


class Quantity(ValueType[NumberT | None]):
    """A number with its unit; None is ``none`` (no limit), where that can be written."""

    unit_names: ClassVar[str]
    pattern: ClassVar[str]

    @staticmethod
    @abstractmethod
    def format(value: NumberT, /) -> str:
        """Return *value* with its unit."""

    def write(self, value: NumberT | None) -> str:
        return "none" if value is None else self.format(value)

    @property
    def expects(self) -> str:
        none = ", or none for no limit" if self.none else ""
        return f"a number with its unit ({self.unit_names}): {self.example}{none}"

    @property
    def examples(self) -> tuple[str, ...]:
        return self.words

    @property
    def words(self) -> tuple[str, ...]:
        return ("none",) if self.none else ()

    def accepted(self) -> JsonSchema:
        none = "none|" if self.none else ""
        return string_schema(f"^({none}{self.pattern})$")


@dataclass(frozen=True, slots=True)
class Duration(Quantity[float]):
    """A duration in seconds; None is ``none``."""

    zero: str = ""
    """The message for ``0s``: what it would mean, and what to write. Empty: 0s is accepted."""
    least: float = 0.0
    """The shortest duration; anything below gets the message for ``0s``."""
    none: bool = False
    """Whether ``none`` (no limit) can be written."""
    longest: float = _LONGEST
    units: tuple[str, ...] = ("s",)
    """The units that are suggested for a number without one, the most likely first."""
    example: str = "30s"
    noun = "duration in range"
    unit_names = "ms, s, m, h or d"
    pattern = DURATION_PATTERN
    format = staticmethod(format_duration)

    def read(self, scalar: Scalar) -> float | None:
        text = scalar.text
        if self.none and text == "none":
            return None
        seconds = parse_duration(text)
        if seconds is None:
            if self.zero and re.fullmatch(r"0+(\.0+)?", text):
                raise InvalidValue(f"{text} {self.zero}")
            raise InvalidValue(self._error_text(scalar))
        if self.zero and (seconds == 0 or seconds < self.least):
            raise InvalidValue(f"{text} {self.zero}")
        if seconds > self.longest:
            span = "a year" if self.longest == _LONGEST else format_duration(self.longest)
            raise InvalidValue(f"{text} is longer than {span}, write {self._no_limit()}")
        return seconds

    def _error_text(self, scalar: Scalar) -> str:
        text = scalar.text
        if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", text):
            return f"{text} has no unit, write {self._with_unit(text)}"
        if text.startswith("-") and parse_duration(text[1:]) is not None:
            return f"{text} is negative, write {text[1:]}"
        return _error_in_unit(self, scalar, duration_with_other_unit(text), self.unit_names)

    def _with_unit(self, number: str) -> str:
        # A fraction is never meant in milliseconds.
        first, *others = ("s",) if "." in number and self.units == ("ms",) else self.units
        if first == "s" and len(number) >= _MANY_DIGITS and "." not in number:
            # Products that count without a unit do so in milliseconds if numbers are that large.
            first, others = "ms", ["s"]
        also = ", ".join(f"{number}{unit}" for unit in others)
        return f"{number}{first}" + (f" (or {also})" if also else "")

    def _no_limit(self) -> str:
        return "none for no limit" if self.none else f"{format_duration(self.longest)} or less"


@dataclass(frozen=True, slots=True)
class Size(Quantity[int]):
    """A number of bytes; None is ``none``."""

    least: int = 0
    none: bool = False
    """Whether ``none`` (no limit) can be written."""
    noun = "size in range"
    example = "64KiB"
    unit_names = "B, KiB, MiB, GiB or TiB"
    pattern = SIZE_PATTERN
    format = staticmethod(format_size)

    def read(self, scalar: Scalar) -> int | None:
        text = scalar.text
        if self.none and text == "none":
            return None
        size = parse_size(text)
        if size is None:
            raise InvalidValue(self._error_text(scalar))
        if not self.least <= size <= _LARGEST:
            span = f"{format_size(self.least)} to {format_size(_LARGEST)}"
            raise InvalidValue(f"{text} is out of range, write {span}")
        return size

    def _error_text(self, scalar: Scalar) -> str:
        text = scalar.text
        if re.fullmatch(r"[0-9]{1,15}", text):
            return f"{text} has no unit, write {format_size(int(text))}"
        return _error_in_unit(self, scalar, size_with_other_unit(text), "B, KiB, MiB or GiB")


class ByteRate(Quantity[int]):
    """A byte rate in bytes per second, ``500B/s`` or ``1KiB/s``; None is ``none``."""

    none = True
    noun = "byte rate in range"
    example = "500B/s"
    expects = "bytes per second with their unit: 500B/s or 1KiB/s, or none for no limit"
    examples = (example, "1KiB/s", "none")
    pattern = f"{SIZE_PATTERN}/s"

    words = ("none",)

    @staticmethod
    def format(value: int, /) -> str:
        return f"{format_size(value)}/s"

    def read(self, scalar: Scalar) -> int | None:
        text = scalar.text
        if text == "none":
            return None
        size = parse_size(text.removesuffix("/s")) if text.endswith("/s") else None
        if size is None:
            raise InvalidValue(self._error_text(scalar))
        if size == 0:
            raise InvalidValue(f"{text} asks for nothing, write none for no limit")
        if size > _FASTEST:
            raise InvalidValue(
                f"{text} is out of range, write at most {format_size(_FASTEST)}/s, or none for "
                f"no limit"
            )
        return size

    def _error_text(self, scalar: Scalar) -> str:
        text = scalar.text
        bare = re.fullmatch(r"([0-9]{1,15})(/s)?", text)
        if bare is not None:
            lack = "counts no bytes" if bare[2] else "has no unit"
            return f"{text} {lack}, write {format_size(int(bare[1]))}/s"
        found = _BYTES_PER_TIME.fullmatch(text)
        written = found["size"] if found is not None else text
        size = parse_size(written)
        if size is not None:
            return _error_in_time(scalar, size, found["time"] if found is not None else "")
        other = size_with_other_unit(written)
        if other is not None and other[1]:
            return f'"{other[0]}" is no unit of size, write {other[1]}/s'
        return f"{self.wrong_type(scalar)} or none for no limit"


def _error_in_unit(
    of: Duration | Size, scalar: Scalar, other: tuple[str, str] | None, units: str
) -> str:
    """Return the message for a number with another unit, *other*, or none; ours are *units*."""
    if other is None:
        return of.wrong_type(scalar) + (" or none for no limit" if of.none else "")
    unit, instead = other
    if re.search(r"\s", scalar.text):
        return f"{scalar.shown} has a space in it, write {instead or of.example}"
    dimension = "time" if isinstance(of, Duration) else "size"
    return f'"{unit}" is no unit of {dimension}, write {instead or units}'


def _error_in_time(scalar: Scalar, size: int, time: str) -> str:
    """Return the message for a byte rate of *size* bytes in *time*, which is not a second."""
    if not time:
        return f"{scalar.text} has no time, write {format_size(size)}/s"
    if time == "s":
        return f"{scalar.shown} has a space in it, write {format_size(size)}/s"
    seconds = parse_duration(f"1{time}" if time in SECONDS else time)
    if not seconds:
        return f'"{time}" is no time, write {format_size(size)}/s'
    per_second = format_size(max(1, round(size / seconds)))
    return f"{scalar.text} is not counted by the second, write {per_second}/s"
