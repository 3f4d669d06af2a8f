"""The circuit breakers of one upstream, one for each of its addresses.

Breakers outlive the upstream's other settings: a reload that changes a timeout does
not forget which address is down.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from proxy.core.clock import Clock
from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.breaker import Breaker, BreakerChange, BreakerState, address_health
from proxy.policy.settings import BreakerSettings, Origin

_log = logging.getLogger("holdfast")

Address = tuple[Origin, str]
"""A URL of the upstream, and one of the addresses that its name stands for."""


def label_of(origin: Origin, address: str) -> str:
    """Return the name of an address in logs and status."""
    return f"[{address}]:{origin.port}" if ":" in address else f"{address}:{origin.port}"


@dataclass(slots=True, eq=False)
class BreakerReport:
    """Reports the outcome of one attempt to the breaker of its address, once."""

    _breaker: Breaker | None
    _ticket: int
    _refused: frozenset[int]
    _clock: Clock

    def answered(self, status: int) -> None:
        """Report the status as soon as the head has come, without waiting for the body."""
        good = address_health(None, status, self._refused)
        self._report(good, "" if good else str(status))

    def ended(self, attempt: Attempt, *, blame: bool) -> None:
        """Report the end of the attempt; without *blame* the client kept it from success."""
        if attempt.found_stale or not blame:
            self._report(
                None
            )  # an idle connection ended, or a client is slow or gave too little time
        else:
            good = address_health(attempt.kind, attempt.status, self._refused)
            self._report(good, "" if good else attempt.kind or str(attempt.status))

    def not_reached(self, kind: FailureKind, *, blame: bool) -> None:
        """Report that connecting failed; without *blame* that is not the address's fault."""
        self._report(address_health(kind, 0, self._refused) if blame else None, kind)

    def _report(self, good: bool | None, outcome: str = "") -> None:  # noqa: FBT001 - the verdict itself
        breaker, self._breaker = self._breaker, None
        if breaker is not None:
            breaker.report(self._ticket, good, self._clock.monotonic(), outcome)


class Breakers:
    """Finds the breaker of an address, and remembers it while the address is in use."""

    def __init__(self, upstream: str, settings: BreakerSettings) -> None:
        """*upstream* is the upstream's name, for the log."""
        self.settings = settings
        self._upstream = upstream
        self._breakers: dict[Address, Breaker] = {}

    def of(self, address: Address) -> Breaker:
        """Return the breaker of *address*, made on first use."""
        breaker = self._breakers.get(address)
        if breaker is None:
            label = label_of(*address)
            breaker = Breaker(self.settings, lambda change: self._log_change(label, change))
            self._breakers[address] = breaker
        return breaker

    def _log_change(self, label: str, change: BreakerChange) -> None:
        """Log that a breaker opened, or closed again."""
        level = logging.WARNING if change.state is BreakerState.OPEN else logging.INFO
        description = change.describe(self.settings)
        _log.log(
            level, "the breaker of upstream %s at %s is %s", self._upstream, label, description
        )

    def keep_only(self, addresses: Collection[Address], unknown: Collection[Origin]) -> None:
        """Forget the breakers of all addresses but these.

        Those of the *unknown* origins stay: their names were not looked up since the last reload,
        and may resolve to the same addresses as before.
        """
        for gone in self._breakers.keys() - set(addresses):
            if gone[0] not in unknown:
                del self._breakers[gone]
