"""The addresses behind one configured name, and an attempt at one of them."""

import asyncio
import logging
import math
import ssl
from collections.abc import Collection
from itertools import count

from proxy.core import Clock, Exchange, Refused, RequestBody
from proxy.outbox import Outbox
from proxy.policy.framing import CHUNKED
from proxy.policy.outcome import Attempt, Kind, Pause
from proxy.policy.refusal import Reason, Refusal
from proxy.policy.repeating import REPEATABLE_METHODS, carries, is_repeatable
from proxy.policy.settings import Origin, UpstreamSettings
from proxy.upstream.addresses import FRESH_FOR, Addresses
from proxy.upstream.breakers import Breakers, Standing
from proxy.upstream.call import Call, Judge
from proxy.upstream.connection import Connection
from proxy.upstream.pool import DialError, Pool

_log = logging.getLogger("holdfast")

FRESH_ENOUGH = 1.0
"""Idle seconds up to which even an unrepeatable request takes a used connection."""


class Upstream:
    """One entry of ``upstreams``: picks an address, sends, records."""

    def __init__(
        self,
        settings: UpstreamSettings,
        tls: ssl.SSLContext | None,
        clock: Clock,
        outbox: Outbox,
        breakers: Breakers | None = None,
    ) -> None:
        self.settings = settings
        self.breakers = breakers
        self._honoured_key = settings.honours_key.encode()
        self._tls = tls
        self._clock = clock
        self._outbox = outbox
        self._loop = asyncio.get_running_loop()
        self._pools: dict[tuple[Origin, str], Pool] = {}
        self._order: list[Pool] = []
        self._only: Pool | None = None
        """The one address there is and ever will be, if that is so."""
        self._first_turns = count(1)
        self._retry_turns = count(1)
        self._retired = False
        self._renew_at = float("-inf")
        self._addresses = {
            origin: Addresses(origin.host, origin.port, clock, self._arrange)
            for origin in settings.origins
        }
        self._arrange()

    def __repr__(self) -> str:
        return f"<upstream {self.settings.name} {self._order}>"

    @property
    def pools(self) -> list[Pool]:
        """The addresses in use, in the order of the file and of their names' answers."""
        return list(self._order)

    async def attempt(
        self,
        exchange: Exchange,
        give_up: float | None,
        *,
        fresh: bool = False,
        judge: Judge | None = None,
        avoid: Collection[str] = (),
        pause: Pause | None = None,
    ) -> Attempt:
        """Send the request once and relay what comes back.

        Every fault of the upstream ends up in the record that is returned. With
        *fresh* the request goes over a new connection. *give_up* is the moment
        by which a connection must be there, besides ``connect_timeout``. *judge*
        may keep the response of a failure from the client. Addresses to *avoid*
        are taken only if there is no better one. *pause* is the wait that came
        before, for the record.
        Raises :class:`proxy.core.Refused` if every address is left alone for now,
        and if the client's own body is at fault.
        """
        now = self._clock.monotonic()
        pool = self._only or self._pick(now, avoid)
        attempt = Attempt(len(exchange.attempts) + 1, self.settings.name, now, pause)
        exchange.attempts.append(attempt)
        call = Call(exchange, attempt, judge, self._loop, self._clock)
        try:
            if self.breakers is not None and pool is not None:
                call.standing = self._admitted(pool, now)
            longest_idle = None if self._can_be_sent_again(exchange) else FRESH_ENOUGH
            if pool is None or fresh or (connection := pool.take_idle(now, longest_idle)) is None:
                pool, connection = await self._connect(call, pool, give_up, fresh=fresh)
            attempt.address = pool.label
            attempt.reused = connection.uses > 0
            upload = self._send(call, pool, connection)
            if upload is None:
                await call.done
            else:
                await self._upload(call, connection, upload)
        except DialError as error:
            if pool is not None:
                attempt.address = pool.label
            call.closed(error.kind)
        except (asyncio.CancelledError, Refused):
            # The client left, or its body was bad: nothing of this may go on.
            call.fail(Kind.CANCELLED)
            raise
        except Exception:  # noqa: BLE001 - our own fault is an outcome like the others
            _log.exception("attempt for request %s failed inside the proxy", exchange.request_id)
            call.fail(Kind.UNKNOWN)
        finally:
            exchange.stream = None
            exchange.route.recorder.attempted(attempt)
        return attempt

    def may_repeat(self, exchange: Exchange) -> bool:
        """Whether the request does no harm here if it runs twice."""
        method = exchange.method
        if method in REPEATABLE_METHODS:
            return True
        key = self._honoured_key
        has_key = bool(key) and carries(exchange.raw_headers, key)
        return is_repeatable(method, exchange.route.unsafe, carries_honoured_key=has_key)

    def _can_be_sent_again(self, exchange: Exchange) -> bool:
        """Whether a second attempt could send the same, too."""
        if exchange.upgrade or not self.may_repeat(exchange):
            return False
        return exchange.body is None or exchange.body.will_be_kept()

    def admits(self, now: float) -> bool:
        """Whether an attempt made at *now* would be let through by some breaker."""
        order = self._order
        return self.breakers is None or not order or any(p.admits(now) for p in order)

    def retire(self) -> None:
        """Keep no connection from now on; requests under way go on, and what they wait for."""
        self._retired = True
        for pool in self._pools.values():
            pool.close()

    def close(self) -> None:
        """Retire, and look up no more names: nobody waits for them any longer."""
        self.retire()
        for addresses in self._addresses.values():
            addresses.close()

    # Choosing an address and a connection.

    def _pick(self, now: float, avoid: Collection[str]) -> Pool | None:
        """The address to try; None if none is known yet.

        Raises :class:`Refused` if the breakers let none through.
        """
        if now >= self._renew_at:
            self._renew_at = now + FRESH_FOR
            for addresses in self._addresses.values():
                addresses.renew_if_old()
        order = self._order
        size = len(order)
        if not order:
            return None
        start = 0
        if self.settings.balance == "round_robin":
            # Each has turns of its own. If retries took those of first attempts, then with
            # one of two addresses down every request would begin at that one.
            start = next(self._retry_turns if avoid else self._first_turns)
        best, least = None, 4
        for step in range(size):
            pool = order[(start + step) % size]
            if pool.breaker is not None and not pool.breaker.would_admit(now):
                continue
            # Better one that failed this very request than one that nobody can reach.
            badness = 2 * pool.just_failed(now) + (pool.label in avoid)
            if not badness:
                return pool
            if badness < least:
                best, least = pool, badness
        if best is None:
            raise Refused(self._left_alone())
        return best

    def _left_alone(self) -> Refusal:
        wait = 0.0 if self.breakers is None else self.breakers.retry_after()
        return Refusal(
            Reason.BREAKER_OPEN, "The upstream keeps failing.", wait=max(1, math.ceil(wait))
        )

    def _admitted(self, pool: Pool, now: float) -> Standing | None:
        """The right to try *pool*, to be used or given back; None if it is not to be had."""
        if pool.breaker is None or (ticket := pool.breaker.admit(now)) is None:
            return None
        return Standing(pool.breaker, ticket, self.settings.refused, self._clock)

    async def _connect(
        self, call: Call, pool: Pool | None, give_up: float | None, *, fresh: bool
    ) -> tuple[Pool, Connection]:
        """A new connection to *pool*, or to another address of the same name.

        A name with one dead address among several, such as a ``localhost`` that
        is both ::1 and 127.0.0.1, serves its callers all the same.
        """
        now = self._clock.monotonic()
        limit = now + self._dial_time(call.exchange)
        # Cut short by the request's own deadline, a dial says nothing of its address.
        cut_short = give_up is not None and give_up < limit
        if give_up is not None:
            limit = min(limit, give_up)
        if pool is None:
            pool = await self._look_up(limit)
            now = self._clock.monotonic()
            call.standing = self._admitted(pool, now)
        others = (p for p in self._order if p.origin == pool.origin and p is not pool)
        candidates = [pool, *others]
        while True:
            candidate = candidates.pop(0)
            # Each gets its share of the time, the last one all that is left.
            share = (limit - now) / (len(candidates) + 1)
            try:
                connection = await candidate.connect(share, blame=not cut_short, fresh=fresh)
            except DialError as error:
                now = self._clock.monotonic()
                if error.kind is Kind.CONNECT:
                    self._addresses[candidate.origin].renew()
                if call.standing is not None:
                    call.standing.not_reached(error.kind, blame=not cut_short)
                candidates = [other for other in candidates if other.admits(now)]
                if not candidates or error.kind is Kind.CERTIFICATE:
                    raise
                call.standing = self._admitted(candidates[0], now)
            else:
                return candidate, connection

    def _dial_time(self, exchange: Exchange) -> float:
        """Seconds in which a connection must be there."""
        retry = exchange.route.settings.retry
        if retry is None or retry.attempt_timeout is None:
            return self.settings.connect_timeout
        return min(self.settings.connect_timeout, retry.attempt_timeout)

    async def _look_up(self, limit: float) -> Pool:
        """Wait until one of the names has an address."""
        lookups = {task for a in self._addresses.values() if (task := a.renew()) is not None}
        while lookups and not self._order:
            # Shared by all who wait: one of them leaving does not end them.
            done, lookups = await asyncio.wait(
                lookups,
                timeout=max(0, limit - self._clock.monotonic()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                break
        pool = self._pick(self._clock.monotonic(), ())
        if pool is None:
            raise DialError(Kind.CONNECT)
        return pool

    def _arrange(self) -> None:
        """Put the addresses in order again; the pools of lost ones are closed."""
        wanted = [(o, address) for o, a in self._addresses.items() for address in a.found]
        for key in self._pools.keys() - set(wanted):
            self._pools.pop(key).close()
        for origin, address in wanted:
            if (origin, address) not in self._pools:
                tls = self._tls if origin.scheme == "https" else None
                pool = Pool(
                    origin, address, self.settings, tls, clock=self._clock, outbox=self._outbox
                )
                if self.breakers is not None:
                    pool.breaker = self.breakers.of((origin, address))
                self._pools[origin, address] = pool
                if self._retired:
                    pool.close()
        self._order = [self._pools[key] for key in wanted]
        if self.breakers is not None:
            if not self._retired:  # then they are another's
                unknown = [origin for origin, a in self._addresses.items() if not a.found]
                self.breakers.keep_only(wanted, unknown)
        elif len(self._order) == 1 and all(a.is_fixed for a in self._addresses.values()):
            self._only = self._order[0]

    # Sending.

    def _send(self, call: Call, pool: Pool, connection: Connection) -> RequestBody | None:
        """Put the request on the wire; returns its body if that is still to be sent."""
        exchange = call.exchange
        if exchange.expired or exchange.attempt_expired:
            # Its deadline came while it waited for the connection, and comes only once.
            pool.give_back(connection, used=False)
            if call.standing is not None:
                call.standing.not_reached(Kind.CONNECT, blame=False)
            raise DialError(Kind.CONNECT)
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
            # A body beyond the limit, say: the connection is as good as before.
            pool.give_back(connection, used=False)
            raise
        if not connection.send(call, head, whole or b"", more=whole is None):
            raise DialError(Kind.CONNECT)
        call.attempt.sent = True
        call.connection = connection
        exchange.stream = call
        return body if whole is None else None

    async def _upload(self, call: Call, connection: Connection, body: RequestBody) -> None:
        """Send the body while the response may already be coming."""
        upload = self._loop.create_task(_upload(call, connection, body))
        try:
            await call.done
        finally:
            upload.cancel()
            # Its reader must have let go of the body before anybody else reads.
            await asyncio.wait((upload,))
        error = None if upload.cancelled() else upload.exception()
        if error is not None and call.attempt.kind is Kind.CANCELLED:
            raise error


async def _upload(call: Call, connection: Connection, body: RequestBody) -> None:
    chunked = body.length == CHUNKED
    longest_silence = call.exchange.route.settings.idle_timeout
    try:
        while data := await body.read():
            if chunked:
                connection.write_chunk(data)
            else:
                connection.write(data)
            if connection.must_wait and not await connection.drained(longest_silence):
                call.fail(Kind.TIMEOUT)
                return
    except Exception:
        call.fail(Kind.CANCELLED)
        raise
    if chunked:
        connection.write(b"0\r\n\r\n")
    connection.sent_all()
