"""The throttle of one route or upstream: a rate limiter for all callers, or one for each."""

import asyncio
from collections.abc import Callable, Iterator

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.recorders import ThrottleRecorder, ThrottleState
from proxy.pipeline.throttle.async_limiter import AsyncLimiter, OpenBucket
from proxy.policy.settings import CallerSource, ThrottleSettings
from proxy.policy.throttle.caller_key import digest, value_of
from proxy.policy.throttle.caller_table import CallerTable

_CLIENT_IP = CallerSource.CLIENT_IP
_SWEEP_EVERY = 10.0
"""Seconds between two searches for idle callers whose limiters can be forgotten."""


class Throttle:
    """Limits the calls of one route, or to one upstream."""

    def __init__(
        self,
        label: tuple[str, str],
        settings: ThrottleSettings,
        open_bucket: OpenBucket,
        recorder: ThrottleRecorder,
        clock: Clock,
        *,
        digest_key: bytes = b"",
    ) -> None:
        """*digest_key* is the secret part of the names of callers' buckets in the store."""
        self.label = label
        """The scope (``route`` or ``upstream``) and the name in the configuration."""
        self.settings = settings
        self._open_bucket = open_bucket
        self._recorder = recorder
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._sweeper: asyncio.TimerHandle | None = None
        self._digest_key = digest_key
        self._callers: CallerTable[AsyncLimiter] = CallerTable(settings.max_keys)
        """Limiters of callers, by the digest of the key's value."""
        self.common = self._create_limiter("")
        """The limiter of all callers; with a key, of the callers without a value."""

    def __repr__(self) -> str:
        return f"<throttle {':'.join(self.label)}, {len(self._callers) + 1} limiters>"

    def _create_limiter(self, key: str) -> AsyncLimiter:
        name = ":".join((*self.label, key)) if key else ":".join(self.label)
        return AsyncLimiter(name, self.settings, self._open_bucket, self._recorder, self._clock)

    def _limiters(self) -> Iterator[AsyncLimiter]:
        yield self.common
        yield from self._callers.buckets()

    def limiter_for(self, exchange: Exchange) -> AsyncLimiter:
        """Return the limiter that a request has to pass."""
        name = self._caller_digest(exchange)
        if name is None:
            return self.common
        callers = self._callers
        limiter = callers.find(name)
        if limiter is not None:
            return limiter
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_EVERY, self._sweep)
        if not callers.make_space(name, self._idle_at(self._clock.monotonic())):
            return callers.shared(name, lambda number: self._create_limiter(f"{number:02x}"))
        limiter = self._create_limiter(name.hex())
        limiter.is_known = callers.is_known(name)
        callers.add(name, limiter)
        return limiter

    def _caller_digest(self, exchange: Exchange) -> bytes | None:
        """Return the digest that identifies the request's caller; None if nothing does."""
        key = self.settings.key
        if key is None:
            return None
        client_ip = exchange.client_ip() if key.source is _CLIENT_IP else ""
        value = value_of(key, exchange.raw_headers, exchange.target, client_ip)
        return None if value is None else digest(value, self._digest_key)

    def record_success(self, exchange: Exchange, limiter: AsyncLimiter) -> None:
        """Note that a call was answered below 400: the caller of *limiter* is known from now on."""
        if limiter.is_known or limiter is self.common:
            return
        name = self._caller_digest(exchange)
        if name is not None:
            self._callers.prove(name)
            limiter.is_known = self._callers.find(name) is limiter

    @staticmethod
    def _idle_at(now: float) -> Callable[[AsyncLimiter], bool]:
        return lambda limiter: limiter.queue.is_idle(now)

    def _sweep(self) -> None:
        self._callers.sweep(self._idle_at(self._clock.monotonic()))
        again = bool(len(self._callers))
        self._sweeper = self._loop.call_later(_SWEEP_EVERY, self._sweep) if again else None

    def state(self, now: float) -> ThrottleState:
        """Return the present counts of the throttle, for metrics and status."""
        pauses = [pause for limiter in self._limiters() if (pause := limiter.queue.paused_for(now))]
        return ThrottleState(
            waiting=sum(limiter.queue.waiting for limiter in self._limiters()),
            under_way=sum(limiter.queue.under_way for limiter in self._limiters()),
            buckets=len(self._callers) + 1,
            paused=len(pauses),
            paused_for=max(pauses, default=0.0),
        )

    def change(self, settings: ThrottleSettings) -> None:
        """Apply other limits from now on, to waiting requests too."""
        if settings == self.settings:
            return
        old, self.settings = self.settings, settings
        now = self._clock.monotonic()
        for limiter in self._limiters():
            limiter.change(settings, now)
        self._callers.most = settings.max_keys
        if settings.key != old.key:
            self._callers.clear()  # requests waiting there go on, but no others will come

    def close(self) -> None:
        """Stop all timers."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for limiter in self._limiters():
            limiter.close()
