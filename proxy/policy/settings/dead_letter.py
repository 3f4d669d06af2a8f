"""Settings of a route's dead letters."""

from dataclasses import dataclass

from proxy.policy.settings.retry import USUAL_OUTCOMES, Outcomes
from proxy.policy.settings.validation import above, at_least, check, filled, lower_case

REFUSALS = "refusals"
"""In ``dead_letter.on``: requests that Holdfast refused itself are kept, too."""

ALWAYS_DROPPED = frozenset({"proxy-authorization"})
"""Header fields that no dead letter keeps, whatever the file says: they are hop-by-hop."""


@dataclass(frozen=True, slots=True)
class DeadLetterSettings:
    """Which requests become dead letters, how long those are kept, and without which fields."""

    methods: frozenset[str] = frozenset({"POST", "PUT", "PATCH", "DELETE"})
    max_body: int = 1024**2
    """A larger body is left out, and the dead letter cannot be replayed."""
    ttl: float = 604_800.0
    on: Outcomes = USUAL_OUTCOMES
    """Statuses after which a request is kept; with the name :data:`REFUSALS`, requests that the
    proxy refused, too. A request that ended without a response is kept in any case."""
    drop: frozenset[str] = frozenset({"authorization", "cookie", "x-api-key"}) | ALWAYS_DROPPED
    """Header fields that are not kept, in lower case."""

    def __post_init__(self) -> None:
        filled(self, "methods")
        at_least(self, 0, "max_body")
        above(self, 0, "ttl")
        lower_case(self, "drop")
        never = ", ".join(sorted(ALWAYS_DROPPED))
        check(self, "drop", f"at least {never}", holds=self.drop >= ALWAYS_DROPPED)
