"""Wires configuration, routes, upstreams, listeners and metrics; starts, reloads, drains.

The only module that knows all the others. What serves at any moment is one
immutable :class:`~proxy.server.site.Site`; a reload builds another and swaps it.
"""

import asyncio
import hashlib
import logging
import ssl
from collections.abc import Callable, Sequence
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
from proxy.policy.settings import Settings, UpstreamSettings, UpstreamTls
from proxy.server.listener import Listener
from proxy.server.parser import parser_name
from proxy.server.site import Site
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
        self._clock: Clock = clock or SystemClock()
        self._lines = LineWriter(_STDOUT if log_fd is None else log_fd)
        self._access_log = AccessLog(self._lines, self._clock)
        self._outbox = Outbox()
        self._upstreams: dict[_UpstreamKey, Upstream] = {}
        self._deadlines: dict[float, Deadlines] = {}
        self._reloading = asyncio.Lock()
        self._state = "starting"
        self._started = self._clock.monotonic()
        self._loaded = load()
        admin = self._loaded.settings.admin
        self._admin = None if admin is None else AdminListener(self, admin)
        self._metrics = Metrics(
            version=__version__,
            parser=parser_name(),
            loaded_at=self._clock.wall(),
            lost_lines=lambda: self._lines.dropped,
        )
        self._listener = Listener(
            self._loaded.settings.listen,
            self._build(self._loaded, {}),
            self._clock,
            self._outbox,
        )

    # Start and stop.

    @property
    def settings(self) -> Settings:
        """The configuration in force."""
        return self._loaded.settings

    @property
    def watched(self) -> tuple[Path, ...]:
        """Files whose content decides what the configuration is."""
        return self._loaded.watched

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
        await self._listener.drain(self.settings.drain_timeout)
        await self._close()

    async def stop_at_once(self) -> None:
        """End every request where it is, and close everything."""
        self._state = "draining"
        await self._listener.drain(0)
        await self._close()

    async def _close(self) -> None:
        for upstream in self._upstreams.values():
            upstream.close()
        for deadlines in self._deadlines.values():
            deadlines.close()
        if self._admin is not None:
            await self._admin.close()
        self._lines.close()
        # Transports close in callbacks of their own: let these run.
        await asyncio.sleep(0)

    # Building what is served.

    def _build(self, loaded: Loaded, contexts: "_Contexts") -> Site:
        """Routes, upstreams and recorders for *loaded*, keeping what did not change."""
        settings = loaded.settings
        log = self._access_log.hook(settings.access_log)
        upstreams: dict[_UpstreamKey, Upstream] = {}
        by_name: dict[str, Upstream] = {}
        for wanted in settings.upstreams:
            key = (wanted, _fingerprint(wanted.tls))
            upstream = self._upstreams.get(key) or self._upstream(wanted, contexts)
            upstreams[key] = by_name[wanted.name] = upstream
        timeouts: dict[float, Deadlines] = {}

        def deadlines(seconds: float) -> Deadlines:
            if seconds not in timeouts:
                timeouts[seconds] = self._deadlines.get(seconds) or Deadlines(seconds, self._clock)
            return timeouts[seconds]

        routes = [
            Route(
                route,
                pipeline.build(route, by_name[route.upstream], deadlines),
                self._metrics.route(route.name, route.upstream, log),
            )
            for route in settings.routes
        ]
        for key, upstream in self._upstreams.items():
            if key not in upstreams:
                upstream.retire()
        self._upstreams = upstreams
        self._deadlines = timeouts
        self._metrics.keep_only([route.name for route in settings.routes], list(by_name))
        return Site(settings, routes, self._metrics.unmatched(log))

    def _upstream(self, settings: UpstreamSettings, contexts: "_Contexts") -> Upstream:
        context = None
        if any(origin.scheme == "https" for origin in settings.origins):
            context = contexts.get(settings.tls) or client_context(settings.tls)
        return Upstream(settings, context, self._clock, self._outbox)

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
        return {
            "version": __version__,
            "state": self._state,
            "uptime_seconds": round(self._clock.monotonic() - self._started, 3),
            "connections": self._listener.server.open_connections,
            "addresses": {
                upstream.settings.name: [
                    {
                        "address": pool.label,
                        "open": pool.open_connections,
                        "idle": pool.idle_connections,
                        "failing": pool.just_failed(self._clock.monotonic()),
                    }
                    for pool in upstream.pools
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
                loaded, contexts = await asyncio.to_thread(self._prepare)
                needs_restart = _changed_listeners(self.settings, loaded.settings)
                if needs_restart:
                    return self._keep_old(needs_restart)
                self._listener.read_certificates_again()
                if self._admin is not None:
                    self._admin.read_certificate_again()
                site = self._build(loaded, contexts)
            except ConfigError as error:
                return self._keep_old([str(finding) for finding in error.report.findings])
            except Exception:  # noqa: BLE001 - whatever it is, the old configuration serves on
                _log.exception("reload failed inside the proxy")
                return self._keep_old(["the configuration could not be applied, see the log"])
            self._loaded = loaded
            self._listener.server.site = site
            self._metrics.reload_succeeded(self._clock.wall())
            _log.info("configuration reloaded")
            for warning in loaded.warnings:
                _log.warning("%s", warning)
            return True, [str(warning) for warning in loaded.warnings]

    def _prepare(self) -> "tuple[Loaded, _Contexts]":
        loaded = self._load()
        return loaded, {u.tls: client_context(u.tls) for u in loaded.settings.upstreams}

    def _keep_old(self, lines: list[str]) -> tuple[bool, list[str]]:
        self._metrics.reload_failed()
        for line in lines:
            _log.error("reload refused: %s", line)
        return False, lines


_UpstreamKey = tuple[UpstreamSettings, bytes]
"""Equal keys: the same settings, and the same content of the files they name."""
_Contexts = dict[UpstreamTls, ssl.SSLContext]


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
