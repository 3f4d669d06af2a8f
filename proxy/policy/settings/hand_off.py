"""Settings of hand-off: what is accepted for later, how it is delivered, and the room for it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from proxy.policy.settings.retry import (
    USUAL_OUTCOMES,
    Backoff,
    JitterStrategy,
    Outcomes,
    UnsafeRetries,
)
from proxy.policy.settings.validation import (
    FILLED,
    PREFIX,
    Validated,
    above,
    at_least,
    require,
    within,
)

MOST_DELIVERY_ATTEMPTS = 1000
MOST_DELIVERIES_UNDER_WAY = 10_000

CREDENTIAL_FIELDS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})
"""Header fields, in lower case, that are not stored unless the route says so."""


class HandOffWhen(StrEnum):
    """Which requests are accepted with 202 and delivered in the background."""

    ASKED = "asked"  # the client says Prefer: respond-async
    FAILED = "failed"  # the route's own attempts failed
    ALWAYS = "always"


class HandOffCredentials(StrEnum):
    """What becomes of a request with credentials that the route neither sets nor removes."""

    REFUSE = "refuse"  # it is not handed off
    STORE = "store"  # they are kept until the delivery has ended
    DROP = "drop"  # it is sent without them


@dataclass(frozen=True, slots=True)
class DeliveryBackoff(Backoff):
    """How long to wait before a delivery is tried again: a curve, or a list of waits."""

    base: Annotated[float, at_least(0)] = 2.0
    factor: Annotated[float, at_least(1)] = 3.0
    max: Annotated[float, at_least(0)] = 21_600.0
    jitter: Annotated[JitterStrategy | float, within(0, 1)] = 0.2
    waits: tuple[float, ...] = ()
    """The waits before the second try, the third and so on, of which the last one repeats, in place
    of the curve; empty: the curve."""

    def check_fields(self) -> None:
        require(self, "waits", "above 0", holds=all(wait > 0 for wait in self.waits))
        walks = self.jitter is JitterStrategy.DECORRELATED
        require(self, "jitter", "another one beside waits", holds=not (walks and self.waits))


USUAL_DELIVERY_OUTCOMES = Outcomes(USUAL_OUTCOMES.names, USUAL_OUTCOMES.statuses | {500})
"""Outcomes after which a delivery is tried again, unless the file lists others."""


USUAL_DELIVERED = frozenset({*range(200, 300), 303})
"""Statuses by which a delivery has succeeded, unless the file lists others."""


@dataclass(frozen=True, slots=True)
class HandOffSettings(Validated):
    """Which requests of a route are handed off, and how they are delivered."""

    when: Annotated[frozenset[HandOffWhen], FILLED] = frozenset({HandOffWhen.ASKED})
    methods: Annotated[frozenset[str], FILLED] = frozenset({"POST", "PUT", "PATCH", "DELETE"})
    max_body: Annotated[int, at_least(0)] = 1024**2
    give_up_after: Annotated[float, above(0)] = 259_200.0
    """Seconds after its acceptance at which a delivery fails, deferrals included."""
    attempts: Annotated[int | None, within(1, MOST_DELIVERY_ATTEMPTS)] = None
    """Attempts in total; None: as many as there is time for."""
    retry_on: Outcomes = USUAL_DELIVERY_OUTCOMES
    unsafe: UnsafeRetries = UnsafeRetries.AUTO
    """That of the route's ``retry`` unless another is written."""
    backoff: DeliveryBackoff = DeliveryBackoff()
    longest_hint: Annotated[float | None, above(0)] = 86_400.0
    """Seconds to which a longer hint of the upstream is cut; None: its hints are ignored."""
    timeout: Annotated[float | None, above(0)] = 30.0
    """Seconds of one attempt up to the response's head, the route's unless another is written;
    None: no limit."""
    success: Annotated[frozenset[int], FILLED, within(200, 599)] = USUAL_DELIVERED
    concurrency: Annotated[int, within(1, MOST_DELIVERIES_UNDER_WAY)] = 8
    """Deliveries of the route that are under way at once."""
    keep_response: Annotated[int, at_least(0)] = 64 * 1024
    """Bytes of the upstream's response that are kept; of a larger one status and headers."""
    ttl: Annotated[float, above(0)] = 86_400.0
    """Seconds for which an ended delivery can be asked for."""
    credentials: HandOffCredentials = HandOffCredentials.REFUSE

    def check_fields(self) -> None:
        known = all(isinstance(when, HandOffWhen) for when in self.when)
        require(self, "when", f"some of {', '.join(HandOffWhen)}", holds=known)


@dataclass(frozen=True, slots=True)
class DeliveriesSettings(Validated):
    """Where clients ask for their deliveries, and the room that deliveries have."""

    status: Annotated[str | None, FILLED, PREFIX] = "/.holdfast/deliveries"
    """The path on the listeners at which clients ask; None: there is none."""
    entries: Annotated[int, at_least(1)] = 100_000
    bytes: Annotated[int, at_least(1)] = 1024**3
