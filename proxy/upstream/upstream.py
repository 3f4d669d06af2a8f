"""One attempt at an upstream: takes a connection, sends the request, relays the response."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.ports import KeyLost, Refused, RequestBody, SendPermit
from proxy.http.framing import CHUNKED
from proxy.net.write_coalescer import WriteCoalescer
from proxy.policy.attempt import Attempt, FailureKind, RetryDelay
from proxy.policy.repeatable import is_repeatable
from proxy.policy.settings import UpstreamSettings
from proxy.upstream.breakers import Breakers
from proxy.upstream.call import Call, Judge
from proxy.upstream.connection import UpstreamConnection
from proxy.upstream.load_balancing import Endpoints
from proxy.upstream.pool import ConnectError, Pool

_log = logging.getLogger("holdfast")

FRESH_ENOUGH = 1.0
"""Idle seconds up to which even an unrepeatable request takes a used connection."""


class Upstream:
    """One entry of ``upstreams``: takes a connection, sends, records."""

    def __init__(
        self,
        settings: UpstreamSettings,
        tls: ssl.SSLContext | None,
        clock: Clock,
        coalescer: WriteCoalescer,
        breakers: Breakers | None = None,
    ) -> None:
        self.settings = settings
        self._honoured_key = b""
        """Header whose value the upstream runs once only, in lower case; empty: no such promise."""
        if settings.honours_key is not None:
            self._honoured_key = settings.honours_key.header.encode()
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.endpoints = Endpoints(settings, tls, clock, coalescer, breakers)
        self.breaker = None if breakers is None else self.endpoints
        """Says whether any address would admit an attempt; None without ``breaker``."""
        self.on_attempt: Callable[[Exchange, Attempt], None] | None = None
        """Told of every attempt that has ended, where deliveries go to this upstream."""

    def __repr__(self) -> str:
        return f"<upstream {self.settings.name} {self.endpoints!r}>"

    async def attempt(  # noqa: C901 - a branch for each way in which an attempt may end
        self,
        exchange: Exchange,
        connect_by: float,
        *,
        fresh: bool = False,
        judge: Judge | None = None,
        avoid: Collection[str] = (),
        delay: RetryDelay | None = None,
        permit: SendPermit | None = None,
        url: str = "",
    ) -> Attempt:
        """Send the request once and relay what comes back.

        Every fault of the upstream ends up in the record that is returned. With
        *fresh* the request goes over a new connection. *connect_by* is the moment
        by which a connection must be open, besides ``connect_timeout``. *judge*
        may keep the response of a failure from the client. Addresses to *avoid*
        are taken only if there is no better one, and with *url* none but those of that URL.
        *delay* is the wait that came before, for the record. A *permit* is given where
        throttles limit how many requests are sent; it is closed at the end, however that comes.
        Raises :class:`proxy.core.ports.Refused` if the breakers of all addresses are open,
        and if the client's own body is at fault; :class:`proxy.core.ports.KeyLost` if its
        idempotency key may be another request's by now.
        """
        now = self._clock.monotonic()
        endpoints = self.endpoints
        pool = endpoints.only or self._pick(now, avoid, permit, url)
        attempt = Attempt(len(exchange.attempts) + 1, self.settings.name, now, delay)
        attempt.url = url
        if permit is not None:
            attempt.queued = permit.queued
        exchange.attempts.append(attempt)
        call = Call(exchange, attempt, judge, self._loop, self._clock)
        try:
            if endpoints.breakers is not None and pool is not None:
                call.report = endpoints.admit(pool, now)
            if pool is None or fresh or (connection := pool.take_idle(now, FRESH_ENOUGH)) is None:
                pool, connection = await self._connect(call, pool, connect_by, permit, fresh=fresh)
            attempt.address, attempt.url = pool.label, pool.url
            attempt.reused = connection.uses > 0
            upload = self._send(call, pool, connection)
            if upload is None:
                await call.done
            else:
                await self._upload(call, pool, connection, upload)
        except ConnectError as error:
            if pool is not None:
                attempt.address = pool.label
            call.closed(error.kind)
        except (asyncio.CancelledError, Refused) as error:
            # The client left, or its body was bad.
            await call.end_without_client(error)
        except Exception:  # noqa: BLE001 - our own fault is an outcome like the others
            _log.exception("attempt for request %s failed inside the proxy", exchange.request_id)
            call.fail(FailureKind.UNKNOWN)
        finally:
            exchange.stream = None
            if permit is not None:
                permit.close(sent=call.has_begun)
            exchange.route.recorder.attempted(attempt)
            if self.on_attempt is not None:
                self.on_attempt(exchange, attempt)
        return attempt

    def _pick(
        self, now: float, avoid: Collection[str], permit: SendPermit | None, url: str
    ) -> Pool | None:
        """Return the pool to try, see :meth:`Endpoints.pick`; close *permit* if there is none."""
        try:
            return self.endpoints.pick(now, avoid, url)
        except BaseException:
            if permit is not None:
                permit.close(sent=False)
            raise

    def _can_be_sent_again(self, exchange: Exchange) -> bool:
        """Say whether a second attempt here may and could send the same request."""
        if exchange.upgrade:
            return False
        key, unsafe = self._honoured_key, exchange.route.unsafe
        has_key = bool(key) and exchange.sends_once(key)
        if not is_repeatable(exchange.method, unsafe, carries_honoured_key=has_key):
            return False
        return exchange.body is None or exchange.body.will_be_kept()

    # Sending.

    async def _connect(
        self,
        call: Call,
        pool: Pool | None,
        connect_by: float,
        permit: SendPermit | None,
        *,
        fresh: bool,
    ) -> tuple[Pool, UpstreamConnection]:
        """Open a connection for a request, and spend its *permit* once the connection is open.

        A request that could be sent again takes any idle one, unless it must be *fresh*.
        """
        if pool is not None and not fresh and self._can_be_sent_again(call.exchange):
            idle = pool.take_idle(call.attempt.started, None)
            if idle is not None:
                return pool, idle
        if permit is None:
            return await self.endpoints.connect(call, pool, connect_by, fresh=fresh)
        permit.reserve()
        pool, connection = await self.endpoints.connect(call, pool, connect_by, fresh=fresh)
        try:
            await permit.use(connect_by)
        except BaseException:
            pool.give_back(connection, used=False)
            raise
        return pool, connection

    def _send(self, call: Call, pool: Pool, connection: UpstreamConnection) -> RequestBody | None:
        """Send the request; return its body if that is still to be sent."""
        exchange = call.exchange
        if exchange.expired or exchange.attempt_expired:
            # The deadline came while the request waited for the connection, and fires only once.
            pool.give_back(connection, used=False)
            if call.report is not None:
                call.report.not_reached(FailureKind.CONNECT, blame=False)
            raise ConnectError(FailureKind.CONNECT)
        key = exchange.owned_key
        if key is not None and key.owned_until <= self._clock.monotonic():
            pool.give_back(connection, used=False)
            raise KeyLost
        body = exchange.body
        try:
            whole = b"" if body is None else body.begin()
            head = exchange.request_bytes(
                pool.authority,
                pool.origin.base_path,
                whole,
                preserve_host=self.settings.preserve_host,
            )
        except BaseException:
            # For example a body beyond the limit: the connection is as good as before.
            pool.give_back(connection, used=False)
            raise
        if not connection.send(call, head, whole or b"", more=whole is None):
            raise ConnectError(FailureKind.CONNECT)
        call.attempt.sent = call.has_begun = True
        call.connection = connection
        exchange.stream = call
        return body if whole is None else None

    async def _upload(
        self, call: Call, pool: Pool, connection: UpstreamConnection, body: RequestBody
    ) -> None:
        """Send the body while the response may already be coming."""
        pool.uploads.begin(call.exchange)
        upload = self._loop.create_task(_upload(call, connection, body))
        try:
            await call.done
        finally:
            upload.cancel()
            pool.uploads.end(call.exchange)
            # The task must have stopped reading the body before another reader begins.
            await asyncio.wait((upload,))
        error = None if upload.cancelled() else upload.exception()
        if error is not None and call.attempt.kind is FailureKind.CANCELLED:
            raise error


async def _upload(call: Call, connection: UpstreamConnection, body: RequestBody) -> None:
    chunked = body.length == CHUNKED
    idle_timeout = call.exchange.route.settings.idle_timeout
    try:
        while data := await body.read():
            if chunked:
                connection.write_chunk(data)
            else:
                connection.write(data)
            if connection.is_write_blocked and not await connection.wait_writable(idle_timeout):
                call.fail(FailureKind.TIMEOUT)
                return
    except Exception:
        call.fail(FailureKind.CANCELLED)
        raise
    if chunked:
        connection.write(b"0\r\n\r\n")
    connection.wrote_all()
