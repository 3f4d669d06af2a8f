"""Load balancing: which address of an upstream an attempt takes, and a connection to it.

The order is that of the file, or round robin; addresses whose breaker is open are left out, and
those that just refused a connection, or failed this very request, come last.
"""

import asyncio
import math
import ssl
from collections.abc import Collection
from itertools import count

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.ports import Refused
from proxy.http.refusal import Refusal, RefusalReason
from proxy.net.write_coalescer import WriteCoalescer
from proxy.policy.attempt import FailureKind
from proxy.policy.breaker import BreakerState
from proxy.policy.settings import LoadBalancing, Origin, UpstreamSettings
from proxy.upstream.breakers import BreakerReport, Breakers
from proxy.upstream.call import Call
from proxy.upstream.connection import UpstreamConnection
from proxy.upstream.pool import ConnectError, Pool
from proxy.upstream.resolver import FRESH_FOR, Resolver


class Endpoints:
    """The addresses of one upstream, each with its connection pool; balances the load on them."""

    def __init__(
        self,
        settings: UpstreamSettings,
        tls: ssl.SSLContext | None,
        clock: Clock,
        coalescer: WriteCoalescer,
        breakers: Breakers | None,
    ) -> None:
        self.only: Pool | None = None
        """The only address, if the upstream has one that can never change; else None."""
        self.breakers = breakers
        self._settings = settings
        self._rotates = settings.balance is LoadBalancing.ROUND_ROBIN
        self._tls = tls
        self._clock = clock
        self._coalescer = coalescer
        self._pools: dict[tuple[Origin, str], Pool] = {}
        self._order: list[Pool] = []
        self._first_rotation = count(1)
        self._retry_rotation = count(1)
        self._retired = False
        self._renew_at = float("-inf")
        self._resolvers = {
            origin: Resolver(origin.host, origin.port, clock, self._addresses_changed)
            for origin in settings.origins
        }
        self._rebuild_pools()

    def __repr__(self) -> str:
        return f"<endpoints {self._order}>"

    @property
    def pools(self) -> list[Pool]:
        """The pools in use, in the order of the file and of the answers for each name."""
        return list(self._order)

    def retire(self) -> None:
        """Keep no idle connection from now on; requests and look-ups under way go on."""
        self._retired = True
        for pool in self._pools.values():
            pool.close()

    def close(self) -> None:
        """Retire, and stop the look-ups: no request waits for them any longer."""
        self.retire()
        for resolver in self._resolvers.values():
            resolver.close()

    # Load balancing.

    def admits(self, now: float, url: str = "") -> bool:
        """Say whether a breaker of any address would admit an attempt at *now*.

        With *url* only the addresses of that URL count.
        """
        if self.breakers is None:
            return True
        order = self._pools_at(url)
        return not order or any(pool.admits(now) for pool in order)

    def _pools_at(self, url: str) -> list[Pool]:
        """Return the pools of *url*; of all URLs, if that is empty."""
        return [pool for pool in self._order if pool.url == url] if url else self._order

    def best_state(self, now: float) -> BreakerState:
        """Return the best state among the breakers of all addresses."""
        states = (pool.breaker.state(now) for pool in self._order if pool.breaker is not None)
        return min(states, default=BreakerState.CLOSED)

    def pick(self, now: float, avoid: Collection[str], url: str = "") -> Pool | None:
        """Return the pool of the address to try, of those of *url* if one is given.

        None if no address is known yet. Raises :class:`Refused` if all breakers are open.
        """
        if now >= self._renew_at:
            self._renew_at = now + FRESH_FOR
            for resolver in self._resolvers.values():
                resolver.renew_if_old()
        order = self._pools_at(url) if url else self._order
        size = len(order)
        if not order:
            return None
        start = 0
        if self._rotates:
            # First attempts and retries rotate separately. If retries advanced the rotation of
            # first attempts, then with one of two addresses down every request would begin there.
            start = next(self._retry_rotation if avoid else self._first_rotation)
        best, least = None, 4
        for step in range(size):
            pool = order[(start + step) % size]
            if not pool.admits(now):
                continue
            # An address that failed this very request is better than one that refuses connections.
            penalty = 2 * pool.just_failed(now) + (pool.label in avoid)
            if not penalty:
                return pool
            if penalty < least:
                best, least = pool, penalty
        if best is None:
            raise Refused(self.open_refusal(now, url))
        return best

    def open_refusal(self, now: float, url: str = "") -> Refusal:
        """Return the answer for a client while all breakers, of *url* or at all, are open."""
        order = self._pools_at(url)
        waits = [pool.breaker.retry_after(now) for pool in order if pool.breaker is not None]
        wait = max(1, math.ceil(min(waits)))
        return Refusal(RefusalReason.BREAKER_OPEN, "The upstream keeps failing.", wait=wait)

    def admit(self, pool: Pool, now: float) -> BreakerReport | None:
        """Ask the breaker of *pool* to admit an attempt; None if there is none, or it refuses."""
        if pool.breaker is None or (ticket := pool.breaker.admit(now)) is None:
            return None
        return BreakerReport(pool.breaker, ticket, self._settings.refused, self._clock)

    # Connecting.

    async def connect(
        self, call: Call, pool: Pool | None, connect_by: float, *, fresh: bool
    ) -> tuple[Pool, UpstreamConnection]:
        """Open a connection to *pool*, or to another address of the same name.

        Without a pool, because no name was looked up yet, any address will do that the call may
        go to. A name with one dead address among several, such as a ``localhost`` that is both
        ::1 and 127.0.0.1, serves its callers all the same.
        """
        now = self._clock.monotonic()
        limit = now + self._connect_time(call.exchange)
        # A connect that the request's own deadline cuts short says nothing of its address.
        cut_short = connect_by < limit
        limit = min(limit, connect_by)
        if pool is None:
            pool = await self._look_up(limit, call.attempt.url)
            now = self._clock.monotonic()
            call.report = self.admit(pool, now)
        origin = pool.origin
        others = (p for p in self._order if p.origin == origin and p is not pool and p.admits(now))
        candidates = [pool, *others]
        while True:
            candidate = candidates.pop(0)
            # Each address gets its share of the time, the last one all that is left.
            share = (limit - now) / (len(candidates) + 1)
            try:
                connection = await candidate.connect(
                    share, blame=not cut_short, fresh=fresh, caller=call.exchange.caller()
                )
            except ConnectError as error:
                now = self._clock.monotonic()
                if error.kind is FailureKind.CONNECT:
                    self._resolvers[candidate.origin].renew()
                if call.report is not None:
                    blame = not (cut_short or error.is_local)
                    call.report.not_reached(error.kind, blame=blame)
                candidates = [other for other in candidates if other.admits(now)]
                if not candidates or error.kind is FailureKind.CERTIFICATE:
                    raise
                call.report = self.admit(candidates[0], now)
            else:
                return candidate, connection

    async def can_connect(self) -> bool:
        """Open a connection to any address, for later use; return whether that worked."""
        limit = self._settings.connect_timeout
        try:
            now = self._clock.monotonic()
            pool = self.pick(now, ()) or await self._look_up(now + limit, "")
            connection = await pool.connect(limit, blame=True, fresh=True)
        except (ConnectError, Refused):
            return False
        pool.give_back(connection, used=False)
        return True

    def _connect_time(self, exchange: Exchange) -> float:
        """Return the seconds in which a connection must be open."""
        retry = exchange.route.settings.retry
        if retry is None or retry.attempt_timeout is None:
            return self._settings.connect_timeout
        return min(self._settings.connect_timeout, retry.attempt_timeout)

    async def _look_up(self, limit: float, url: str) -> Pool:
        """Wait until one of the names has an address; with *url*, until its name has."""
        names = [a for origin, a in self._resolvers.items() if url in {"", str(origin)}]
        lookups = {task for a in names if (task := a.renew()) is not None}
        while lookups and not self._pools_at(url):
            # All waiting requests share the look-ups: one that is cancelled does not end them.
            done, lookups = await asyncio.wait(
                lookups,
                timeout=max(0, limit - self._clock.monotonic()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                break
        pool = self.pick(self._clock.monotonic(), (), url)
        if pool is None:
            raise ConnectError(FailureKind.CONNECT)
        return pool

    def _addresses_changed(self) -> None:
        """Rebuild the pools after a name resolved to other addresses than before."""
        self._rebuild_pools()
        if (
            self.breakers is not None and not self._retired
        ):  # the breakers of a retired upstream belong to its successor
            unknown = [origin for origin, a in self._resolvers.items() if not a.found]
            self.breakers.keep_only(self._pools.keys(), unknown)

    def _rebuild_pools(self) -> None:
        """Make pools for new addresses, close those of lost ones, and put all in order."""
        wanted = [(o, address) for o, a in self._resolvers.items() for address in a.found]
        for key in self._pools.keys() - set(wanted):
            self._pools.pop(key).close()
        for origin, address in wanted:
            if (origin, address) not in self._pools:
                tls = self._tls if origin.scheme == "https" else None
                pool = Pool(
                    origin,
                    address,
                    self._settings,
                    tls,
                    clock=self._clock,
                    coalescer=self._coalescer,
                )
                if self.breakers is not None:
                    pool.breaker = self.breakers.of((origin, address))
                self._pools[origin, address] = pool
                if self._retired:
                    pool.close()
        self._order = [self._pools[key] for key in wanted]
        if (
            self.breakers is None
            and len(self._order) == 1
            and all(a.is_fixed for a in self._resolvers.values())
        ):
            self.only = self._order[0]
