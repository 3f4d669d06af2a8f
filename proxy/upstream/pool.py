"""The connection pool of one address: idle connections are kept, open ones counted.

State changes are synchronous; only connecting and waiting for a slot suspend,
and a slot or connection that they have when they are cancelled goes back.
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
"""Seconds between two checks for slow uploads, while requests wait for a connection."""
AVOID_AFTER_FAILURE = 5.0
"""Seconds for which an address that refused a connection is not tried first, at most."""
_SHOWN_AFTER_FAILURE = 60.0
"""Seconds for which an address that was not reached is shown as failing, at most."""


_LOCAL_SHORTAGE = frozenset({EMFILE, ENFILE, ENOBUFS, ENOMEM, EADDRNOTAVAIL})
"""Errors of a connect that say nothing of the address: descriptors, memory, local ports."""


class ConnectError(Exception):
    """No connection could be opened; nothing was sent."""

    def __init__(self, kind: FailureKind, *, is_local: bool = False) -> None:
        super().__init__(kind.value)
        self.kind = kind
        self.is_local = is_local
        """Whether this machine lacks something, and the address is not to blame."""


class ConnectTimeout(ConnectError):
    """Connecting took too long."""


class Pool:
    """The connection pool of one address of one origin."""

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
        """The URL as in the configuration."""
        self.address = address
        self.authority = origin.authority.encode()
        self.label = label_of(origin, address)
        """The name of the address in logs and attempts."""
        self.breaker: Breaker | None = None
        self._settings = settings
        self._tls = tls
        self._clock = clock
        self._coalescer = coalescer
        self._loop = asyncio.get_running_loop()
        # The most recently used connection is at the right end and is taken first, so that
        # the others grow old enough to be closed.
        self._idle: deque[UpstreamConnection] = deque()
        self.open_connections = 0
        """Connections that exist or are being opened."""
        # In order of arrival, and removed in constant time: thousands may leave at once.
        self._waiters: OrderedDict[asyncio.Future[UpstreamConnection | None], str] = OrderedDict()
        """Requests that wait for a slot, each with its caller."""
        self.uploads = Uploads()
        """Requests whose bodies are being sent."""
        self._preempt_timer: asyncio.TimerHandle | None = None
        """Set while requests wait: checks for uploads that can be pre-empted."""
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._failed_at: float | None = None
        """When a connect failed that makes other addresses the better choice."""
        self._unreached_at: float | None = None
        """When any connect failed for which the address is to blame."""
        self._closed = False

    def __repr__(self) -> str:
        return f"<pool {self.label} open={self.open_connections} idle={len(self._idle)}>"

    @property
    def idle_connections(self) -> int:
        """Connections that wait for a request."""
        return len(self._idle)

    def just_failed(self, now: float) -> bool:
        """Say whether the last connect failed, and not long ago."""
        return self._failed_at is not None and now - self._failed_at < AVOID_AFTER_FAILURE

    def is_unreachable(self, now: float) -> bool:
        """Say whether the last connect failed, within about a minute: for people to look at."""
        return self._unreached_at is not None and now - self._unreached_at < _SHOWN_AFTER_FAILURE

    def admits(self, now: float) -> bool:
        """Say whether the breaker of the address, if it has one, would admit a request."""
        return self.breaker is None or self.breaker.would_admit(now)

    def take_idle(self, now: float, longest_idle: float | None) -> UpstreamConnection | None:
        """Take an idle connection that was idle for *longest_idle* seconds at most, if any."""
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
        """Open a connection, or take one that another request gives back during the wait.

        With *fresh* that one is closed to make way for a new one.
        Raises :class:`ConnectError` when there is none *within* that many seconds; *blame* says
        whether that counts against the address. While the request waits for a slot, slow uploads
        are pre-empted for its *caller*.
        """
        connect_by = self._clock.monotonic() + within
        waited = False
        while self.open_connections >= self._settings.max_connections:
            if self._idle:
                # An idle connection too old for this request takes the slot of a new one.
                self._idle.popleft().abandon()
            waited = True
            granted = await self._wait_for_slot(connect_by - self._clock.monotonic(), caller)
            if granted is None:
                break  # the slot of a closed connection, which stays counted
            if granted.is_closing:
                continue
            if not fresh:
                return granted
            granted.is_counted = False  # the new connection takes over its slot
            granted.abandon()
            break
        else:
            self.open_connections += 1
        try:
            within = connect_by - self._clock.monotonic()
            connection = await self._open_connection(within, blame=blame and not waited)
        except BaseException as error:
            self._release_slot()
            if waited and isinstance(error, ConnectTimeout):
                raise ConnectError(
                    FailureKind.BUSY
                ) from None  # the slot came too late to be of use
            raise
        connection.is_counted = True
        connection.idle_since = self._clock.monotonic()
        self._failed_at = self._unreached_at = None
        return connection

    async def _wait_for_slot(self, within: float, caller: str) -> UpstreamConnection | None:
        """Wait for a connection that becomes idle; None grants the slot for a new one."""
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
                # Granted in the very moment in which the wait ended.
                self._regrant(waiter.result())
            if isinstance(stopped, TimeoutError):
                raise ConnectError(FailureKind.BUSY) from None
            raise
        return connection

    def _preempt_uploads(self) -> None:
        """Pre-empt slow uploads, one for each waiting request; repeat while any wait."""
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
        """Free a slot: grant it to the oldest waiter, if there is one."""
        if not self._grant(None):
            self.open_connections -= 1

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
                self._failed_at = self._unreached_at = self._clock.monotonic()
            raise ConnectTimeout(FailureKind.CONNECT) from None
        except OSError as error:
            is_local = error.errno in _LOCAL_SHORTAGE
            if not is_local:
                self._unreached_at = self._clock.monotonic()
            # A refused connect costs no time, so a breaker sees enough of them to open.
            if self.breaker is None and not is_local:
                self._failed_at = self._clock.monotonic()
            raise ConnectError(FailureKind.CONNECT, is_local=is_local) from None
        if connection.is_closing:
            raise ConnectError(FailureKind.CONNECT)  # closed as soon as it was open
        return connection

    # From connections.

    def give_back(self, connection: UpstreamConnection, *, used: bool = True) -> None:
        """Keep an idle connection for the next request, unless there are enough."""
        transport = connection.transport
        if self._closed or transport is None or transport.is_closing():
            connection.close()
        elif not self._waiters or not self._grant(connection):
            if used:
                connection.idle_since = self._clock.monotonic()
            self._idle.append(connection)
            if len(self._idle) > self._settings.idle_connections:
                # Not the new one: only a fresh one serves requests that must not be repeated.
                self._idle.popleft().close()
            if self._sweep_timer is None:
                self._sweep_timer = self._loop.call_later(self._settings.keepalive, self._close_old)

    def lost(self, connection: UpstreamConnection) -> None:
        """Free the slot of a connection that was closed."""
        if not connection.is_counted:
            return  # it never opened, and its slot was freed there
        connection.is_counted = False
        if connection in self._idle:
            self._idle.remove(connection)
        self._release_slot()

    def _grant(self, connection: UpstreamConnection | None) -> bool:
        """Grant a connection, or with None the slot for a new one, to the oldest waiter."""
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
        """Close idle connections now, and the others as they are given back."""
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        while self._idle:
            self._idle.pop().close()
