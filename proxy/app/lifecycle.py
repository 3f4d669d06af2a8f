"""Wires configuration, routes, upstreams, listeners and metrics; starts, reloads, drains.

The only module that knows all the others. What serves at any moment is one
immutable :class:`~proxy.server.router.Router`; a reload builds another and swaps it.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TextIO

from proxy import __version__
from proxy.admin.listener import AdminListener
from proxy.admin.operations import StoreSilent
from proxy.app.generation import Contexts, Generation, GenerationBuilder
from proxy.config import ConfigError, Fault, Loaded
from proxy.core.clock import Clock, SystemClock
from proxy.core.recorders import StoreRecorder
from proxy.http.fields import RawHeaders
from proxy.net.write_coalescer import WriteCoalescer
from proxy.observe.logs import process_log
from proxy.observe.logs.access_log import AccessLog
from proxy.observe.logs.line_writer import LineWriter
from proxy.observe.metrics.process_snapshot import AddressState, ProcessSnapshot
from proxy.observe.metrics.recorders import Metrics, RouteRecorder
from proxy.observe.notable import hook
from proxy.observe.recent import Recent
from proxy.pipeline.idempotency.in_flight import InFlightKey, InFlightKeys
from proxy.pipeline.retry_waits import RetryWaits
from proxy.policy.dead_letter import DeadLetter, DeadLetterSummary, Obstacle, Replayed
from proxy.policy.failure_category import transient_statuses
from proxy.policy.idempotency.record import RecordState, Released, Shown
from proxy.policy.settings import (
    MemorySettings,
    RedisSettings,
    RouteSettings,
    Settings,
    SqliteSettings,
    StoreSettings,
)
from proxy.replay.service import ReplayService
from proxy.server.aiohttp_adapter.parser import parser_name
from proxy.server.body.replay_memory import FairMemory
from proxy.server.listener import Listener
from proxy.server.router import Router
from proxy.stores import IdempotencyStore, LimiterStore, StoreError
from proxy.stores.dead_letters import DeadLetterStore
from proxy.stores.memory import MemoryIdempotencyStore, MemoryLimiterStore

if TYPE_CHECKING:
    from proxy.stores.redis import RedisStore
    from proxy.stores.sqlite import SqliteStore

_log = logging.getLogger("holdfast")

_UNTOLD = "(results that the store could not take)"
"""The caller in whose name they are kept: no address looks like this."""
_STDOUT = 1
"""The descriptor itself: there is no ``sys.stdout`` where it was closed."""


_IDS_IN_LINE = 50
"""Dead letters that one line of the log names: a line is to be readable, and not cut off."""


class CannotStart(Exception):
    """Why nothing is served; the text says what to do about it."""


@dataclass(frozen=True, slots=True)
class Membership:
    """What makes a proxy one of several workers: others listen, show and speak for it."""

    on_left: Callable[[], object]
    """Called when a connection that it took up has ended."""
    log_turns: int
    """The file whose lock is held while lines are written to the log that all share."""


class App:
    """One running proxy. Also what the admin listener may see and do of it."""

    def __init__(
        self,
        load: Callable[[], Loaded],
        clock: Clock | None = None,
        log_fd: int | None = None,
        membership: Membership | None = None,
    ) -> None:
        """*load* reads the configuration, now and at every reload.

        With a *membership* it opens no listener, and says nothing of what is the same for all
        workers; connections come by :meth:`take_up`.
        """
        self._load = load
        self._is_worker = membership is not None
        self._estate = Generation()
        self._loaded, contexts = self._prepare()
        self._clock: Clock = clock or SystemClock()
        turns = None if membership is None else membership.log_turns
        self._lines = LineWriter(_STDOUT if log_fd is None else log_fd, turns)
        self._access_log = AccessLog(self._lines, self._clock)
        self._recent = Recent(self._clock)
        self._reloading = asyncio.Lock()
        self._state = "starting"
        self._started = self._clock.monotonic()
        admin = None if self._is_worker else self._loaded.settings.admin
        self._admin = None if admin is None else AdminListener(self, admin)
        self._metrics = Metrics(
            version=__version__,
            parser=parser_name(),
            loaded_at=self._clock.wall(),
            lost_lines=lambda: self._lines.dropped,
            budgets=lambda: self._estate.budgets_left(self._clock.monotonic()),
            breakers=lambda: self._estate.breaker_states(self._clock.monotonic()),
            throttles=lambda: self._estate.throttle_states(self._clock.monotonic()),
            store_state=lambda: None if self._shared is None else self._shared.state,
            transient=lambda: _transient(self.settings),
            letter_counts=lambda: self._letters.counts,
            letters_counted=lambda: self._letters.counted,
        )
        self._letters = DeadLetterStore(self.settings.state_dir, self._clock, self._metrics)
        self._shared: RedisStore | SqliteStore | None = None
        self._store_recorder: StoreRecorder | None = None
        permits, claims = self._open_store(self._loaded.settings.store)
        coalescer = WriteCoalescer()
        self._pauses = RetryWaits()
        room = _ReplayRoom(
            lambda: self._listener.server.replay_memory, lambda: self.settings.limits.replay_memory
        )
        self._flights = InFlightKeys(claims, self._clock, room, self._store_recorder)
        self._builder = GenerationBuilder(
            self._clock,
            coalescer,
            self._pauses,
            permits.permits,
            permits.digest_key,
            self._flights,
            self._letters,
        )
        self._replays = ReplayService(self._letters, self._clock, self._metrics.replayed)
        built = self._build(self._loaded, contexts)
        self._listener = Listener(self.settings.listen, built.router, self._clock, coalescer)
        if membership is not None:
            self._listener.server.on_left = membership.on_left
        self._put_in_force(built)

    def _open_store(self, settings: StoreSettings) -> tuple[LimiterStore, IdempotencyStore]:
        """Where limits and keys are kept; a connection is made at the start."""
        # Imported only now: to load redis's library takes a fifth of the time to start.
        match settings:
            case RedisSettings():
                from proxy.stores import redis  # noqa: PLC0415 - see above

                recorder = self._store_recorder = self._metrics.store(redis.OPERATIONS)
                keeps_keys = any(_heeds_keys(route) for route in self.settings.routes)
                self._shared = redis.RedisStore(
                    settings, self._clock, recorder, keeps_keys=keeps_keys
                )
                return self._shared, self._shared.claims
            case SqliteSettings():
                from proxy.stores import sqlite  # noqa: PLC0415 - see above

                recorder = self._store_recorder = self._metrics.store(sqlite.OPERATIONS)
                self._shared = sqlite.SqliteStore(settings, self._clock, recorder)
                return MemoryLimiterStore(self._clock), self._shared
            case MemorySettings():
                evicted = self._metrics.evicted
                return MemoryLimiterStore(self._clock), MemoryIdempotencyStore(
                    settings, self._clock, evicted
                )

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
        """Open the store and every listener.

        Raises OSError if a listener cannot be opened and :class:`CannotStart` if the store
        cannot; none is open then.
        """
        try:
            if self._admin is not None:
                await self._admin.start()
                _log.info("admin on %s", ", ".join(self.admin_bound))
            if self._shared is not None:
                await self._shared.start()
            await self._open_letters(self.settings)
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
        self._say(self._loaded.warnings)

    async def take_up(self, sock: socket.socket, which: int) -> None:
        """Serve a connection that was accepted elsewhere, on the address number *which*."""
        await self._listener.take_up(sock, which)

    def _say(self, warnings: Sequence[Fault]) -> None:
        for warning in warnings:
            _log.warning("%s", warning)

    async def _open_letters(self, settings: Settings) -> None:
        """Open the dead letters where a route keeps some, or once did.

        Raises StoreError if they are needed and cannot be had.
        """
        if self._letters.is_open:
            return
        if any(_keeps_letters(route) for route in settings.routes):
            await self._letters.start()
        elif self._letters.has_file:
            try:
                await self._letters.start()
            except StoreError as error:
                _log.warning("older dead letters are out of reach: %s", error)

    async def drain(self) -> None:
        """Stop taking requests, let those under way end, and close everything."""
        self._state = "draining"
        if not self._is_worker:
            _log.info("draining")
        await asyncio.sleep(self.settings.drain_delay)
        self._pauses.end()
        patience = self.settings.drain_timeout
        began = self._clock.monotonic()
        await self._listener.drain(patience)
        await self._replays.drain(max(began + patience - self._clock.monotonic(), 0.0))
        # Those whose clients have left, but not their keys.
        await self._flights.drain(max(began + patience - self._clock.monotonic(), 0.0))
        await self._close()

    async def stop_at_once(self) -> None:
        """End every request where it is, and close everything."""
        self._state = "draining"
        await self._listener.drain(0)
        await self._replays.drain(0)
        await self._flights.drain(0)
        await self._close()

    async def _close(self) -> None:
        self._estate.close()
        if self._shared is not None:
            await self._shared.close()
        await self._letters.close()
        if self._admin is not None:
            await self._admin.close()
        self._lines.close()
        # Transports close in callbacks of their own: let these run.
        await asyncio.sleep(0)

    # Building what is served.

    def _prepare(self) -> tuple[Loaded, Contexts]:
        """Read the configuration, and all files that it names; this may take its time."""
        loaded = self._load()
        return loaded, self._estate.contexts(loaded.settings)

    def _build(self, loaded: Loaded, contexts: Contexts) -> "_Built":
        """All that serves a configuration, keeping what did not change. Touches nothing else."""
        settings = loaded.settings
        log = hook(settings.access_log, self._access_log, self._recent)

        def recorder(route: RouteSettings) -> RouteRecorder:
            retries = _makes_verdicts(route)
            keys = _heeds_keys(route)
            return self._metrics.route(
                route.name,
                _upstreams_of(route),
                log,
                retries=retries,
                keys=keys,
                letters=_keeps_letters(route),
            )

        generation = self._builder.build(
            settings, contexts, self._estate, recorder, self._metrics.throttle
        )
        router = Router(settings, generation.routes, self._metrics.unmatched(log))
        return _Built(loaded, generation, router)

    def _put_in_force(self, built: "_Built") -> None:
        """Serve what was built from now on. Nothing in here can fail."""
        old, self._estate = self._estate, built.generation
        self._loaded = built.loaded
        self._listener.server.router = built.router
        built.generation.succeed(old)
        self._drop_unused_series()

    def _drop_unused_series(self) -> None:
        """Show the metrics of what is configured, and of nothing else."""
        routes = self.settings.routes
        self._metrics.keep_only(
            routes=[route.name for route in routes],
            retrying=[route.name for route in routes if _makes_verdicts(route)],
            upstreams=[upstream.name for upstream in self.settings.upstreams],
            throttles=self._estate.throttles.keys(),
            keyed=[route.name for route in routes if _heeds_keys(route)],
            lettered=[route.name for route in routes if _keeps_letters(route)],
        )

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
            **self.reading().told(),
        }

    async def tell_status(self) -> dict[str, object]:
        """The same."""
        return self.status()

    def reading(self) -> ProcessSnapshot:
        """What was counted and what goes on, at this moment."""
        now = self._clock.monotonic()
        return ProcessSnapshot(
            collected=self._metrics.snapshot(),
            connections=self._listener.server.open_connections,
            keys_in_flight=len(self._flights),
            keys_waiting=self._flights.waiting,
            keys_known=None if self._flights.immediate is None else self._flights.immediate.known(),
            addresses={
                upstream.settings.name: [
                    AddressState(
                        address=pool.label,
                        open=pool.open_connections,
                        idle=pool.idle_connections,
                        failing=pool.just_failed(now),
                        breaker=None if pool.breaker is None else pool.breaker.state(now),
                    )
                    for pool in upstream.endpoints.pools
                ]
                for upstream in self._estate.upstreams.values()
            },
        )

    async def find_attempts(self, request_id: str) -> list[dict[str, object]]:
        """The recent notable requests that had this id, with each of their attempts."""
        return self._recent.of(request_id)

    def config(self) -> dict[str, object]:
        """The configuration in force, secrets masked."""
        return self._loaded.effective

    async def reload(self) -> tuple[bool, Sequence[str]]:
        """Read the configuration again and put it in force, or leave all as it is."""
        async with self._reloading:
            try:
                # Off the loop: a large file must not hold up anybody's request.
                loaded, contexts = await asyncio.to_thread(self._prepare)
                changed = needs_restart(self.settings, loaded.settings)
                if changed:
                    return self._keep_old(changed)
                await self._open_letters(loaded.settings)
                built = self._build(loaded, contexts)
                # The last that can fail, because it is in force at once.
                self._listener.read_certificates_again()
            except ConfigError as error:
                return self._keep_old([str(finding) for finding in error.report.diagnostics])
            except StoreError as error:
                return self._keep_old([f"dead_letter: {error}"])
            except Exception:  # noqa: BLE001 - whatever it is, the old configuration serves on
                _log.exception("reload failed inside the proxy")
                self._drop_unused_series()
                return self._keep_old(["the configuration could not be applied, see the log"])
            self._put_in_force(built)
            self._metrics.reload_succeeded(self._clock.wall())
            if not self._is_worker:
                _log.info("configuration reloaded")
            self._say(loaded.warnings)
            return True, [str(warning) for warning in loaded.warnings]

    async def show_key(self, name: str) -> Shown | None:
        """What is known of the key whose record has that name."""
        with _store_asked_for(name):
            return await self._flights.store.show(name)

    async def release_key(self, name: str, *, force: bool) -> Released:
        """Forget a key, unless a request that runs has it; with *force* that one loses it."""
        claims = self._flights.store
        with _store_asked_for(name):
            # Between the two it may change hands: whoever was faster is seen in the next round.
            while (shown := await claims.show(name)) is not None:
                flight = self._flights.get(name)
                if flight is not None:
                    # Whatever became of its lease: it runs here, and others wait for it.
                    shown = replace(shown, state=RecordState.IN_FLIGHT)
                elif await claims.drop(name):
                    _log.info("the key %s was released by hand, it was %s", name, shown.state)
                    return Released(shown, None)
                elif shown.state is not RecordState.IN_FLIGHT:
                    continue
                if not force:
                    return Released(shown, shown)
                return Released(shown, await self._take_key_away(name, flight))
            return Released(None, None)

    async def _take_key_away(self, name: str, flight: InFlightKey | None) -> Shown | None:
        """Let the request of a key go on without it: what is known of the key now."""
        if flight is None:
            await self._flights.store.revoke(name)
        else:
            await self._flights.end(flight)
        now = await self._flights.store.show(name)
        if now is not None and now.state is RecordState.IN_FLIGHT:
            raise StoreError("it was not told, or another request has the key already")
        state = "free" if now is None else now.state
        _log.warning(
            "the key %s was taken from its request by hand, which may still run: it is %s now",
            name,
            state,
        )
        return now

    async def page_of_letters(
        self, route: str | None, after: str, limit: int, *, newest: bool
    ) -> list[DeadLetterSummary]:
        """Some dead letters, in their order."""
        with _letters_asked_for():
            return await self._letters.page(route, after=after, limit=limit, newest=newest)

    async def find_letter(self, letter: str) -> DeadLetter | None:
        """All of one dead letter."""
        with _letters_asked_for():
            return await self._letters.find(letter)

    async def drop_letter(self, letter: str) -> bool | None:
        """Delete it; False if it is being sent again, None if there is none."""
        with _letters_asked_for():
            dropped = await self._letters.drop(letter)
        if dropped:
            _log.info("dead letter %s was dropped by hand", letter)
        return dropped

    async def drop_letters(self, route: str | None, until: str) -> int:
        """Delete all of a route, or all, up to *until*, but for those that are being sent again."""
        with _letters_asked_for():
            dropped = await self._letters.drop_all(route, until, _say_dropped)
        of = "all routes" if route is None else f"route {route}"
        letters = "1 dead letter" if dropped == 1 else f"{dropped} dead letters"
        _log.info("dropped by hand: %s of %s", letters, of)
        return dropped

    async def letter_obstacle(
        self, letter: str, given: RawHeaders, *, force: bool
    ) -> Obstacle | None:
        """Why it would not be sent again now; None if it would."""
        router = self._listener.server.router
        with _letters_asked_for():
            return await self._replays.obstacle(
                letter, given, router.named, router.settings, force=force
            )

    async def replay_letter(
        self, letter: str, given: RawHeaders, *, force: bool
    ) -> Replayed | Obstacle:
        """Send it again through its route, as that is now."""
        router = self._listener.server.router
        with _letters_asked_for():
            return await self._replays.replay(
                letter, given, router.named, router.settings, force=force
            )

    def _keep_old(self, lines: list[str]) -> tuple[bool, list[str]]:
        self._metrics.reload_failed()
        if not self._is_worker:
            for line in lines:
                _log.error("reload refused: %s", line)
        return False, lines


class _ReplayRoom:
    """The part of ``limits.replay_memory`` for results that the store could not take."""

    def __init__(self, memory: Callable[[], FairMemory], limit: Callable[[], int]) -> None:
        self._memory = memory
        self._limit = limit

    def take(self, size: int) -> bool:
        """Count *size* more bytes as kept; False if there is no room for them."""
        return self._memory().take(_UNTOLD, size, self._limit())

    def give_back(self, size: int) -> None:
        """Count *size* bytes as kept no longer."""
        self._memory().give_back(_UNTOLD, size)


@dataclass(frozen=True, slots=True)
class _Built:
    """What a configuration serves with, to be put in force or thrown away."""

    loaded: Loaded
    generation: Generation
    router: Router


@contextmanager
def _store_asked_for(name: str) -> Iterator[None]:
    """Tell the admin listener of a store that does not answer, and the log why."""
    try:
        yield
    except StoreError as error:
        _log.warning("the store does not tell of the key %s (%s)", name, error)
        raise StoreSilent from error


@contextmanager
def _letters_asked_for() -> Iterator[None]:
    """The same for the file of the dead letters."""
    try:
        yield
    except StoreError as error:
        _log.warning("the dead letters cannot be reached (%s)", error)
        raise StoreSilent from error


def _say_dropped(letters: Sequence[str]) -> None:
    """Name those that are gone for good: somebody may ask for one of them."""
    for start in range(0, len(letters), _IDS_IN_LINE):
        ids = " ".join(letters[start : start + _IDS_IN_LINE])
        _log.info("dead letters dropped by hand: %s", ids)


def _upstreams_of(route: RouteSettings) -> list[str]:
    """Its own, and the one that stands in for it."""
    other = "" if route.fallback is None else route.fallback.upstream
    return [route.upstream, other] if other else [route.upstream]


def _transient(settings: Settings) -> dict[tuple[str, str], frozenset[int]]:
    """By route and upstream: the statuses that may pass by themselves."""
    upstreams = {upstream.name: upstream for upstream in settings.upstreams}
    return {
        (route.name, name): transient_statuses(route.retry, upstreams[name])
        for route in settings.routes
        for name in _upstreams_of(route)
    }


def _makes_verdicts(route: RouteSettings) -> bool:
    """Whether its attempts are judged at all."""
    return route.retry is not None or route.fallback is not None


def _heeds_keys(route: RouteSettings) -> bool:
    """Whether requests with an idempotency key run once there."""
    return route.idempotency is not None


def _keeps_letters(route: RouteSettings) -> bool:
    """Whether requests that failed for good are kept there."""
    return route.dead_letter is not None


def needs_restart(old: Settings, new: Settings) -> list[str]:
    """What a reload cannot apply, one line each."""
    pairs = (
        ("listen", old.listen, new.listen),
        ("admin", old.admin, new.admin),
        ("workers", old.workers, new.workers),
        ("store", old.store, new.store),
        ("state_dir", old.state_dir, new.state_dir),
    )
    return [
        f"{key}: changed, and that needs a restart; write it as it was to reload the rest"
        for key, before, after in pairs
        if before != after
    ]


def parser() -> str:
    """The HTTP parser in use."""
    return parser_name()


def unfit_to_serve() -> str | None:
    """Why this installation must not serve; None if it may."""
    if parser_name() == "c":
        return None
    return (
        "aiohttp's compiled request parser is missing, and its fallback has let requests be"
        " smuggled: install aiohttp's binary wheel and unset AIOHTTP_NO_EXTENSIONS"
    )


def log_to(stream: TextIO, worker: int | None = None) -> None:
    """Send what the process says about itself to *stream*; one *worker* of several says which."""
    process_log.configure(stream, worker)
