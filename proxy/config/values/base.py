"""Base of all value types, and the types that know nothing of HTTP."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.nearest import meant
from proxy.config.diagnostics.other_products import OFF, ON, by_other_word
from proxy.config.source.nodes import Mapping as MappingNode, Scalar

JsonSchema = dict[str, Any]
ValueT = TypeVar("ValueT")
WordT = TypeVar("WordT", bound=str)

_REFERENCE_PATTERN = r"\$\{"
"""The value of any key may come from ``${…}``."""
_REFERENCE: JsonSchema = {"pattern": _REFERENCE_PATTERN}

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
    """What an editor should accept, in JSON Schema, where it is the same for all instances."""
    none: bool = False
    """Whether None is a value of this type, which is written ``none``, ``auto`` or the like."""
    is_hidden: bool = False
    """Whether nothing may be shown of a value that came from ``${…}``: it may be a secret."""
    synonyms: Mapping[str, str] = MappingProxyType({})
    """Words of other products, and what to write for each."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words that can be written as they are.

        A value that is nearly one of them is a typing error: the reader says so for every type.
        """
        return ()

    def meant(self, text: str) -> str:
        """Return what *text*, which is no value of this type, probably stands for; or nothing."""
        return meant(text, self.words, self.synonyms)

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

    @property
    @abstractmethod
    def expects(self) -> str:
        """What can be written, for editors: completes ``Write …``."""

    @property
    def examples(self) -> tuple[object, ...]:
        """Good values, as JSON has them, for editors; none if the default tells enough."""
        return (self.example,)

    def accepted(self) -> JsonSchema:
        """Return what an editor should accept, in JSON Schema, without a text."""
        return dict(self.schema)

    def json_schema(self) -> JsonSchema:
        """Return the JSON Schema of the value, with what an editor says of another one."""
        return with_message(self.accepted(), self.expects)


def with_message(schema: JsonSchema, expects: str) -> JsonSchema:
    """Return *schema* with the message for a value that it does not accept."""
    message = {"errorMessage": f"Write {expects}."}
    if "anyOf" in schema:  # an editor shows the message of one of them
        return schema | {"anyOf": [form | message for form in schema["anyOf"]]}
    return schema | message


def string_schema(pattern: str) -> JsonSchema:
    """Return the schema of a string that matches *pattern*, or contains ``${…}``."""
    return {"type": "string", "pattern": f"{pattern}|{_REFERENCE_PATTERN}"}


def or_reference(schema: JsonSchema) -> JsonSchema:
    """Return a schema that accepts what *schema* does, or a string with ``${…}``.

    One schema where that can be said in one, because editors tell best what is wrong with that: a
    number has bounds, a string a pattern, and neither is asked of the other.
    """
    if "enum" not in schema and schema["type"] != "string":
        return schema | {"type": [schema["type"], "string"]} | _REFERENCE
    return either(schema, "from the environment or a file", {"type": "string"} | _REFERENCE)


def either(words: JsonSchema, title: str, others: JsonSchema) -> JsonSchema:
    """Return a schema that accepts some *words*, which editors list, or *others*.

    The *title* of the others tells the two apart: yaml-language-server takes forms without one for
    the same, and shows both.
    """
    return {"anyOf": [words, {"title": title} | others]}


def merged(first: JsonSchema, second: JsonSchema) -> JsonSchema:
    """Return one schema of scalars that accepts what either of two does.

    Each has a type, and at most one of them bounds.
    """
    types = [*_listed(first["type"])]
    types += [name for name in _listed(second["type"]) if name not in types]
    patterns = [one["pattern"] for one in (first, second) if "pattern" in one]
    return first | second | {"type": types, "pattern": "|".join(dict.fromkeys(patterns))}


def _listed(types: str | list[str]) -> list[str]:
    return [types] if isinstance(types, str) else types


def alternatives(words: Iterable[str]) -> str:
    """Return ``a, b or c``."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


@dataclass(frozen=True, slots=True)
class Integer(ValueType[int]):
    """A whole number from *least* to *most*."""

    least: int
    most: int = 1_000_000
    zero: str = ""
    """The message for 0 where that is too little: what it would mean, and what to write."""
    noun = "whole number in range"
    example = "64"
    examples = ()

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

    @property
    def expects(self) -> str:
        return f"a {self.noun.removesuffix(' in range')} from {self.least} to {self.most}"

    def accepted(self) -> JsonSchema:
        return or_reference({"type": "integer", "minimum": self.least, "maximum": self.most})


class CountOrWord(ValueType[int | None]):
    """A whole number, or a word for None."""

    none = True
    word: str
    number: Integer
    reason: str
    """When to write the word, for messages: ``or none for no limit``."""

    @property
    def words(self) -> tuple[str]:
        return (self.word,)

    def read(self, scalar: Scalar) -> int | None:
        if scalar.text == self.word:
            return None
        if not re.fullmatch(r"[-+]?[0-9]+", scalar.text):
            raise InvalidValue(f"{self.wrong_type(scalar)}{self.reason}")
        return self.number.read(scalar)

    def write(self, value: int | None) -> int | str:
        return self.word if value is None else value

    @property
    def expects(self) -> str:
        return f"{self.number.expects}{self.reason}"

    @property
    def examples(self) -> tuple[int]:
        return (int(self.example),)

    def accepted(self) -> JsonSchema:
        return either({"enum": [self.word]}, "a number", self.number.accepted())


@dataclass(frozen=True, slots=True)
class Number(ValueType[float]):
    """A number from *least* to *most*, whole or not."""

    least: float
    most: float
    above: bool = False
    """Whether *least* itself is excluded."""
    noun = "number in range"
    example = "0.5"
    examples = ()

    def read(self, scalar: Scalar) -> float:
        if not re.fullmatch(_DECIMAL, scalar.text):
            percent = re.fullmatch(rf"({_DECIMAL})\s?%", scalar.text)
            instead = f"{float(percent[1]) / 100:g}" if percent else ""
            raise InvalidValue(self.wrong_type(scalar, instead))
        if scalar.type == "str":
            raise InvalidValue(f"{scalar.shown} is text, write {scalar.text} without quotes")
        number = float(scalar.text)
        if not self.least <= number <= self.most or (self.above and number == self.least):
            raise InvalidValue(f"{scalar.text} is out of range, write a number {self._span}")
        return number

    def write(self, value: float) -> float:
        return int(value) if value.is_integer() else value

    @property
    def expects(self) -> str:
        return f"a number {self._span}"

    @property
    def _span(self) -> str:
        if self.above:
            return f"above {self.least} and up to {self.most}"
        return f"from {self.least} to {self.most}"

    def accepted(self) -> JsonSchema:
        least = "exclusiveMinimum" if self.above else "minimum"
        return or_reference({"type": "number", least: self.least, "maximum": self.most})


class Switch(ValueType[bool]):
    """``true`` or ``false``."""

    noun = "switch"
    example = "true"
    expects = "true or false"
    examples = (True, False)
    schema = or_reference({"type": "boolean"})
    words = ("true", "false")
    synonyms = MappingProxyType(dict.fromkeys(ON, "true") | dict.fromkeys(OFF, "false"))

    def read(self, scalar: Scalar) -> bool:
        if scalar.type != "bool":
            ours = self.meant(scalar.text)
            is_quoted = scalar.text in self.words
            hint = f"did you mean {ours}?" if ours else "write one of them"
            if is_quoted or scalar.text.lower() in self.synonyms:
                hint = f"write {ours}" + (" without quotes" if is_quoted else "")
            raise InvalidValue(f"{scalar.shown} is neither true nor false, {hint}")
        return scalar.text[0] in "tT"


class Choice(ValueType[WordT]):
    """One of a few words, such as the members of an enum: ``Choice(*BackoffStrategy)``.

    *synonyms* are what to write, each with the words of other products that stand for it.
    """

    noun = "word that can stand here"
    examples = ()  # an editor lists the words

    def __init__(self, *words: WordT, synonyms: Mapping[str, str] | None = None) -> None:
        self._members = words
        self.example = str(words[0])
        self.synonyms = by_other_word(synonyms or {})

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(map(str, self._members))

    def read(self, scalar: Scalar) -> WordT:
        found = next((word for word in self._members if word == scalar.text), None)
        if found is None:
            ours = self.meant(scalar.text)
            hint = f"did you mean {ours}?" if ours else "write one of them"
            if scalar.text in self.synonyms:
                hint = f"write {ours}"
            raise InvalidValue(f"{scalar.shown} is none of {', '.join(self.words)}; {hint}")
        return found

    @property
    def expects(self) -> str:
        return alternatives(self.words)

    def accepted(self) -> JsonSchema:
        return or_reference({"enum": [*self.words]})


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
    expects = f"a name of {instead}"
    longest = _LONGEST_NAME
    schema: ClassVar = {"type": "string", "pattern": f"^{_NAME}$", "maxLength": _LONGEST_NAME}


class Text(ValueType[str]):
    """Any text, of one line or many."""

    noun = "text"
    example = '"text"'
    expects = "text, in quotes"
    is_hidden = True  # any text may be a secret
    examples = ("text",)
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
    expects = f"a token without spaces: {example}"
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
