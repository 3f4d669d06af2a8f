"""All that one process tells of itself: what it counted, and what goes on in it.

One process makes its own status of it; several send it to the one that shows all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.observe.metrics.aggregate import aggregate
from proxy.observe.metrics.snapshot import MetricsSnapshot
from proxy.observe.status import summary
from proxy.policy.breaker import BreakerState
from proxy.policy.idempotency.record import KnownKeys


@dataclass(frozen=True, slots=True)
class AddressState:
    """What goes on at one address of an upstream."""

    address: str
    open: int
    """Connections."""
    idle: int
    """Those of them that wait in the pool."""
    failing: bool
    """Whether the last connection to it could not be made."""
    breaker: BreakerState | None
    """None without one."""

    def told(self) -> dict[str, object]:
        """In values that JSON can carry."""
        return {
            "address": self.address,
            "open": self.open,
            "idle": self.idle,
            "failing": self.failing,
            **({} if self.breaker is None else {"breaker": self.breaker.word}),
        }


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """One moment of one process, or of several."""

    collected: MetricsSnapshot
    connections: int
    """Clients that are connected."""
    keys_in_flight: int
    keys_waiting: int
    """Requests that wait for another one with the same idempotency key."""
    addresses: Mapping[str, Sequence[AddressState]]
    """By upstream."""
    keys_known: KnownKeys | None = None
    """What the memory of this process has of keys; None where they are kept elsewhere."""

    def told(self) -> dict[str, object]:
        """The part of ``/status`` that is about requests."""
        return {
            "connections": self.connections,
            "keys": {"in_flight": self.keys_in_flight, "waiting": self.keys_waiting},
            **_known(self.keys_known),
            "addresses": {
                upstream: [state.told() for state in states]
                for upstream, states in self.addresses.items()
            },
            **summary(self.collected),
        }


def _known(keys: KnownKeys | None) -> dict[str, object]:
    if keys is None:
        return {}
    oldest = None if keys.oldest is None else round(keys.oldest, 3)
    return {"known_keys": {"count": keys.known, "held": keys.held, "oldest_seconds": oldest}}


def _all_known(parts: Sequence[KnownKeys | None]) -> KnownKeys | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    oldest = [part.oldest for part in known if part.oldest is not None]
    held = sum(part.held for part in known)
    return KnownKeys(sum(part.known for part in known), held, max(oldest, default=None))


def whole_of(parts: Sequence[ProcessSnapshot]) -> ProcessSnapshot:
    """What *parts* (at least one) tell as if they were one process."""
    upstreams = dict.fromkeys(name for part in parts for name in part.addresses)
    return ProcessSnapshot(
        collected=aggregate([part.collected for part in parts]),
        connections=sum(part.connections for part in parts),
        keys_in_flight=sum(part.keys_in_flight for part in parts),
        keys_waiting=sum(part.keys_waiting for part in parts),
        addresses={
            name: _addresses([part.addresses.get(name, ()) for part in parts]) for name in upstreams
        },
        keys_known=_all_known([part.keys_known for part in parts]),
    )


def _addresses(parts: Sequence[Sequence[AddressState]]) -> list[AddressState]:
    found: dict[str, list[AddressState]] = {}
    for part in parts:
        for state in part:
            found.setdefault(state.address, []).append(state)
    return [
        AddressState(
            address=address,
            open=sum(state.open for state in states),
            idle=sum(state.idle for state in states),
            failing=any(state.failing for state in states),
            # Each judges by what it sees; who is refused wants to know of the worst.
            breaker=max(
                (state.breaker for state in states if state.breaker is not None), default=None
            ),
        )
        for address, states in found.items()
    ]
