"""Settings of a route's dead letters."""

from dataclasses import dataclass
from typing import Annotated

from proxy.policy.settings.retry import USUAL_OUTCOMES, Outcomes
from proxy.policy.settings.validation import FILLED, LOWER_CASE, Validated, above, at_least, require

REFUSALS = "refusals"
"""In ``dead_letter.on``: requests that Holdfast refused itself are kept, too."""

ALWAYS_DROPPED = frozenset({"proxy-authorization"})
"""Header fields that no dead letter keeps, whatever the file says: they are hop-by-hop."""


@dataclass(frozen=True, slots=True)
class DeadLetterSettings(Validated):
    """Which requests become dead letters, how long those are kept, and without which fields."""

    methods: Annotated[frozenset[str], FILLED] = frozenset({"POST", "PUT", "PATCH", "DELETE"})
    max_body: Annotated[int, at_least(0)] = 1024**2
    """A larger body is left out, and the dead letter cannot be replayed."""
    ttl: Annotated[float, above(0)] = 604_800.0
    on: Outcomes = USUAL_OUTCOMES
    """Statuses after which a request is kept; with the name :data:`REFUSALS`, requests that the
    proxy refused, too. A request that ended without a response is kept in any case."""
    drop: Annotated[frozenset[str], LOWER_CASE] = (
        frozenset({"authorization", "cookie", "x-api-key"}) | ALWAYS_DROPPED
    )
    """Header fields that are not kept, in lower case."""

    def check_fields(self) -> None:
        never = ", ".join(sorted(ALWAYS_DROPPED))
        require(self, "drop", f"at least {never}", holds=self.drop >= ALWAYS_DROPPED)
