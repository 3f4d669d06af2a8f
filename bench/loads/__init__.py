"""Loads: each puts a proxy to work for a while, and says what that cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bench.processes import Running

Figures = Mapping[str, float]
"""One measurement: by name of a metric (:data:`bench.figures.METRICS`)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure, and how much to send."""

    rounds: int
    seconds: float
    """Of each measurement under a steady load; a round has two per contender."""
    idle_connections: int = 10_000
    stall_seconds: float = 5.0
    stall_mib: int = 1024
    """What streams past the one that stalls."""


class Load(Protocol):
    """A way to put a proxy to work."""

    def warmed_up(self, proxy: Running, plan: Plan, /) -> "Load":
        """Let *proxy* reach its usual speed; returns the load for the rounds, which may differ."""
        ...

    def measure(self, proxy: Running, plan: Plan, /) -> Figures:
        """Put *proxy* under load, once."""
        ...
