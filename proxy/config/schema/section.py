"""What the schema is made of: sections, their keys, and the shapes of values.

A key says what can be written under it, and which field of the settings gets its value. Its default
is that field's, so that it stands once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, field
from typing import Any, Final

from proxy.config.schema.shorthands import OneOrMore, Shorthand, Switchable
from proxy.config.values.base import ValueType

FROM_FIELD: Final = object()
"""In :attr:`Key.written`: as the value type writes the default of the field."""
REQUIRED: Final = object()
"""In :attr:`Key.written`: the key must be written, though no field of its name says so."""
NO_FIELD: Final = ""
"""In :attr:`Key.to`: no field gets the value, which is used up before settings are made."""


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list whose items have one shape."""

    item: "Shape"
    short: OneOrMore | None = None
    """Whether a single item can be written without the list."""
    can_be_empty: bool = True

    @property
    def shorthands(self) -> tuple[Shorthand, ...]:
        return () if self.short is None else (self.short,)


@dataclass(frozen=True, slots=True)
class TableOf:
    """A mapping of names that the user chooses to values of one shape."""

    names: ValueType[str]
    values: "Shape"
    name_to: str = NO_FIELD
    """The field in which each value, if it is a section, has its name."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a section."""

    shape: "Shape"
    """What can be written under it: a single value, a list, a table or a section."""
    text: str
    """What it means, for the user."""
    _: KW_ONLY
    to: str | None = None
    """The field that gets the value; None: the one with the name of the key."""
    make: Callable[[Any], object] | None = None
    """Makes the field's value of the one that was read; None: it is the same."""
    written: object = FROM_FIELD
    """The default as one would write it, where that does not follow from the field's default.
    None: the key has no value if it is absent."""
    examples: tuple[object, ...] = ()
    """Good values, as JSON has them, for editors; empty: those of the shape."""


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """A mapping of the file with a fixed set of keys.

    One with the settings of the section around it is a part of that: its keys fill fields of the
    same settings, and switching it off makes these fields None.
    """

    name: str
    """Its name in the JSON Schema."""
    text: str
    """What it is for, for the user."""
    _: KW_ONLY
    belongs_to: str
    """Where it stands, for the message about a key that was written in another section."""
    settings: type[Any] | tuple[type[Any], ...]
    """The settings that are made of it. Of several, a key's field is in the first that has it."""
    keys: Mapping[str, Key]
    make: Callable[..., object] | None = None
    """Makes the settings of the fields that were written; None: their class does."""
    shorthands: tuple[Shorthand, ...] = ()
    alternatives: tuple[frozenset[str], ...] = ()
    """Groups of keys that exclude each other: on merging, those of one displace the others."""
    required: frozenset[str] = field(init=False)
    """Keys that must be written: those whose fields have no default."""

    def __post_init__(self) -> None:
        required = frozenset(name for name in self.keys if self._is_required(name))
        object.__setattr__(self, "required", required)

    @property
    def classes(self) -> tuple[type[Any], ...]:
        """The classes of its settings, of which one is made."""
        return self.settings if isinstance(self.settings, tuple) else (self.settings,)

    @property
    def can_be_off(self) -> bool:
        """Whether ``false`` switches it off."""
        return any(isinstance(shorthand, Switchable) for shorthand in self.shorthands)

    def has_part(self, shape: "Shape") -> bool:
        """Return whether *shape* is a part of this section."""
        return isinstance(shape, Section) and shape.settings is self.settings

    def field_of(self, name: str) -> str:
        """Return the field that gets the value of the key *name*; NO_FIELD if none does."""
        to = self.keys[name].to
        return name if to is None else to

    def default(self, name: str) -> Any:  # noqa: ANN401 - of any type
        """Return the default of the field that gets the value of the key *name*."""
        declared = self._declared(name)
        is_made = declared.default_factory is not MISSING
        return declared.default_factory() if is_made else declared.default

    def written(self, name: str) -> object:
        """Return the default of the key *name* as one would write it; None if it has none."""
        key = self.keys[name]
        if name in self.required:
            return None
        if key.written is not FROM_FIELD:
            return key.written
        return {} if self.has_part(key.shape) else _written(key.shape, self.default(name))

    def _is_required(self, name: str) -> bool:
        key = self.keys[name]
        if key.written is not FROM_FIELD or self.has_part(key.shape):
            return key.written is REQUIRED
        declared = self._declared(name)
        return declared.default is MISSING and declared.default_factory is MISSING

    def _declared(self, name: str) -> Any:  # noqa: ANN401 - a field, of any type
        of = self.field_of(name)
        found = [known[of] for cls in self.classes if of in (known := cls.__dataclass_fields__)]
        if not found:
            raise LookupError(f"{self.name}.{name}: no field {of!r} in {self.settings}")
        return found[0]


Shape = ValueType[Any] | ListOf | TableOf | Section
"""What can be written under a key, as an item of a list, or as a value of a table."""


def sections(top: Section) -> Iterator[Section]:
    """Yield *top* and every section below it, some more than once.

    The outer ones come first, and those that are always there before those that can be off.
    """
    queue: list[tuple[Shape, bool]] = [(top, False)]
    while queue:
        shape, is_postponed = queue.pop(0)
        if isinstance(shape, ListOf):
            queue.append((shape.item, False))
        elif isinstance(shape, TableOf):
            queue.append((shape.values, False))
        elif isinstance(shape, Section) and shape.can_be_off and not is_postponed:
            queue.append((shape, True))
        elif isinstance(shape, Section):
            yield shape
            queue += [(key.shape, False) for key in shape.keys.values()]


def _written(shape: Shape, default: Any) -> object:  # noqa: ANN401 - of any type
    """Return *default* as one would write it under a key of this *shape*; None: it is absent."""
    if isinstance(shape, Section):
        return {} if default is not None else False if shape.can_be_off else None
    if isinstance(shape, TableOf):
        return {}  # no table has anything in it by default
    if isinstance(shape, ListOf):
        is_none = not default and shape.short is not None and shape.short.none
        return "none" if is_none else [_written(shape.item, item) for item in default]
    return None if default is None and not shape.none else shape.write(default)
