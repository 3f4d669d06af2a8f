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

PREEMPT_EVERY = 0.25
"""Seconds between two looks at the uploads that hold connections, while others wait for one."""
AVOID_AFTER_FAILURE = 5.0
"""Seconds for which an address that refused a connection is not tried first, at most."""


_LOCAL_SHORTAGE = frozenset({EMFILE, ENFILE, ENOBUFS, ENOMEM, EADDRNOTAVAIL})
"""Errors of a dial that say nothing of the address: descriptors, memory, local ports."""


class ConnectError(Exception):
    """No connection could be had; nothing was sent."""

    def __init__(self, kind: FailureKind, *, is_local: bool = False) -> None:
        super().__init__(kind.value)
        self.kind = kind
        self.is_local = is_local
        """Whether it is this machine that lacks something."""


class ConnectTimeout(ConnectError):
    """It took too long."""


class Pool:
    """The connections to one address of one origin."""

    __slots__ = (
        "_clock",
        "_closed",
        "_coalescer",
        "_failed_at",
        "_idle",
        "_loop",
        "_open",
        "_preempt_timer",
        "_settings",
        "_sweep_timer",
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
        self._coalescer = coalescer
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
        self._preempt_timer: asyncio.TimerHandle | None = None
        """Set while somebody waits: looks at uploads that could make way."""
        self._sweep_timer: asyncio.TimerHandle | None = None
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
        Raises :class:`ConnectError` when there is none *within* that many seconds.
        Whether that speaks against the address is for whoever asks to say: *blame*. If it has to
        wait, slow uploads make way for *caller*.
        """
        connect_by = self._clock.monotonic() + within
        waited = False
        while self._open >= self._settings.max_connections:
            if self._idle:
                # Too old for this request, yet in the way of a new one.
                self._idle.popleft().abandon()
            waited = True
            granted = await self._wait_for_slot(connect_by - self._clock.monotonic(), caller)
            if granted is None:
                break  # the place of another, and counted as its
            if granted.is_closing:
                continue
            if not fresh:
                return granted
            granted.is_counted = False  # its place is ours now
            granted.abandon()
            break
        else:
            self._open += 1
        try:
            within = connect_by - self._clock.monotonic()
            connection = await self._open_connection(within, blame=blame and not waited)
        except BaseException as error:
            self._release_slot()
            if waited and isinstance(error, ConnectTimeout):
                raise ConnectError(
                    FailureKind.BUSY
                ) from None  # the place came too late to be of use
            raise
        connection.is_counted = True
        connection.idle_since = self._clock.monotonic()
        self._failed_at = None
        return connection

    async def _wait_for_slot(self, within: float, caller: str) -> UpstreamConnection | None:
        """A connection that became free, or None: the place for a new one."""
        waiter: asyncio.Future[UpstreamConnection | None] = self._loop.create_future()
        self._waiters[waiter] = caller
        if self._preempt_timer is None:
            self._preempt_uploads()
        try:
            async with asyncio.timeout(within):
                connection = await waiter
        except BaseException as stopped:
            if waiter.cancelled():
                self._waiters.pop(waiter, None)
            else:
                # Granted in the very moment in which we stopped waiting.
                self._regrant(waiter.result())
            if isinstance(stopped, TimeoutError):
                raise ConnectError(FailureKind.BUSY) from None
            raise
        return connection

    def _preempt_uploads(self) -> None:
        """Have slow uploads make way, one for each who waits; look again as long as any do."""
        self._preempt_timer = None
        if self.uploads:
            self.uploads.preempt(self._waiters.values(), self._settings.max_connections)
        if self._waiters:
            self._preempt_timer = self._loop.call_later(PREEMPT_EVERY, self._preempt_uploads)

    def _regrant(self, granted: UpstreamConnection | None) -> None:
        if granted is not None:
            self.give_back(granted)
        else:
            self._release_slot()

    def _release_slot(self) -> None:
        """A place for a connection is free: for whoever waits longest, if anybody does."""
        if not self._grant(None):
            self._open -= 1

    async def _open_connection(self, within: float, *, blame: bool) -> UpstreamConnection:
        secure = self._tls is not None
        server_name = self._settings.tls.server_name or self.origin.host
        try:
            async with asyncio.timeout(within):
                _, connection = await self._loop.create_connection(
                    lambda: UpstreamConnection(
                        self, self._loop, self._coalescer, self._settings.keepalive
                    ),
                    self.address,
                    self.origin.port,
                    ssl=self._tls,
                    server_hostname=server_name if secure else None,
                )
        except ssl.SSLCertVerificationError:
            raise ConnectError(FailureKind.CERTIFICATE) from None
        except TimeoutError:  # which is an OSError, too
            if blame:
                self._failed_at = self._clock.monotonic()
            raise ConnectTimeout(FailureKind.CONNECT) from None
        except OSError as error:
            is_local = error.errno in _LOCAL_SHORTAGE
            # Failing costs no time, so a breaker gets to see it often enough to open.
            if self.breaker is None and not is_local:
                self._failed_at = self._clock.monotonic()
            raise ConnectError(FailureKind.CONNECT, is_local=is_local) from None
        if connection.is_closing:
            raise ConnectError(FailureKind.CONNECT)  # it ended as soon as it was made
        return connection

    # From connections.

    def give_back(self, connection: UpstreamConnection, *, used: bool = True) -> None:
        """Keep it for the next request, unless there are enough."""
        transport = connection.transport
        if self._closed or transport is None or transport.is_closing():
            connection.close()
        elif not self._waiters or not self._grant(connection):
            if used:
                connection.idle_since = self._clock.monotonic()
            self._idle.append(connection)
            if len(self._idle) > self._settings.idle_connections:
                # Not this one: only a fresh one serves requests that must not be repeated.
                self._idle.popleft().close()
            if self._sweep_timer is None:
                self._sweep_timer = self._loop.call_later(self._settings.keepalive, self._close_old)

    def lost(self, connection: UpstreamConnection) -> None:
        """It is closed: somebody else may have its place."""
        if not connection.is_counted:
            return  # never got past being dialled, and was uncounted there
        connection.is_counted = False
        if connection in self._idle:
            self._idle.remove(connection)
        self._release_slot()

    def _grant(self, connection: UpstreamConnection | None) -> bool:
        """Hand a connection (or the place for a new one) to whoever waits longest."""
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    def _close_old(self) -> None:
        self._sweep_timer = None
        now = self._clock.monotonic()
        while self._idle and now - self._idle[0].idle_since >= self._idle[0].keepalive:
            self._idle.popleft().close()
        if self._idle:
            oldest = self._idle[0]
            due = oldest.idle_since + oldest.keepalive - now
            self._sweep_timer = self._loop.call_later(due, self._close_old)

    def close(self) -> None:
        """Close what is idle now, and the rest as it is given back."""
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        while self._idle:
            self._idle.pop().close()
