"""What the limiters that all instances share have in common: the store behind them.

Nothing here waits. What is at hand is used; more is asked for, one command at a time, and the
listener is told when the answer has come. A limiter may be asked too soon: then it asks the store
later by itself.

The store comes and goes. While it is down each instance has a share of the limit for itself, and
calls that are under way are counted throughout, so that nothing has to be found out when it is
back. Instances find out one after the other that it is back. The first one must not take what the
others, still without it, count as theirs. So for a moment both limits apply: what the store gives,
and our share of it.
"""

import asyncio
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field

from proxy.core.clock import Clock
from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.limiter import LimiterListener
from proxy.stores.redis.permit_commands import PermitCommands


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class SharedLimiter(ABC):
    """A limiter of one bucket with a store behind it (policy.throttle.limiter.Limiter)."""

    _settings: ThrottleSettings
    _listener: LimiterListener
    _commands: PermitCommands
    _clock: Clock
    _: KW_ONLY
    _store_is_up: bool = field(init=False)
    """Whether the store can be asked."""
    is_asking: bool = False
    """Whether the store has yet to answer."""
    _waiting: int = 0
    """How many wait, as far as we were told since the store last answered."""
    _timer: asyncio.TimerHandle | None = None
    _due: float = 0.0
    """When the timer fires."""

    def __post_init__(self) -> None:
        self._store_is_up = self._commands.link.is_up

    # Asking the store.

    @abstractmethod
    def ask(self, now: float, waiting: int) -> bool:
        """Ask for what *waiting* calls need; tell whether an answer may allow more."""

    def _ask_at(self, due: float, now: float, waiting: int) -> None:
        """Ask at the moment *due*, if the store does not answer anything before."""
        self._waiting = waiting
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = asyncio.get_running_loop().call_later(due - now, self._ask_again)

    def _ask_again(self) -> None:
        self._timer = None
        if self._waiting:
            self.ask(self._clock.monotonic(), self._waiting)

    def _answered(self) -> None:
        self._waiting = 0  # requests that still wait will ask again
        self._listener.permits_changed()

    # The store comes and goes.

    @abstractmethod
    def went_down(self, now: float) -> None:
        """Do without the store from now on."""

    @abstractmethod
    def came_up(self, now: float) -> None:
        """Use the store again; other instances may not know yet that it is up."""

    @abstractmethod
    def trust_store(self) -> None:
        """Use nothing but the store: by now all instances know that it is up."""

    @abstractmethod
    def missed(self) -> None:
        """Ask for what may have been published while there was no subscription."""

    def close(self) -> None:
        """Ask no more."""
        self._waiting = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
