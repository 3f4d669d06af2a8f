"""A case: who takes part, under which load, and whose figures are divided by whose."""

from dataclasses import dataclass

from bench.loads import Load
from bench.stage import Upstream


@dataclass(frozen=True, slots=True)
class Contender:
    """A proxy under a load."""

    name: str
    proxy: str
    load: Load

    @property
    def process(self) -> str:
        """Contenders at the same proxy share its process; a twin has its own."""
        return self.name if self.name.endswith(":twin") else self.proxy


Pair = tuple[str, str]
"""Whose figures are divided by whose."""


@dataclass(frozen=True, slots=True)
class Case:
    """Some contenders that take turns."""

    name: str
    title: str
    contenders: tuple[Contender, ...]
    pairs: tuple[Pair, ...]
    metrics: tuple[str, ...]
    """Those to show; the first is what it is about."""
    upstream: Upstream = "nginx"
    fresh: bool = False
    """Whether each measurement is of a process just started: memory is never given back."""
    rounds: int | None = None
    """If not as many as the plan has."""
