"""Wires configuration, routes, upstreams, listeners and metrics; starts, reloads, drains.

The only module that knows all the others. What serves at any moment is one
immutable :class:`~proxy.server.site.Site`; a reload builds another and swaps it.
"""

import asyncio
import hashlib
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TextIO

from proxy import __version__, pipeline
from proxy.admin.listener import AdminListener
from proxy.config import ConfigError, Loaded
from proxy.core import Clock, Route, SystemClock
from proxy.observe import logs
from proxy.observe.access_log import AccessLog
from proxy.observe.line_writer import LineWriter
from proxy.observe.metrics import Metrics
from proxy.outbox import Outbox
from proxy.pipeline.deadlines import Deadlines
from proxy.pipeline.pauses import Pauses
from proxy.policy.breaker import Breaker
from proxy.policy.budget import Budget
from proxy.policy.settings import (
    BudgetSettings,
    RouteSettings,
    Settings,
    UpstreamSettings,
    UpstreamTls,
)
from proxy.server.listener import Listener
from proxy.server.parser import parser_name
from proxy.server.site import Site
from proxy.upstream.breakers import Breakers
from proxy.upstream.tls import client_context
from proxy.upstream.upstream import Upstream

_log = logging.getLogger("holdfast")

_STDOUT = 1
"""The descriptor itself: there is no ``sys.stdout`` where it was closed."""


class App:
    """One running proxy. Also what the admin listener may see and do of it."""

    def __init__(
        self, load: Callable[[], Loaded], clock: Clock | None = None, log_fd: int | None = None
    ) -> None:
        """*load* reads the configuration, now and at every reload."""
        self._load = load
        self._upstreams: dict[_UpstreamKey, Upstream] = {}
        self._budgets: dict[str, Budget] = {}
        self._deadlines: dict[float, Deadlines] = {}
        prepared = self._prepare()
        self._loaded = prepared.loaded
        self._clock: Clock = clock or SystemClock()
        self._lines = LineWriter(_STDOUT if log_fd is None else log_fd)
        self._access_log = AccessLog(self._lines, self._clock)
        self._outbox = Outbox()
        self._pauses = Pauses()
        self._reloading = asyncio.Lock()
        self._state = "starting"
        self._started = self._clock.monotonic()
        admin = self._loaded.settings.admin
        self._admin = None if admin is None else AdminListener(self, admin)
        self._metrics = Metrics(
            version=__version__,
            parser=parser_name(),
            loaded_at=self._clock.wall(),
            lost_lines=lambda: self._lines.dropped,
            budgets=self._budgets_left,
            breakers=self._breaker_states,
        )
        built = self._build(prepared)
        self._listener = Listener(self.settings.listen, built.site, self._clock, self._outbox)
        self._put_in_force(built)

    # Start and stop.

    @property
    def settings(self) -> Settings:
        """The configuration in force."""
        return self._loaded.settings

    @property
    def bound(self) -> list[str]:
        """Addresses that clients can use."""
        return self._listener.bound

    @property
    def admin_bound(self) -> list[str]:
        """Addresses of the admin listener."""
        return [] if self._admin is None else self._admin.bound

    async def start(self) -> None:
        """Open every listener. Raises OSError if one cannot be opened, and opens none then."""
        try:
            if self._admin is not None:
                await self._admin.start()
                _log.info("admin on %s", ", ".join(self.admin_bound))
            await self._listener.start()
        except BaseException:
            await self._close()
            raise
        self._state = "ready"
        _log.info("listening on %s", ", ".join(self.bound))
        for warning in self._loaded.warnings:
            _log.warning("%s", warning)

    async def drain(self) -> None:
        """Stop taking requests, let those under way end, and close everything."""
        self._state = "draining"
        _log.info("draining")
        await asyncio.sleep(self.settings.drain_delay)
        self._pauses.end()
        await self._listener.drain(self.settings.drain_timeout)
        await self._close()

    async def stop_at_once(self) -> None:
        """End every request where it is, and close everything."""
        self._state = "draining"
        await self._listener.drain(0)
        await self._close()

    async def _close(self) -> None:
        for upstream in self._upstreams.values():
            upstream.fleet.close()
        for deadlines in self._deadlines.values():
            deadlines.close()
        if self._admin is not None:
            await self._admin.close()
        self._lines.close()
        # Transports close in callbacks of their own: let these run.
        await asyncio.sleep(0)

    # Building what is served.

    def _prepare(self) -> "_Prepared":
        """Read the configuration, and all files that it names; this may take its time."""
        loaded = self._load()
        # Most upstreams have the same settings, and the system's authorities are many.
        context_for = cache(client_context)
        upstreams = {}
        for wanted in loaded.settings.upstreams:
            key = (wanted, _fingerprint(wanted.tls))
            is_new = key not in self._upstreams
            speaks_tls = any(origin.scheme == "https" for origin in wanted.origins)
            upstreams[key] = context_for(wanted.tls) if is_new and speaks_tls else None
        return _Prepared(loaded, upstreams)

    def _build(self, prepared: "_Prepared") -> "_Built":
        """Routes, upstreams and deadlines, keeping what did not change. Touches nothing else."""
        settings = prepared.loaded.settings
        log = self._access_log.hook(settings.access_log)
        upstreams = {
            key: self._upstreams.get(key) or self._new_upstream(key[0], context)
            for key, context in prepared.upstreams.items()
        }
        retried = {route.upstream for route in settings.routes if route.retry is not None}
        budgets = {
            upstream.name: self._budget(upstream.name, upstream.budget)
            for upstream in settings.upstreams
            if upstream.budget is not None and upstream.name in retried
        }
        timeouts: dict[float, Deadlines] = {}

        def deadlines(seconds: float) -> Deadlines:
            if seconds not in timeouts:
                kept = self._deadlines.get(seconds)
                timeouts[seconds] = Deadlines(seconds, self._clock) if kept is None else kept
            return timeouts[seconds]

        around = pipeline.Surroundings(
            upstreams={upstream.settings.name: upstream for upstream in upstreams.values()},
            budgets=budgets,
            deadlines=deadlines,
            pauses=self._pauses,
            clock=self._clock,
        )
        routes = [
            Route(
                route,
                pipeline.build(route, around),
                self._metrics.route(
                    route.name, _upstreams_of(route), log, retries=_makes_verdicts(route)
                ),
            )
            for route in settings.routes
        ]
        site = Site(settings, routes, self._metrics.unmatched(log))
        return _Built(prepared.loaded, site, upstreams, budgets, timeouts)

    def _new_upstream(self, settings: UpstreamSettings, tls: ssl.SSLContext | None) -> Upstream:
        """An upstream that knows what its predecessor's breakers knew, if those stay the same."""
        breakers = None
        if settings.breaker is not None:
            known = [
                upstream.fleet.breakers
                for upstream in self._upstreams.values()
                if upstream.settings.name == settings.name
                and upstream.settings.breaker == settings.breaker
            ]
            breakers = next(iter(known), None) or Breakers(settings.breaker)
        return Upstream(settings, tls, self._clock, self._outbox, breakers)

    def _budget(self, name: str, settings: BudgetSettings) -> Budget:
        """The budget of an upstream, going on with what was spent if it stays the same."""
        known = self._budgets.get(name)
        return known if known is not None and known.settings == settings else Budget(settings)

    def _put_in_force(self, built: "_Built") -> None:
        """Serve what was built from now on. Nothing in here can fail."""
        old_upstreams, self._upstreams = self._upstreams, built.upstreams
        self._budgets = built.budgets
        self._deadlines = built.deadlines
        self._loaded = built.loaded
        self._listener.server.site = built.site
        for key, upstream in old_upstreams.items():
            if key not in built.upstreams:
                upstream.fleet.retire()
        self._drop_unused_series()

    def _drop_unused_series(self) -> None:
        """Show the metrics of what is configured, and of nothing else."""
        routes = self.settings.routes
        self._metrics.keep_only(
            routes=[route.name for route in routes],
            retrying=[route.name for route in routes if _makes_verdicts(route)],
            upstreams=[upstream.name for upstream in self.settings.upstreams],
        )

    def _budgets_left(self) -> dict[str, float]:
        now = self._clock.monotonic()
        return {name: budget.remaining(now) for name, budget in self._budgets.items()}

    def _breaker_states(self) -> dict[str, int]:
        now = self._clock.monotonic()
        return {
            upstream.settings.name: upstream.fleet.best_state(now)
            for upstream in self._upstreams.values()
            if upstream.fleet.breakers is not None
        }

    # What the admin listener may see and do (admin.Operations).

    def token(self) -> str | None:
        """The admin token in force."""
        return self.settings.admin_token

    def not_ready(self) -> str | None:
        """Why no requests are taken; None if they are."""
        return None if self._state == "ready" else self._state

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics, in the format that *accept* asks for."""
        return await self._metrics.exposition(accept)

    def status(self) -> dict[str, object]:
        """What goes on, for a person."""
        now = self._clock.monotonic()
        return {
            "version": __version__,
            "state": self._state,
            "uptime_seconds": round(now - self._started, 3),
            "connections": self._listener.server.open_connections,
            "addresses": {
                upstream.settings.name: [
                    {
                        "address": pool.label,
                        "open": pool.open_connections,
                        "idle": pool.idle_connections,
                        "failing": pool.just_failed(now),
                        **_breaker_state(pool.breaker, now),
                    }
                    for pool in upstream.fleet.pools
                ]
                for upstream in self._upstreams.values()
            },
            **self._metrics.snapshot(),
        }

    def config(self) -> dict[str, object]:
        """The configuration in force, secrets masked."""
        return self._loaded.effective

    async def reload(self) -> tuple[bool, Sequence[str]]:
        """Read the configuration again and put it in force, or leave all as it is."""
        async with self._reloading:
            try:
                # Off the loop: a large file must not hold up anybody's request.
                prepared = await asyncio.to_thread(self._prepare)
                loaded = prepared.loaded
                needs_restart = _changed_listeners(self.settings, loaded.settings)
                if needs_restart:
                    return self._keep_old(needs_restart)
                built = self._build(prepared)
                # The last that can fail, because it is in force at once.
                self._listener.read_certificates_again()
            except ConfigError as error:
                return self._keep_old([str(finding) for finding in error.report.findings])
            except Exception:  # noqa: BLE001 - whatever it is, the old configuration serves on
                _log.exception("reload failed inside the proxy")
                self._drop_unused_series()
                return self._keep_old(["the configuration could not be applied, see the log"])
            self._put_in_force(built)
            self._metrics.reload_succeeded(self._clock.wall())
            _log.info("configuration reloaded")
            for warning in loaded.warnings:
                _log.warning("%s", warning)
            return True, [str(warning) for warning in loaded.warnings]

    def _keep_old(self, lines: list[str]) -> tuple[bool, list[str]]:
        self._metrics.reload_failed()
        for line in lines:
            _log.error("reload refused: %s", line)
        return False, lines


_UpstreamKey = tuple[UpstreamSettings, bytes]
"""Equal keys: the same settings, and the same content of the files they name."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A configuration, with what had to be read from further files."""

    loaded: Loaded
    upstreams: dict[_UpstreamKey, ssl.SSLContext | None]
    """What each upstream needs to connect; None for plain HTTP, and for one that there is."""


@dataclass(frozen=True, slots=True)
class _Built:
    """Everything that a configuration serves with, to be put in force or thrown away."""

    loaded: Loaded
    site: Site
    upstreams: dict[_UpstreamKey, Upstream]
    budgets: dict[str, Budget]
    deadlines: dict[float, Deadlines]


def _upstreams_of(route: RouteSettings) -> list[str]:
    """Its own, and the one that stands in for it."""
    other = "" if route.fallback is None else route.fallback.upstream
    return [route.upstream, other] if other else [route.upstream]


def _breaker_state(breaker: Breaker | None, now: float) -> dict[str, str]:
    return {} if breaker is None else {"breaker": breaker.state(now).name.lower()}


def _makes_verdicts(route: RouteSettings) -> bool:
    """Whether its attempts are judged at all."""
    return route.retry is not None or route.fallback is not None


def _fingerprint(tls: UpstreamTls) -> bytes:
    digest = hashlib.sha256()
    for name in (tls.ca, tls.cert, tls.key):
        digest.update(b"-" if name is None else hashlib.sha256(Path(name).read_bytes()).digest())
    return digest.digest()


def _changed_listeners(old: Settings, new: Settings) -> list[str]:
    """What a reload cannot apply, one line each."""
    pairs = (("listen", old.listen, new.listen), ("admin", old.admin, new.admin))
    return [
        f"{key}: changed, and that needs a restart; write it as it was to reload the rest"
        for key, before, after in pairs
        if before != after
    ]


def unfit_to_serve() -> str | None:
    """Why this installation must not serve; None if it may."""
    if parser_name() == "c":
        return None
    return (
        "aiohttp's compiled request parser is missing, and its fallback has let requests be"
        " smuggled: install aiohttp's binary wheel and unset AIOHTTP_NO_EXTENSIONS"
    )


def log_to(stream: TextIO) -> None:
    """Send what the process says about itself to *stream*."""
    logs.configure(stream)
