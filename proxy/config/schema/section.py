"""Base of all sections of the file."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field


def described(description: str, default: object = ...) -> Any:  # noqa: ANN401 - the model says the type
    """Describe a key. Without *default* it is required; with None it has no value if absent."""
    return Field(default, description=description)


class Section(BaseModel):
    """A mapping of the file with a fixed set of keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    belongs_to: ClassVar[str]
    """Name of the section for the message about a key that was written in another section."""
    alternatives: ClassVar[tuple[frozenset[str], ...]] = ()
    """Groups of keys that exclude each other: on merging, those of one displace the others."""
