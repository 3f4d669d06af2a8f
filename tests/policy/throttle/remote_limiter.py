"""A limiter with its permits in a store: how many there are is not known before it was asked."""

from proxy.http.refusal import QuotaLeft
from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.limiter import NEVER

GUESS = 0.005
"""Seconds that it estimates while it does not know."""


class RemoteLimiter:
    """A :class:`proxy.policy.throttle.limiter.Limiter`; the test is the store that answers."""

    def __init__(self) -> None:
        self.at_hand = 0
        self.asked: list[int] = []
        """How many waited, each time that the store was asked."""
        self._next: float | None = None
        """When the next permit comes, if that is known."""
        self._interval = 0.0

    def answer(self, permits: int, *, next_at: float | None, interval: float = 0.0) -> None:
        """Answer as the store: *permits* now, and when more come; None: ask again."""
        self.at_hand += permits
        self._next = next_at
        self._interval = interval

    def take(self, now: float, reserved: int) -> bool:
        if self.wait(now, reserved + 1) > 0:
            return False
        self.at_hand -= 1
        return True

    def give_back(self) -> None:
        self.at_hand += 1

    def wait(self, now: float, count: int) -> float:
        missing = count - self.at_hand
        if missing <= 0:
            return 0.0
        if self._next is None:
            return GUESS
        if self._next == NEVER:
            return NEVER
        return self._next - now + (missing - 1) * self._interval

    def ask(self, now: float, waiting: int) -> bool:
        if waiting:
            self.asked.append(waiting)
        return self._next is None or now >= self._next

    def change(self, settings: ThrottleSettings, now: float, closed_until: float) -> None:  # noqa: ARG002 - as the protocol says
        self._next = None
        if closed_until > now:
            self.at_hand = 0
            self._next = closed_until

    def is_idle(self, now: float) -> bool:  # noqa: ARG002 - as the protocol says
        return not self.at_hand

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:  # noqa: ARG002 - as the protocol says
        return ()
