"""No load at all: how long a start takes, and what a proxy weighs before its first request."""

from dataclasses import dataclass

from bench.loads import Figures, Plan
from bench.processes import Running


@dataclass(frozen=True, slots=True)
class Startup:
    """Of a proxy that was started for this."""

    def warmed_up(self, proxy: Running, plan: Plan) -> "Startup":  # noqa: ARG002 - as in production
        """Nothing: a start is cold."""
        return self

    def measure(self, proxy: Running, plan: Plan) -> Figures:  # noqa: ARG002 - it has started
        """From the start of the process to its first answer."""
        return {"seconds": proxy.ready_after, "rss": proxy.resident()}
