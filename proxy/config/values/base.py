"""Base of all value types, and the types that know nothing of HTTP."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.nearest import nearest
from proxy.config.diagnostics.other_products import by_other_word
from proxy.config.source.nodes import Mapping as MappingNode, Scalar

JsonSchema = dict[str, Any]
ValueT = TypeVar("ValueT")
WordT = TypeVar("WordT", bound=str)

_REFERENCE_PATTERN = r"\$\{"
"""The value of any key may come from ``${…}``."""

# Visible ASCII but " and \\, which would need escapes in metrics; spaces inside only.
_NAME = r"[!#-\[\]-^`-~](?:[ !#-\[\]-~]*[!#-\[\]-~])?"
_LONGEST_NAME = 128


# No exponents, infinities or the like: in a configuration they are errors.
_DECIMAL = r"[-+]?[0-9]{1,15}(?:\.[0-9]{1,15})?"


class ValueType(ABC, Generic[ValueT]):
    """Reads, writes, masks and describes one type of value.

    A message of :meth:`read` may quote the value: if the value was interpolated,
    the reader replaces the message by ``is no NOUN, write EXAMPLE (say)``.
    """

    noun: str
    example: str
    schema: ClassVar[JsonSchema]
    """The JSON Schema, where it is the same for all instances."""
    none: bool = False
    """Whether None is a value of this type, which is written ``none``, ``auto`` or the like."""
    is_hidden: bool = False
    """Whether nothing may be shown of a value that came from ``${…}``: it may be a secret."""

    @abstractmethod
    def read(self, scalar: Scalar) -> ValueT:
        """Read the value of *scalar*; raise :class:`InvalidValue` if it has none of this type."""

    def write(self, value: ValueT) -> object:
        """Return *value* as it could be written in a file."""
        return value if isinstance(value, int) else str(value)

    def masked(self, value: ValueT) -> object:
        """Return what may be shown of a *value* that came from ``${…}``."""
        return "***" if self.is_hidden else self.write(value)

    def wrong_type(self, scalar: Scalar, instead: str = "") -> str:
        """Return the message for *scalar*, of another type; *instead* of the example to write."""
        noun = self.noun.removesuffix(" in range")
        return f"{scalar.shown} is no {noun}, write {instead or f'{self.example} (say)'}"

    def error_for_mapping(self, mapping: MappingNode) -> str:  # noqa: ARG002 - says nothing special
        """Return the message for a *mapping* in place of the value; empty: the usual one."""
        return ""

    def same_key(self, key: str) -> str:
        """Return the normal form of *key*, equal for two spellings of the same key."""
        return key

    def json_schema(self) -> JsonSchema:
        """Return the JSON Schema of what an editor should accept."""
        return dict(self.schema)


def string_schema(pattern: str) -> JsonSchema:
    """Return the schema of a string that matches *pattern*, or contains ``${…}``."""
    return {"type": "string", "pattern": f"{pattern}|{_REFERENCE_PATTERN}"}


def or_reference(schema: JsonSchema) -> JsonSchema:
    """Return a schema that accepts what *schema* does, or a string with ``${…}``."""
    return {"anyOf": [schema, {"type": "string", "pattern": _REFERENCE_PATTERN}]}


@dataclass(frozen=True, slots=True)
class Integer(ValueType[int]):
    """A whole number from *least* to *most*."""

    least: int
    most: int = 1_000_000
    zero: str = ""
    """The message for 0 where that is too little: what it would mean, and what to write."""
    noun = "whole number in range"
    example = "64"

    def read(self, scalar: Scalar) -> int:
        if not re.fullmatch(r"[-+]?[0-9]{1,18}", scalar.text):
            raise InvalidValue(self.wrong_type(scalar))
        if scalar.type != "int":
            raise InvalidValue(f"{scalar.shown} is text, write {scalar.text} without quotes")
        number = int(scalar.text)
        if number == 0 and self.zero:
            raise InvalidValue(f"0 {self.zero}")
        if not self.least <= number <= self.most:
            raise InvalidValue(
                f"{number} is out of range, write a number from {self.least} to {self.most}"
            )
        return number

    def json_schema(self) -> JsonSchema:
        return or_reference({"type": "integer", "minimum": self.least, "maximum": self.most})


class CountOrWord(ValueType[int | None]):
    """A whole number, or a word for None."""

    none = True
    word: str
    number: Integer
    reason: str
    """When to write the word, for messages: ``or none for no limit``."""

    def read(self, scalar: Scalar) -> int | None:
        if scalar.text == self.word:
            return None
        if not re.fullmatch(r"[-+]?[0-9]+", scalar.text):
            raise InvalidValue(f"{self.wrong_type(scalar)}{self.reason}")
        return self.number.read(scalar)

    def write(self, value: int | None) -> int | str:
        return self.word if value is None else value

    def json_schema(self) -> JsonSchema:
        return {"anyOf": [{"const": self.word}, *self.number.json_schema()["anyOf"]]}


@dataclass(frozen=True, slots=True)
class Number(ValueType[float]):
    """A number from *least* to *most*, whole or not."""

    least: float
    most: float
    above: bool = False
    """Whether *least* itself is excluded."""
    noun = "number in range"
    example = "0.5"

    def read(self, scalar: Scalar) -> float:
        if not re.fullmatch(_DECIMAL, scalar.text):
            percent = re.fullmatch(rf"({_DECIMAL})\s?%", scalar.text)
            instead = f"{float(percent[1]) / 100:g}" if percent else ""
            raise InvalidValue(self.wrong_type(scalar, instead))
        if scalar.type == "str":
            raise InvalidValue(f"{scalar.shown} is text, write {scalar.text} without quotes")
        number = float(scalar.text)
        if not self.least <= number <= self.most or (self.above and number == self.least):
            span = f"above {self.least:g} and up to" if self.above else f"from {self.least:g} to"
            raise InvalidValue(
                f"{scalar.text} is out of range, write a number {span} {self.most:g}"
            )
        return number

    def write(self, value: float) -> float:
        return int(value) if value.is_integer() else value

    def json_schema(self) -> JsonSchema:
        least = "exclusiveMinimum" if self.above else "minimum"
        return or_reference({"type": "number", least: self.least, "maximum": self.most})


class Switch(ValueType[bool]):
    """``true`` or ``false``."""

    noun = "switch"
    example = "true"
    schema = or_reference({"type": "boolean"})

    def read(self, scalar: Scalar) -> bool:
        if scalar.type != "bool":
            raise InvalidValue(f"{scalar.shown} is neither true nor false, write one of them")
        return scalar.text[0] in "tT"


class Choice(ValueType[WordT]):
    """One of a few words, such as the members of an enum: ``Choice(*BackoffStrategy)``.

    *synonyms* are what to write, each with the words of other products that stand for it.
    """

    noun = "word that can stand here"

    def __init__(self, *words: WordT, synonyms: Mapping[str, str] | None = None) -> None:
        self.words = words
        self.example = str(words[0])
        self._synonyms = by_other_word(synonyms or {})

    def read(self, scalar: Scalar) -> WordT:
        found = next((word for word in self.words if word == scalar.text), None)
        if found is None:
            ours, near = self._synonyms.get(scalar.text), nearest(scalar.text, self.words)
            hint = f"did you mean {near}?" if near else f"write {ours or 'one of them'}"
            raise InvalidValue(f"{scalar.shown} is none of {', '.join(self.words)}; {hint}")
        return found

    def json_schema(self) -> JsonSchema:
        return or_reference({"enum": [str(word) for word in self.words]})


class PatternText(ValueType[str]):
    """Text that matches a pattern as a whole."""

    pattern: str
    instead: str = ""
    """What to write, for messages; empty: the example."""
    longest: int | None = None

    def read(self, scalar: Scalar) -> str:
        if self.longest is not None and len(scalar.text) > self.longest:
            raise InvalidValue(
                f"a {self.noun} has at most {self.longest} characters, write a shorter one"
            )
        if not re.fullmatch(self.pattern, scalar.text):
            raise InvalidValue(self.wrong_type(scalar, self.instead))
        return scalar.text


class Name(PatternText):
    """The name of a route, policy or upstream, which is also a label of metrics.

    Names that the proxy itself gives, such as ``_unmatched``, begin with an underscore.
    """

    noun = "name"
    example = "payments"
    pattern = _NAME
    instead = "ASCII letters, digits and signs (no quotes, no _ at the beginning)"
    longest = _LONGEST_NAME
    schema: ClassVar = {"type": "string", "pattern": f"^{_NAME}$", "maxLength": _LONGEST_NAME}


class Text(ValueType[str]):
    """Any text, of one line or many."""

    noun = "text"
    example = '"text"'
    is_hidden = True  # any text may be a secret
    schema: ClassVar = {"type": ["string", "number", "boolean"]}

    def read(self, scalar: Scalar) -> str:
        try:
            scalar.text.encode()
        except UnicodeEncodeError:  # a variable can contain bytes that are no characters
            raise InvalidValue("this is not UTF-8 text, write some") from None
        return scalar.text


class Token(ValueType[str]):
    """A credential that clients send as ``Authorization: Bearer``. Never quoted in messages."""

    noun = "token"
    example = "${HOLDFAST_ADMIN_TOKEN}"
    is_hidden = True  # nothing of a secret may be shown
    schema: ClassVar = {"type": ["string", "number"], "minLength": 1}

    def read(self, scalar: Scalar) -> str:
        if not scalar.text:
            raise InvalidValue(f"the token is empty, write {self.example}")
        if not re.fullmatch(r"[\x21-\x7e]+", scalar.text):
            raise InvalidValue(
                "the token has spaces or other unusual characters, write one without"
            )
        return scalar.text
