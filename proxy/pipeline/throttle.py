"""The throttle of one route or upstream: a gate for all, or one for each caller."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice

from proxy.core import Clock, Exchange, ThrottleRecorder, ThrottleState
from proxy.pipeline.gate import Gate
from proxy.policy.permits import Permits, PermitsListener
from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle_key import digest, value_of

_SWEEP_EVERY = 10.0
"""Seconds after which callers are looked for that nobody would miss."""

_LOOK_AT = 4
"""Callers that are looked at to make room for another one."""

NewPermits = Callable[[str, ThrottleSettings, PermitsListener], Permits]
"""The permits of the bucket with that name."""


class Throttle:
    """What limits the calls of one route, or to one upstream."""

    __slots__ = (
        "_by_key",
        "_clock",
        "_loop",
        "_new_permits",
        "_recorder",
        "_sweeper",
        "common",
        "label",
        "settings",
    )

    def __init__(
        self,
        label: tuple[str, str],
        settings: ThrottleSettings,
        new_permits: NewPermits,
        recorder: ThrottleRecorder,
        clock: Clock,
    ) -> None:
        self.label = label
        """Its scope (``route`` or ``upstream``) and the name in the configuration."""
        self.settings = settings
        self._new_permits = new_permits
        self._recorder = recorder
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._sweeper: asyncio.TimerHandle | None = None
        self._by_key: OrderedDict[bytes, Gate] = OrderedDict()
        """By the digest of the key's value, the one not used for longest first."""
        self.common = self._gate("")
        """For all; with a key for those without a value, or who are too many."""

    def __repr__(self) -> str:
        return f"<throttle {':'.join(self.label)}, {len(self._by_key) + 1} gates>"

    def _gate(self, key: str) -> Gate:
        name = ":".join((*self.label, key)) if key else ":".join(self.label)
        return Gate(
            self.settings,
            lambda settings, gate: self._new_permits(name, settings, gate),
            self._recorder,
            self._clock,
        )

    def _gates(self) -> Iterator[Gate]:
        yield self.common
        yield from self._by_key.values()

    def gate_for(self, exchange: Exchange) -> Gate:
        """Where a request has to pass."""
        key = self.settings.key
        if key is None:
            return self.common
        client_ip = exchange.client_ip() if key.source == "client_ip" else ""
        value = value_of(key, exchange.raw_headers, exchange.target, client_ip)
        if value is None:
            return self.common
        name = digest(value)
        gate = self._by_key.get(name)
        if gate is not None:
            self._by_key.move_to_end(name)
            return gate
        if len(self._by_key) >= self.settings.max_keys and not self._drop_one():
            return self.common
        gate = self._by_key[name] = self._gate(name.hex())
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_EVERY, self._sweep)
        return gate

    def _drop_one(self) -> bool:
        """Make room for another caller, if one that was not here for long is not missed."""
        now = self._clock.monotonic()
        for name, gate in list(islice(self._by_key.items(), _LOOK_AT)):
            if gate.bucket.is_idle(now):
                del self._by_key[name]
                return True
            # One call that takes hours must not keep all others from being looked at.
            self._by_key.move_to_end(name)
        return False

    def _sweep(self) -> None:
        now = self._clock.monotonic()
        idle = [name for name, gate in self._by_key.items() if gate.bucket.is_idle(now)]
        for name in idle:
            del self._by_key[name]
        again = bool(self._by_key)
        self._sweeper = self._loop.call_later(_SWEEP_EVERY, self._sweep) if again else None

    def state(self, now: float) -> ThrottleState:
        """What goes on here."""
        pauses = [pause for gate in self._gates() if (pause := gate.bucket.paused_for(now))]
        return ThrottleState(
            waiting=sum(gate.bucket.waiting for gate in self._gates()),
            under_way=sum(gate.bucket.under_way for gate in self._gates()),
            buckets=len(self._by_key) + 1,
            paused=len(pauses),
            paused_for=max(pauses, default=0.0),
        )

    def change(self, settings: ThrottleSettings) -> None:
        """Other limits hold from now on, for those in line too."""
        if settings == self.settings:
            return
        old, self.settings = self.settings, settings
        now = self._clock.monotonic()
        for gate in self._gates():
            gate.change(settings, now)
        if settings.key != old.key:
            self._by_key.clear()  # those in line there go on, but no others will come

    def close(self) -> None:
        """The end of everything."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for gate in self._gates():
            gate.close()
