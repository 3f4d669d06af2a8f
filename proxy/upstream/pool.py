"""The connections to one address: idle ones kept, open ones counted.

State changes are synchronous; only dialling and waiting for a place suspend,
and whatever they hold when they are cancelled goes back.
"""

import asyncio
import ssl
from collections import OrderedDict, deque
from errno import EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM

from proxy.core.clock import Clock
from proxy.net.write_coalescer import WriteCoalescer
from proxy.policy.attempt import FailureKind
from proxy.policy.breaker import Breaker
from proxy.policy.settings import Origin, UpstreamSettings
from proxy.upstream.breakers import label_of
from proxy.upstream.connection import UpstreamConnection
from proxy.upstream.uploads import Uploads

LOOK_FOR_SLOW_EVERY = 0.25
"""Seconds between two looks at the uploads that hold connections, while others wait for one."""
AVOID_AFTER_FAILURE = 5.0
"""Seconds for which an address that refused a connection is not tried first, at most."""


_OUR_OWN_LACK = frozenset({EMFILE, ENFILE, ENOBUFS, ENOMEM, EADDRNOTAVAIL})
"""Errors of a dial that say nothing of the address: descriptors, memory, local ports."""


class DialError(Exception):
    """No connection could be had; nothing was sent."""

    def __init__(self, kind: FailureKind, *, is_ours: bool = False) -> None:
        super().__init__(kind.value)
        self.kind = kind
        self.is_ours = is_ours
        """Whether it is this machine that lacks something."""


class DialTimeout(DialError):
    """It took too long."""


class Pool:
    """The connections to one address of one origin."""

    __slots__ = (
        "_clock",
        "_closed",
        "_failed_at",
        "_idle",
        "_loop",
        "_open",
        "_outbox",
        "_relief",
        "_settings",
        "_sweep",
        "_tls",
        "_waiters",
        "address",
        "authority",
        "breaker",
        "label",
        "origin",
        "uploads",
        "url",
    )

    def __init__(
        self,
        origin: Origin,
        address: str,
        settings: UpstreamSettings,
        tls: ssl.SSLContext | None,
        *,
        clock: Clock,
        coalescer: WriteCoalescer,
    ) -> None:
        self.origin = origin
        self.url = str(origin)
        """As the file has it."""
        self.address = address
        self.authority = origin.authority.encode()
        self.label = label_of(origin, address)
        """What the log and the attempts call it."""
        self.breaker: Breaker | None = None
        self._settings = settings
        self._tls = tls
        self._clock = clock
        self._outbox = coalescer
        self._loop = asyncio.get_running_loop()
        # The most recently used is at the right end and is taken first, so that
        # the others grow old enough to be closed.
        self._idle: deque[UpstreamConnection] = deque()
        self._open = 0
        # In the order of their coming, and quick to leave: a crowd may do so at once.
        self._waiters: OrderedDict[asyncio.Future[UpstreamConnection | None], str] = OrderedDict()
        """Those who wait for a place, each with its caller."""
        self.uploads = Uploads()
        """Requests whose bodies are on their way."""
        self._relief: asyncio.TimerHandle | None = None
        """Set while somebody waits: looks at uploads that could make way."""
        self._sweep: asyncio.TimerHandle | None = None
        self._failed_at: float | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<pool {self.label} open={self._open} idle={len(self._idle)}>"

    @property
    def open_connections(self) -> int:
        """Connections that exist or are being made."""
        return self._open

    @property
    def idle_connections(self) -> int:
        """Connections that wait for a request."""
        return len(self._idle)

    def just_failed(self, now: float) -> bool:
        """Whether the last try to connect failed, and not long ago."""
        return self._failed_at is not None and now - self._failed_at < AVOID_AFTER_FAILURE

    def admits(self, now: float) -> bool:
        """Whether it may be tried: its breaker, if it has one, lets requests through."""
        return self.breaker is None or self.breaker.would_admit(now)

    def take_idle(self, now: float, longest_idle: float | None) -> UpstreamConnection | None:
        """A connection that was idle for no longer than that, if there is one."""
        idle = self._idle
        while idle:
            connection = idle[-1]
            age = now - connection.idle_since
            if longest_idle is not None and age > longest_idle:
                return None
            idle.pop()
            transport = connection.transport
            if age <= connection.keepalive and transport is not None and not transport.is_closing():
                return connection
            connection.close()
        return None

    async def connect(
        self, within: float, *, blame: bool, fresh: bool = False, caller: str = ""
    ) -> UpstreamConnection:
        """A new connection, or one that another request gives back while we wait.

        With *fresh* that one is closed to make room for a new one.
        Raises :class:`DialError` when there is none *within* that many seconds.
        Whether that speaks against the address is for whoever asks to say: *blame*. If it has to
        wait, slow uploads make way for *caller*.
        """
        give_up = self._clock.monotonic() + within
        waited = False
        while self._open >= self._settings.max_connections:
            if self._idle:
                # Too old for this request, yet in the way of a new one.
                self._idle.popleft().abandon()
            waited = True
            granted = await self._wait_for_place(give_up - self._clock.monotonic(), caller)
            if granted is None:
                break  # the place of another, and counted as its
            if granted.is_closing:
                continue
            if not fresh:
                return granted
            granted.is_member = False  # its place is ours now
            granted.abandon()
            break
        else:
            self._open += 1
        try:
            within = give_up - self._clock.monotonic()
            connection = await self._dial(within, blame=blame and not waited)
        except BaseException as error:
            self._give_up_place()
            if waited and isinstance(error, DialTimeout):
                raise DialError(FailureKind.BUSY) from None  # the place came too late to be of use
            raise
        connection.is_member = True
        connection.idle_since = self._clock.monotonic()
        self._failed_at = None
        return connection

    async def _wait_for_place(self, within: float, caller: str) -> UpstreamConnection | None:
        """A connection that became free, or None: the place for a new one."""
        place: asyncio.Future[UpstreamConnection | None] = self._loop.create_future()
        self._waiters[place] = caller
        if self._relief is None:
            self._relieve()
        try:
            async with asyncio.timeout(within):
                connection = await place
        except BaseException as stopped:
            if place.cancelled():
                self._waiters.pop(place, None)
            else:
                # Granted in the very moment in which we stopped waiting.
                self._pass_on(place.result())
            if isinstance(stopped, TimeoutError):
                raise DialError(FailureKind.BUSY) from None
            raise
        return connection

    def _relieve(self) -> None:
        """Have slow uploads make way, one for each who waits; look again as long as any do."""
        self._relief = None
        if self.uploads:
            self.uploads.remove_stale_socket(self._waiters.values(), self._settings.max_connections)
        if self._waiters:
            self._relief = self._loop.call_later(LOOK_FOR_SLOW_EVERY, self._relieve)

    def _pass_on(self, granted: UpstreamConnection | None) -> None:
        if granted is not None:
            self.give_back(granted)
        else:
            self._give_up_place()

    def _give_up_place(self) -> None:
        """A place for a connection is free: for whoever waits longest, if anybody does."""
        if not self._offer(None):
            self._open -= 1

    async def _dial(self, within: float, *, blame: bool) -> UpstreamConnection:
        secure = self._tls is not None
        server_name = self._settings.tls.server_name or self.origin.host
        try:
            async with asyncio.timeout(within):
                _, connection = await self._loop.create_connection(
                    lambda: UpstreamConnection(
                        self, self._loop, self._outbox, self._settings.keepalive
                    ),
                    self.address,
                    self.origin.port,
                    ssl=self._tls,
                    server_hostname=server_name if secure else None,
                )
        except ssl.SSLCertVerificationError:
            raise DialError(FailureKind.CERTIFICATE) from None
        except TimeoutError:  # which is an OSError, too
            if blame:
                self._failed_at = self._clock.monotonic()
            raise DialTimeout(FailureKind.CONNECT) from None
        except OSError as error:
            is_ours = error.errno in _OUR_OWN_LACK
            # Failing costs no time, so a breaker gets to see it often enough to open.
            if self.breaker is None and not is_ours:
                self._failed_at = self._clock.monotonic()
            raise DialError(FailureKind.CONNECT, is_ours=is_ours) from None
        if connection.is_closing:
            raise DialError(FailureKind.CONNECT)  # it ended as soon as it was made
        return connection

    # From connections.

    def give_back(self, connection: UpstreamConnection, *, used: bool = True) -> None:
        """Keep it for the next request, unless there are enough."""
        transport = connection.transport
        if self._closed or transport is None or transport.is_closing():
            connection.close()
        elif not self._waiters or not self._offer(connection):
            if used:
                connection.idle_since = self._clock.monotonic()
            self._idle.append(connection)
            if len(self._idle) > self._settings.idle_connections:
                # Not this one: only a fresh one serves requests that must not be repeated.
                self._idle.popleft().close()
            if self._sweep is None:
                self._sweep = self._loop.call_later(self._settings.keepalive, self._close_old)

    def lost(self, connection: UpstreamConnection) -> None:
        """It is closed: somebody else may have its place."""
        if not connection.is_member:
            return  # never got past being dialled, and was uncounted there
        connection.is_member = False
        if connection in self._idle:
            self._idle.remove(connection)
        self._give_up_place()

    def _offer(self, connection: UpstreamConnection | None) -> bool:
        """Hand a connection (or the place for a new one) to whoever waits longest."""
        while self._waiters:
            place, _ = self._waiters.popitem(last=False)
            if not place.done():
                place.set_result(connection)
                return True
        return False

    def _close_old(self) -> None:
        self._sweep = None
        now = self._clock.monotonic()
        while self._idle and now - self._idle[0].idle_since >= self._idle[0].keepalive:
            self._idle.popleft().close()
        if self._idle:
            oldest = self._idle[0]
            due = oldest.idle_since + oldest.keepalive - now
            self._sweep = self._loop.call_later(due, self._close_old)

    def close(self) -> None:
        """Close what is idle now, and the rest as it is given back."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        while self._idle:
            self._idle.pop().close()
