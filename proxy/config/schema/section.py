"""What all sections of the file have in common."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field


def described(description: str, default: object = ...) -> Any:  # noqa: ANN401 - the model says the type
    """Describe a key. Without *default* it must be there; None: nothing unless it is."""
    return Field(default, description=description)


class Section(BaseModel):
    """A mapping of the file with a fixed set of keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    belongs_to: ClassVar[str]
    """Where its keys go, for someone who wrote one elsewhere."""
    alternatives: ClassVar[tuple[frozenset[str], ...]] = ()
    """Groups of keys that make no sense together: those of one displace those of another."""
