"""Dead letters of a route."""

from dataclasses import dataclass

from proxy.policy.settings.retry import USUAL_OUTCOMES, Outcomes

REFUSALS = "refusals"
"""In the list of a route's dead letters: what Holdfast refused itself is kept, too."""

ALWAYS_DROPPED = frozenset({"proxy-authorization"})
"""Header fields that no letter keeps, whatever the file says: they are between two hops."""


@dataclass(frozen=True, slots=True)
class DeadLetterSettings:
    """Which requests that failed for good are kept, for how long, and without what."""

    methods: frozenset[str] = frozenset({"POST", "PUT", "PATCH", "DELETE"})
    max_body: int = 1024**2
    """A larger body is left out, and the letter cannot be sent again."""
    ttl: float = 604_800.0
    on: Outcomes = USUAL_OUTCOMES
    """Statuses after which a request is kept, and, with the word :data:`REFUSALS`, whether what we
    refused ourselves is. What ended without a response is kept in any case."""
    drop: frozenset[str] = frozenset({"authorization", "cookie", "x-api-key"}) | ALWAYS_DROPPED
    """Header fields that are not kept, in lower case."""
