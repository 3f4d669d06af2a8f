"""All that serves a configuration, in virtual time: no listener, no disk, no other process."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace

from proxy.core.clientless import ClientlessExchange
from proxy.core.clock import Clock
from proxy.core.memory_transport import Address, MemoryServer
from proxy.core.ports import Refused
from proxy.core.recorders import Meter, ThrottleRecorder
from proxy.core.route import Recorder, Route
from proxy.core.virtual_time import VirtualLoop
from proxy.net.write_coalescer import WriteCoalescer
from proxy.pipeline.generation import Generation, GenerationBuilder, TlsContexts
from proxy.pipeline.idempotency.in_flight import InFlightKeys
from proxy.pipeline.retry_waits import RetryWaits
from proxy.policy.dead_letter import DeadLetter
from proxy.policy.delivery.state import Delivery
from proxy.policy.settings import MemorySettings, Settings
from proxy.simulation.scripted_peer import ScriptedPeer
from proxy.stores.deliveries.ports import (
    Accepted,
    CapacityReservation,
    Mismatch,
    NewDelivery,
    NoCapacity,
    ShownDelivery,
)
from proxy.stores.deliveries.rows import as_accepted
from proxy.stores.memory import MemoryIdempotencyStore, MemoryLimiterStore

_ADDRESS = "192.0.2.1"
"""The address of every host name (RFC 5737): a port tells upstreams apart, or the exchange does."""


class SimulatedProxy:
    """The pipelines of a configuration, with the state that they share, over upstreams in memory.

    Must be made while its loop runs. Keys, limits and dead letters are kept in memory, whatever
    the configuration says.
    """

    def __init__(self, settings: Settings, loop: VirtualLoop, clock: Clock) -> None:
        self._loop = loop
        self.settings = settings
        self._servers: list[MemoryServer] = []
        self.store = MemoryIdempotencyStore(
            MemorySettings(),
            clock,
            SilentMeter(),  # type: ignore[abstract]  # an empty body is all that it needs
        )
        self.dead_letters = SimulatedDeadLetters()
        self.deliveries = SimulatedDeliveries(clock)
        self._in_flight = InFlightKeys(self.store, clock, _UnboundedMemory())
        limiters = MemoryLimiterStore(clock)
        builder = GenerationBuilder(
            clock,
            WriteCoalescer(),
            RetryWaits(grain=0.0),
            limiters.open_bucket,
            limiters.digest_key,
            self._in_flight,
            self.dead_letters,
            self.deliveries,
        )
        silent = SilentRecorder()  # type: ignore[abstract]  # empty bodies are all that it needs
        self._generation = builder.build(
            settings, _without_tls(settings), Generation(), lambda _: silent, lambda *_: silent
        )

    @property
    def routes(self) -> tuple[Route, ...]:
        """The routes of the configuration, in its order."""
        return self._generation.routes

    async def start(self, accept: Callable[[], ScriptedPeer]) -> None:
        """Accept connections at every address of every upstream; *accept* makes the peer."""
        addresses: set[Address] = set()
        for upstream in self.settings.upstreams:
            for origin in upstream.origins:
                self._loop.names[origin.host] = [_ADDRESS]
                found = await self._loop.getaddrinfo(origin.host, origin.port)
                addresses.update(answer[4] for answer in found)
        for address in sorted(addresses):
            self._servers.append(await self._loop.create_server(accept, *address))

    async def serve(self, exchange: ClientlessExchange) -> None:
        """Run *exchange* through the stages of its route, to the answer of its client."""
        try:
            refusal = await exchange.route.handle(exchange)
        except Refused as refused:
            refusal = refused.refusal
        if refusal is not None:
            exchange.answer(refusal)
        exchange.finish()

    def close(self) -> None:
        """Close every connection and timer."""
        for server in self._servers:
            server.close()
        self._in_flight.close()
        self._generation.close()


def _without_tls(settings: Settings) -> TlsContexts:
    """Return no TLS context for any upstream: connections in memory are plain."""
    return {(replace(up, budget=None, throttle=None), b""): None for up in settings.upstreams}


class SimulatedDeadLetters:
    """Keeps dead letters in memory (core.ports.DeadLetterSink)."""

    def __init__(self) -> None:
        self.kept: list[DeadLetter] = []

    async def keep(self, dead_letter: DeadLetter) -> bool:
        """Keep *dead_letter*: there is always space."""
        self.kept.append(dead_letter)
        return True

    def digest(self, content: bytes) -> str:
        """Digest *content*, which is shown to no person."""
        return hashlib.sha256(content).hexdigest()


class SimulatedDeliveries:
    """Accepts deliveries in memory, and delivers none (stores.deliveries.ports.DeliverySink)."""

    state = "up"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.accepted: list[Delivery] = []

    def reserve(self, caller: str, size: int) -> CapacityReservation | NoCapacity:
        """Reserve nothing: there is always space."""
        del caller, size
        return _NoReservation()

    async def accept(
        self, new: NewDelivery, reservation: CapacityReservation | None = None
    ) -> Accepted | Mismatch | NoCapacity:
        """Keep *new*: none is a duplicate of another."""
        del reservation
        now = self._clock.wall()
        delivery = as_accepted(new, now)
        self.accepted.append(delivery)
        return Accepted(delivery)

    async def find_record(self, record: str) -> Delivery | None:
        """Return the delivery of an idempotency key's record."""
        return next((each for each in self.accepted if each.record == record), None)

    async def withdraw_letter(self, delivery_id: str) -> None:
        """Do nothing: none fails."""

    async def wait_for_end(self, delivery_id: str, seconds: float) -> ShownDelivery | None:
        """Wait in vain."""
        del delivery_id
        await asyncio.sleep(seconds)
        return None


class _NoReservation:
    """A reservation of nothing."""

    def grow(self, size: int) -> NoCapacity | None:
        del size
        return None

    def release(self) -> None:
        pass


class _UnboundedMemory:
    """Memory without a bound, for results that the store has not taken yet: it takes all."""

    def take(self, size: int) -> bool:
        del size
        return True

    def give_back(self, size: int) -> None:
        del size


class SilentRecorder(Recorder, ThrottleRecorder):
    """Records nothing, of routes and of throttles: the methods of the two ports do nothing.

    What a simulation looks at is in its exchanges.
    """


class SilentMeter(Meter):
    """Counts nothing of a store, as its port does."""
