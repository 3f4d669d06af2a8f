"""Checks that settings make of themselves when they are made.

Every file that loads passes them: its faults were reported before, with their positions. What they
catch is a mistake in code, which would otherwise serve with settings that no file can express.
Each function names the field and what it may be in its :class:`ValueError`.
"""

from collections.abc import Collection
from enum import StrEnum


def choose(settings: object, choices: type[StrEnum], *names: str) -> None:
    """Make each of the fields *names* a member of *choices*, if its text is one of them."""
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, choices):
            continue
        try:
            member = choices(value)
        except ValueError:
            raise _invalid(settings, name, f"one of {', '.join(choices)}") from None
        object.__setattr__(settings, name, member)


def at_least(settings: object, least: float, *names: str) -> None:
    """Refuse a number below *least* in any of the fields *names*; None is no number."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise _invalid(settings, name, f"{least} or more")


def above(settings: object, bound: float, *names: str) -> None:
    """Refuse a number that is not above *bound* in any of the fields *names*; None is none."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value > bound:
            raise _invalid(settings, name, f"above {bound}")


def within(settings: object, least: float, most: float, *names: str) -> None:
    """Refuse a number outside *least* to *most* in any of the fields *names*.

    A field can hold one number or many of them.
    """
    for name in names:
        value = getattr(settings, name)
        for number in value if isinstance(value, Collection) else (value,):
            if not least <= number <= most:
                raise _invalid(settings, name, f"from {least} to {most}")


def filled(settings: object, *names: str) -> None:
    """Refuse an empty text or collection in any of the fields *names*."""
    for name in names:
        check(settings, name, "filled in", holds=bool(getattr(settings, name)))


def lower_case(settings: object, *names: str) -> None:
    """Refuse the name of a header field that is not in lower case, alone or in a collection."""
    for name in names:
        value = getattr(settings, name)
        for field in (value,) if isinstance(value, str) else value:
            is_lower = bool(field) and field == field.lower()
            check(settings, name, "in lower case", holds=is_lower)


def check(settings: object, name: str, expected: str, *, holds: bool) -> None:
    """Refuse the value of the field *name* unless *holds*; *expected* says what it may be.

    The value is not quoted: it may be a secret.
    """
    if not holds:
        raise ValueError(f"{type(settings).__name__}.{name} must be {expected}")


def _invalid(settings: object, name: str, expected: str) -> ValueError:
    value = getattr(settings, name)
    return ValueError(f"{type(settings).__name__}.{name} is {value!r}, must be {expected}")
