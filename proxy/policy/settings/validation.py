"""Checks that settings make of themselves when they are made.

Every file that loads passes them: its faults were reported before, with their positions. What they
catch is a mistake in code, which would otherwise serve with settings that no file can express. A
field says in its type what it may be: by an enum, or by rules, as in
``attempts: Annotated[int, at_least(1)] = 3``. None passes every rule.
"""

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, get_args


class Rule(NamedTuple):
    """What holds for the value of a field, and how a :class:`ValueError` says so."""

    expected: str
    holds: Callable[[Any], bool]
    is_quoted: bool = False
    """Whether the error quotes the value; of what may be a secret it must not."""


def at_least(least: float) -> Rule:
    """Return the rule for numbers that are not below *least*."""
    return Rule(f"{least} or more", lambda value: value >= least, is_quoted=True)


def above(bound: float) -> Rule:
    """Return the rule for numbers above *bound*."""
    return Rule(f"above {bound}", lambda value: value > bound, is_quoted=True)


def within(least: float, most: float) -> Rule:
    """Return the rule for a number from *least* to *most*, or for many such numbers."""

    def holds(value: float | Collection[float]) -> bool:
        numbers = value if isinstance(value, Collection) else (value,)
        return all(least <= number <= most for number in numbers)

    return Rule(f"from {least} to {most}", holds, is_quoted=True)


def one_of(*values: object) -> Rule:
    """Return the rule for one of a few *values*."""
    expected = f"one of {', '.join(map(str, values))}"
    return Rule(expected, lambda value: value in values, is_quoted=True)


FILLED = Rule("filled in", bool)
"""For a text or collection that is not empty."""
PREFIX = Rule("a path without a final slash", lambda path: not path or path[0] == "/" != path[-1])
"""For the prefix of a path, or none."""


def _is_lower(names: str | Collection[str]) -> bool:
    each = (names,) if isinstance(names, str) else names
    return all(name and name == name.lower() for name in each)


LOWER_CASE = Rule("in lower case", _is_lower)
"""For the name of a header field, or for many."""
STATUS = within(400, 599)
"""For the status of a failure, or for many."""


class Validated:
    """Base of settings: makes each field of an enum a member, and checks all rules."""

    __slots__ = ()
    _checked: ClassVar[list[tuple[str, type[StrEnum] | None, tuple[Rule, ...]]]]
    """Of each field that is to be checked its name, its enum and its rules."""

    def __init_subclass__(cls) -> None:
        inherited = getattr(cls, "_checked", [])
        cls._checked = [row for row in inherited if row[0] not in cls.__annotations__]
        for name, declared in cls.__annotations__.items():
            rules = getattr(declared, "__metadata__", ())
            types = (declared, *get_args(getattr(declared, "__origin__", declared)))
            enums = [part for part in types if isinstance(part, type) and issubclass(part, StrEnum)]
            if rules or enums:
                cls._checked.append((name, enums[0] if enums else None, rules))

    def __post_init__(self) -> None:
        for name, choices, rules in self._checked:
            value = getattr(self, name)
            if choices is not None and (isinstance(value, str) or not rules):
                object.__setattr__(self, name, _member(self, name, choices))
            elif value is not None:
                for rule in rules:
                    if not rule.holds(value):
                        raise _error(self, name, rule.expected, quoted=rule.is_quoted)
        self.check_fields()

    def check_fields(self) -> None:
        """Refuse fields that do not go together."""


def require(settings: object, name: str, expected: str, *, holds: bool) -> None:
    """Refuse the value of the field *name* unless *holds*; *expected* says what it may be."""
    if not holds:
        raise _error(settings, name, expected, quoted=False)


def _member(settings: object, name: str, choices: type[StrEnum]) -> StrEnum:
    try:
        return choices(getattr(settings, name))
    except ValueError:
        expected = f"one of {', '.join(choices)}"
        raise _error(settings, name, expected, quoted=True) from None


def _error(settings: object, name: str, expected: str, *, quoted: bool) -> ValueError:
    value = f" is {getattr(settings, name)!r}," if quoted else ""
    return ValueError(f"{type(settings).__name__}.{name}{value} must be {expected}")
