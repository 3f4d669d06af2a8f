"""Limiters that this process has for itself."""

from secrets import token_bytes

from proxy.core.clock import Clock
from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.limiter import LimiterListener, Limiters, local_limiters


class MemoryLimiterStore:
    """Has the limiters of every bucket, and shares them with no other process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.digest_key = token_bytes(32)
        """Random: no other process needs to find the same bucket."""

    def open_bucket(
        self,
        bucket: str,  # noqa: ARG002 - no other process shares it
        settings: ThrottleSettings,
        listener: LimiterListener,  # noqa: ARG002 - nothing changes by itself here
    ) -> Limiters:
        """Return the limiters of one bucket."""
        return local_limiters(settings, self._clock.monotonic())
