"""The life of one process that serves: start, hot reload, graceful shutdown (drain).

Wires configuration, routes, upstreams, listeners and metrics. What serves at any moment is one
immutable :class:`~proxy.server.router.Router`; a reload builds another and swaps it.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from proxy import __version__
from proxy.admin.listener import AdminListener
from proxy.admin.process import Reloaded
from proxy.app.operations import AppOperations
from proxy.app.reloading import faulty, needs_restart, refused, reloaded
from proxy.config import ConfigError, Fault, Loaded
from proxy.core.clock import Clock, SystemClock
from proxy.delivery.dispatcher import Dispatcher
from proxy.delivery.resource import DeliveryResource
from proxy.delivery.service import DeliveryService
from proxy.net.write_coalescer import WriteCoalescer
from proxy.observe.history import CountedWindow, History
from proxy.observe.logs.access_log import AccessLog
from proxy.observe.logs.line_writer import LineWriter
from proxy.observe.metrics import families
from proxy.observe.metrics.recorders import UNMATCHED, Metrics, RouteRecorder
from proxy.observe.metrics.snapshot import ProcessSnapshot
from proxy.observe.notable import hook
from proxy.observe.recent import Recent
from proxy.pipeline.generation import (
    Generation,
    GenerationBuilder,
    TlsContexts,
    hands_off,
    has_dead_letters,
    has_idempotency,
    makes_verdicts,
    transient_by_route,
    upstreams_of,
)
from proxy.pipeline.hand_off.attempt import DeliveryRoute
from proxy.pipeline.idempotency.in_flight import InFlightKeys
from proxy.pipeline.retry_waits import RetryWaits
from proxy.policy.settings import RouteSettings, Settings
from proxy.replay.service import ReplayService
from proxy.server.aiohttp_adapter.parser import parser_name
from proxy.server.body.replay_memory import FairMemory
from proxy.server.listener import Listener
from proxy.server.router import Router
from proxy.stores import StoreError
from proxy.stores.dead_letters import DeadLetterStore
from proxy.stores.deliveries.store import FileDeliveryStore
from proxy.stores.opening import open_store

_log = logging.getLogger("holdfast")

_UNREPORTED = "(results that the store could not take)"
"""The caller in whose name those results are kept: no address looks like this."""
_STDOUT = 1
"""The descriptor itself: there is no ``sys.stdout`` where it was closed."""


class CannotStart(Exception):
    """Nothing is served; the text says why, and what to do about it."""


@dataclass(frozen=True, slots=True)
class WorkerRole:
    """What makes an app one of several workers: a supervisor listens and speaks for it."""

    on_connection_end: Callable[[], object]
    """Called when a connection that the worker took up has ended."""
    log_lock: int
    """The file whose lock is taken to write lines to the log that all workers share."""


class App:
    """One running proxy."""

    def __init__(
        self,
        load: Callable[[], Loaded],
        clock: Clock | None = None,
        log_fd: int | None = None,
        worker: WorkerRole | None = None,
    ) -> None:
        """*load* reads the configuration, now and at every reload.

        As a *worker* the app opens no listener, and logs nothing that is the same for all
        workers; connections come by :meth:`take_up`.
        """
        self._load = load
        self._is_worker = worker is not None
        self._generation = Generation()
        self._loaded, contexts = self._prepare()
        self._clock: Clock = clock or SystemClock()
        log_lock = None if worker is None else worker.log_lock
        self._lines = LineWriter(_STDOUT if log_fd is None else log_fd, log_lock)
        self._access_log = AccessLog(self._lines, self._clock)
        self._recent = Recent(self._clock)
        self._history = History()
        self._reloading = asyncio.Lock()
        self._state = "starting"
        self._started = self._clock.monotonic()
        self._metrics = Metrics(
            version=__version__,
            parser=parser_name(),
            loaded_at=self._clock.wall(),
        )
        self._dead_letters = DeadLetterStore(self.settings.state_dir, self._clock, self._metrics)
        limits = self.settings.deliveries
        self._deliveries = FileDeliveryStore(
            self.settings.state_dir, self._clock, entries=limits.entries, size=limits.bytes
        )
        self._keeps_keys = any(map(has_idempotency, self.settings.routes))
        """Whether a configuration that was in force since the start had idempotency keys."""
        self._store = open_store(
            self.settings.store, self._clock, self._metrics, keeps_keys=self._keeps_keys
        )
        coalescer = WriteCoalescer()
        self._retry_waits = RetryWaits()
        unstored_memory = _UnstoredResultMemory(
            lambda: self._listener.server.replay_memory, lambda: self.settings.limits.replay_memory
        )
        self._in_flight_keys = InFlightKeys(
            self._store.keys, self._clock, unstored_memory, self._store.recorder
        )
        self._builder = GenerationBuilder(
            self._clock,
            coalescer,
            self._retry_waits,
            self._store.limiters.open_bucket,
            self._store.limiters.digest_key,
            self._in_flight_keys,
            self._dead_letters,
            self._deliveries,
        )
        self._replays = ReplayService(self._dead_letters, self._clock, self._metrics)
        self._dispatcher = Dispatcher(
            self._deliveries, self._clock, self._metrics, self._delivering
        )
        self._delivery_service = DeliveryService(
            self._deliveries, self._clock, self._metrics, self._delivering, self._store.keys
        )
        built = self._build(self._loaded, contexts)
        self._listener = Listener(self.settings.listen, built.router, self._clock, coalescer)
        if worker is not None:
            self._listener.server.on_closed = worker.on_connection_end
        self._put_in_force(built)
        self.sample()
        self.operations = AppOperations(
            self,
            recent=self._recent,
            in_flight_keys=self._in_flight_keys,
            dead_letters=self._dead_letters,
            replays=self._replays,
            deliveries=self._delivery_service,
            router=lambda: self._listener.server.router,
        )
        """What the admin listener, or a supervisor, may see and do."""
        admin = None if self._is_worker else self.settings.admin
        self._admin = None if admin is None else AdminListener(self.operations, admin)

    # Start and graceful shutdown.

    @property
    def loaded(self) -> Loaded:
        """The configuration in force, with its warnings."""
        return self._loaded

    @property
    def settings(self) -> Settings:
        """The configuration in force."""
        return self._loaded.settings

    @property
    def state(self) -> str:
        """``starting``, ``ready`` or ``draining``."""
        return self._state

    @property
    def uptime(self) -> float:
        """Seconds since the start."""
        return self._clock.monotonic() - self._started

    @property
    def bound(self) -> list[str]:
        """Addresses that clients can use."""
        return self._listener.bound

    @property
    def admin_bound(self) -> list[str]:
        """Addresses of the admin listener."""
        return [] if self._admin is None else self._admin.bound

    async def start(self) -> None:
        """Open the store and every listener.

        Raises OSError if a listener cannot be opened and :class:`CannotStart` if the store
        cannot; none is open then.
        """
        try:
            if self._admin is not None:
                await self._admin.start()
                _log.info("admin on %s", ", ".join(self.admin_bound))
            if self._store.shared is not None:
                await self._store.shared.start()
            await self._open_dead_letters(self.settings)
            await self._open_deliveries(self.settings)
            if self._is_worker:
                self._listener.read_certificates()
            else:
                await self._listener.start()
        except StoreError as error:
            await self._close()
            raise CannotStart(str(error)) from error
        except BaseException:
            await self._close()
            raise
        self._state = "ready"
        if not self._is_worker:
            _log.info("listening on %s", ", ".join(self.bound))
        self._log_warnings(self._loaded.warnings)

    async def take_up(self, sock: socket.socket, which: int) -> None:
        """Serve a connection that another process accepted, on the address number *which*."""
        await self._listener.take_up(sock, which)

    def _log_warnings(self, warnings: Sequence[Fault]) -> None:
        for warning in warnings:
            _log.warning("%s", warning)

    async def _open_dead_letters(self, settings: Settings) -> None:
        """Open the file of dead letters where a route keeps some, or once did.

        Raises StoreError if a route needs the file and it cannot be opened.
        """
        if self._dead_letters.is_open:
            return
        if any(has_dead_letters(route) for route in settings.routes):
            await self._dead_letters.start()
        elif self._dead_letters.has_file:
            try:
                await self._dead_letters.start()
            except StoreError as error:
                _log.warning("older dead letters are unavailable: %s", error)

    async def _open_deliveries(self, settings: Settings) -> None:
        """Open the deliveries where a route hands off, or once did, and begin to deliver.

        Raises StoreError if a route needs the file and it cannot be opened.
        """
        self._deliveries.resize(settings.deliveries.entries, settings.deliveries.bytes)
        is_needed = any(map(hands_off, settings.routes))
        if self._deliveries.is_open or not (is_needed or await self._deliveries.has_some()):
            return
        try:
            await self._deliveries.start()
        except StoreError as error:
            if is_needed:
                raise
            _log.warning("older deliveries are unavailable: %s", error)
        else:
            await self._dispatcher.start()

    def _delivering(self) -> tuple[Settings, Mapping[str, DeliveryRoute]]:
        """Return the configuration in force, and its routes that hand off."""
        return self.settings, self._generation.delivering

    async def drain(self) -> None:
        """Shut down gracefully: take no more requests, let those under way end, close all."""
        self._state = "draining"
        if not self._is_worker:
            _log.info("draining")
        await asyncio.sleep(self.settings.drain_delay)
        self._retry_waits.end()
        timeout = self.settings.drain_timeout
        began = self._clock.monotonic()
        # Deliveries and requests end together: nothing new is taken by either.
        delivering = asyncio.ensure_future(self._dispatcher.drain(timeout))
        await self._listener.drain(timeout)
        await delivering
        await self._replays.drain(max(began + timeout - self._clock.monotonic(), 0.0))
        # Requests whose clients have left, but which still own their keys.
        await self._in_flight_keys.drain(max(began + timeout - self._clock.monotonic(), 0.0))
        await self._close()

    async def stop_at_once(self) -> None:
        """Cut off every request, and close everything."""
        self._state = "draining"
        await self._listener.drain(0)
        await self._dispatcher.drain(0)
        await self._replays.drain(0)
        await self._in_flight_keys.drain(0)
        await self._close()

    async def _close(self) -> None:
        self._generation.close()
        if self._store.shared is not None:
            await self._store.shared.close()
        await self._dispatcher.drain(0)
        await self._deliveries.close()
        await self._dead_letters.close()
        if self._admin is not None:
            await self._admin.close()
        self._lines.close()
        # Transports close in callbacks of their own: let these run.
        await asyncio.sleep(0)

    # Building what is served.

    def _prepare(self) -> tuple[Loaded, TlsContexts]:
        """Read the configuration and all files that it names; may wait for a disk."""
        loaded = self._load()
        return loaded, self._generation.read_tls_contexts(loaded.settings)

    def _build(self, loaded: Loaded, contexts: TlsContexts) -> "_Built":
        """Build what serves a configuration from what did not change. Touches nothing else."""
        settings = loaded.settings
        log = hook(settings.access_log, self._access_log, self._recent)

        unmatched = self._metrics.unmatched(log)

        def recorder(route: RouteSettings) -> RouteRecorder:
            return self._metrics.route(
                route.name,
                upstreams_of(route),
                log,
                retries=makes_verdicts(route),
                keys=has_idempotency(route),
                dead_letters=has_dead_letters(route),
                deliveries=hands_off(route),
            )

        generation = self._builder.build(
            settings, contexts, self._generation, recorder, self._metrics.throttle
        )
        status = settings.deliveries.status if generation.delivering else None
        resource = None
        if status is not None:
            service = self._delivery_service
            resource = DeliveryResource(status, service, self._delivering, self._clock).handle
        router = Router(settings, generation.routes, unmatched, resource)
        return _Built(loaded, generation, router)

    def _put_in_force(self, built: "_Built") -> None:
        """Serve what was built from now on. Nothing in here can fail."""
        old, self._generation = self._generation, built.generation
        self._loaded = built.loaded
        self._listener.server.router = built.router
        built.generation.succeed(old)
        self._drop_unused_series()
        self._note_key_routes()
        self._watch_upstreams()

    def _watch_upstreams(self) -> None:
        """Tell the lines of upstreams that deliveries go to of all attempts there."""
        for to in self._generation.delivering.values():
            to.upstream.on_attempt = self._dispatcher.line(to.upstream.settings.name).attempted
        self._dispatcher.reloaded()

    def _note_key_routes(self) -> None:
        """Tell the store when a reload is the first to configure idempotency."""
        if self._keeps_keys or not any(map(has_idempotency, self.settings.routes)):
            return
        self._keeps_keys = True
        if self._store.on_first_key_route is not None:
            self._store.on_first_key_route()

    def _drop_unused_series(self) -> None:
        """Show the metrics of what is configured, and of nothing else."""

        def named(routes: Iterable[RouteSettings]) -> set[tuple[str, ...]]:
            return {(route.name,) for route in routes}

        routes = self.settings.routes
        self._metrics.keep_only(
            {
                families.ROUTE: {(UNMATCHED,)} | named(routes),
                families.RETRYING_ROUTE: named(filter(makes_verdicts, routes)),
                families.KEYED_ROUTE: named(filter(has_idempotency, routes)),
                families.DEAD_LETTER_ROUTE: named(filter(has_dead_letters, routes)),
                families.DELIVERING_ROUTE: named(filter(hands_off, routes)),
                families.UPSTREAM: {(upstream.name,) for upstream in self.settings.upstreams},
                families.THROTTLE: self._generation.throttles.keys(),
            }
        )

    # What goes on.

    def snapshot(self) -> ProcessSnapshot:
        """Return what was counted and what goes on at this moment."""
        now, generation = self._clock.monotonic(), self._generation
        store, immediate = self._store.shared, self._in_flight_keys.immediate
        return self._metrics.snapshot(
            families.WORKERS.reading(1),
            families.LOST_LINES.reading(self._lines.dropped),
            families.BUDGETS.reading(generation.budgets_left(now)),
            families.BREAKERS.reading(generation.breaker_states(now)),
            families.THROTTLES.reading(generation.throttle_states(now)),
            families.ADDRESSES.reading(generation.address_states(now)),
            families.TRANSIENT.reading(transient_by_route(self.settings)),
            families.DEAD_LETTERS.reading((self._dead_letters.counted, self._dead_letters.counts)),
            families.DELIVERIES.reading((self._deliveries.counted, self._deliveries.counts)),
            families.DELIVERIES_USED.reading(
                self._deliveries.fill if self._deliveries.is_open else None
            ),
            families.DELIVERY_LINES.reading(self._dispatcher.phases()),
            families.NOW.reading(self._clock.wall()),
            families.STORE_STATE.reading(None if store is None else store.state),
            families.CONNECTIONS.reading(self._listener.server.open_connections),
            families.KEYS_IN_FLIGHT.reading(len(self._in_flight_keys)),
            families.KEYS_WAITING.reading(self._in_flight_keys.waiting),
            families.KEYS_KNOWN.reading(None if immediate is None else immediate.known()),
        )

    def sample(self) -> None:
        """Remember what was counted up to this moment, for what happened lately."""
        self._history.sample(self._clock.monotonic(), self._metrics.counted())

    def last_minute(self, snapshot: ProcessSnapshot) -> CountedWindow:
        """Return what was counted in the last minute, up to *snapshot*, which was just taken."""
        return self._history.last_minute(self._clock.monotonic(), snapshot)

    # Hot reload.

    async def reload(self) -> Reloaded:
        """Read the configuration again and put it in force, or leave all as it is."""
        async with self._reloading:
            try:
                # Off the loop: a large file must not delay requests.
                loaded, contexts = await asyncio.to_thread(self._prepare)
                changed = needs_restart(self.settings, loaded.settings)
                if changed:
                    return self._keep_old(changed)
                await self._open_dead_letters(loaded.settings)
                await self._open_deliveries(loaded.settings)
                built = self._build(loaded, contexts)
                # The last step that can fail, because it is in force at once.
                self._listener.read_certificates_again()
            except ConfigError as error:
                self._metrics.reload_failed()
                return faulty(error.report)
            except StoreError as error:
                return self._keep_old([f"dead_letter: {error}"])
            except Exception:  # noqa: BLE001 - whatever it is, the old configuration serves on
                _log.exception("reload failed inside the proxy")
                self._drop_unused_series()
                return self._keep_old(["the configuration could not be applied, see the log"])
            before = self._loaded
            self._put_in_force(built)
            self._metrics.reload_succeeded(self._clock.wall())
            # A worker's supervisor says what changed, for all workers.
            return Reloaded() if self._is_worker else reloaded(before, loaded)

    def _keep_old(self, lines: list[str]) -> Reloaded:
        self._metrics.reload_failed()
        # A worker's supervisor logs it.
        return Reloaded(lines) if self._is_worker else refused(lines)


class _UnstoredResultMemory:
    """The part of ``limits.replay_memory`` for results that the store could not take."""

    def __init__(self, memory: Callable[[], FairMemory], limit: Callable[[], int]) -> None:
        self._memory = memory
        self._limit = limit

    def take(self, size: int) -> bool:
        """Count *size* more bytes as kept; False if there is no memory for them."""
        return self._memory().take(_UNREPORTED, size, self._limit())

    def give_back(self, size: int) -> None:
        """Count *size* bytes as kept no longer."""
        self._memory().give_back(_UNREPORTED, size)


@dataclass(frozen=True, slots=True)
class _Built:
    """What a configuration would be served with, to be put in force or thrown away."""

    loaded: Loaded
    generation: Generation
    router: Router
