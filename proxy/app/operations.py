"""What the admin listener may see and do of a running app: all operations of one process."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from proxy import __version__
from proxy.admin.declaration import StoreSilent
from proxy.admin.process import Reloaded
from proxy.config import Loaded
from proxy.delivery.service import DeliveryService
from proxy.http.fields import RawHeaders
from proxy.observe.history import CountedWindow
from proxy.observe.metrics.exposition import expose
from proxy.observe.metrics.snapshot import ProcessSnapshot
from proxy.observe.recent import Recent
from proxy.observe.status import process_status
from proxy.pipeline.idempotency.in_flight import InFlightKey, InFlightKeys
from proxy.policy.dead_letter import DeadLetter, DeadLetterSummary, Obstacle, Replayed
from proxy.policy.delivery.state import Delivery, DeliveryRun, TransitionRefusal
from proxy.policy.delivery.words import DeliveryState
from proxy.policy.explain_command import ExplainContext
from proxy.policy.idempotency.record import KeyFilter, KeyPage, RecordState, Released, Shown
from proxy.policy.settings import Settings
from proxy.replay.service import ReplayRequest, ReplayService
from proxy.server.router import Router
from proxy.stores import StoreError
from proxy.stores.dead_letters import DeadLetterStore
from proxy.stores.deliveries.ports import Gone

_log = logging.getLogger("holdfast")

_IDS_IN_LINE = 50
"""Dead letters that one line of the log names: a line is to be readable, and not cut off."""


class RunningApp(Protocol):
    """The part of an app's life that its operator can see, and the one thing to set off."""

    @property
    def loaded(self) -> Loaded:
        """The configuration in force."""

    @property
    def state(self) -> str:
        """``starting``, ``ready`` or ``draining``."""

    @property
    def uptime(self) -> float:
        """Seconds since the start."""

    def snapshot(self) -> ProcessSnapshot:
        """Return what was counted and what goes on at this moment."""

    def last_minute(self, snapshot: ProcessSnapshot) -> CountedWindow:
        """Return what was counted in the last minute, up to *snapshot*, which was just taken."""

    async def reload(self) -> Reloaded:
        """Read the configuration again and put it in force, or leave all as it is."""


class AppOperations:
    """Implements :class:`proxy.admin.operations.Operations` for one process."""

    def __init__(
        self,
        app: RunningApp,
        *,
        recent: Recent,
        in_flight_keys: InFlightKeys,
        dead_letters: DeadLetterStore,
        replays: ReplayService,
        deliveries: DeliveryService,
        router: Callable[[], Router],
    ) -> None:
        """*router* gives the routes in force, by which a dead letter is sent again."""
        self._app = app
        self._recent = recent
        self._in_flight_keys = in_flight_keys
        self._dead_letters = dead_letters
        self._replays = replays
        self._deliveries = deliveries
        self._router = router

    # The process.

    def token(self) -> str | None:
        """Return the admin token in force."""
        return self._app.loaded.settings.admin_token

    def not_ready(self) -> str | None:
        """Say why no requests are taken; None if they are."""
        return not_ready(self._app.state, self._app.loaded.settings)

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics, in the format that *accept* asks for."""
        return await expose(self._app.snapshot(), accept)

    async def status(self) -> dict[str, object]:
        """Return what goes on, for a person."""
        snapshot = self._app.snapshot()
        return {
            "version": __version__,
            "state": self._app.state,
            "uptime_seconds": round(self._app.uptime, 3),
            **process_status(snapshot, self._app.last_minute(snapshot), self._app.loaded.store_url),
        }

    async def find_attempts(self, request_id: str) -> list[dict[str, object]]:
        """Return the recent notable requests with this id, and each of their attempts."""
        return self._recent.of(request_id, self.explain_context())

    def config(self) -> dict[str, object]:
        """Return the configuration in force, secrets masked."""
        return self._app.loaded.effective

    async def reload(self) -> Reloaded:
        """Read the configuration again and put it in force, or leave all as it is."""
        return await self._app.reload()

    # Idempotency keys.

    async def show_key(self, name: str) -> Shown | None:
        """Return what is known of the key whose record is called *name*."""
        with _asking_store_for(f"key {name}"):
            return await self._in_flight_keys.store.show(name)

    async def list_keys(self, wanted: KeyFilter, after: str) -> KeyPage | None:
        """Return a page of the records that are *wanted*."""
        with _asking_store_for("list of keys"):
            return await self._in_flight_keys.store.page(wanted, after)

    async def release_key(self, name: str, *, force: bool) -> Released:
        """Forget a key, unless a running request owns it; with *force* that request loses it."""
        store = self._in_flight_keys.store
        with _asking_store_for(f"key {name}"):
            # The key may change its owner between two steps: the next round sees the new one.
            while (shown := await store.show(name)) is not None:
                flight = self._in_flight_keys.get(name)
                if flight is not None:
                    # Whatever became of its lease: the request runs here, and others wait for it.
                    shown = replace(shown, state=RecordState.IN_FLIGHT)
                elif await store.drop(name):
                    _log.info("the key %s was released by hand, it was %s", name, shown.state)
                    return Released(shown, None)
                elif shown.state is not RecordState.IN_FLIGHT:
                    continue
                if not force:
                    return Released(shown, shown)
                return Released(shown, await self._take_key_away(name, flight))
            return Released(None, None)

    async def _take_key_away(self, name: str, flight: InFlightKey | None) -> Shown | None:
        """Let the request of a key go on without it; return what is known of the key now."""
        if flight is None:
            await self._in_flight_keys.store.revoke(name)
        else:
            await self._in_flight_keys.end(flight)
        now = await self._in_flight_keys.store.show(name)
        if now is not None and now.state is RecordState.IN_FLIGHT:
            raise StoreError("it was not told, or another request has the key already")
        state = "free" if now is None else now.state
        _log.warning(
            "the key %s was taken from its request by hand, which may still run: it is %s now",
            name,
            state,
        )
        return now

    # Dead letters.

    def explain_context(self) -> ExplainContext:
        """Return the configuration in force, as far as requests are explained by it."""
        return self._app.loaded.explain_context()

    async def list_dead_letters(
        self, route: str | None, after: str, limit: int, *, newest: bool
    ) -> list[DeadLetterSummary]:
        """Return one page of dead letters, in their order."""
        with _asking_dead_letters():
            return await self._dead_letters.page(route, after=after, limit=limit, newest=newest)

    async def find_dead_letter(self, name: str) -> DeadLetter | None:
        """Return all of one dead letter; None if there is none."""
        with _asking_dead_letters():
            return await self._dead_letters.find(name)

    async def drop_dead_letter(self, name: str) -> bool | None:
        """Delete a dead letter; False if it is being sent again, None if there is none."""
        with _asking_dead_letters():
            dropped = await self._dead_letters.drop(name)
        if dropped:
            _log.info("dead letter %s was dropped by hand", name)
        return dropped

    async def drop_dead_letters(self, route: str | None, until: str) -> int:
        """Delete those of a route, or all, up to *until*, except those being sent again."""
        with _asking_dead_letters():
            dropped = await self._dead_letters.drop_all(route, until, _log_dropped)
        of = "all routes" if route is None else f"route {route}"
        number = "1 dead letter" if dropped == 1 else f"{dropped} dead letters"
        _log.info("dropped by hand: %s of %s", number, of)
        return dropped

    async def replay_obstacle(
        self, name: str, given: RawHeaders, *, force: bool
    ) -> Obstacle | RecordState | None:
        """Say why a dead letter would not be sent again now; None if it would."""
        with _asking_dead_letters():
            found = await self._replays.prepare(self._replay_request(name, given, force=force))
        if isinstance(found, Obstacle):
            return found
        if not found.known_record:
            return None
        try:
            shown = await self._in_flight_keys.store.show(found.known_record)
        except StoreError:
            return None  # whether it answers when the letter is sent, is open
        return None if shown is None else shown.state

    async def replay_dead_letter(
        self, name: str, given: RawHeaders, *, force: bool
    ) -> Replayed | Obstacle:
        """Send a dead letter again through its route, as the route is now."""
        with _asking_dead_letters():
            return await self._replays.replay(self._replay_request(name, given, force=force))

    # Deliveries.

    async def list_deliveries(
        self,
        route: str | None,
        state: DeliveryState | None,
        reason: str | None,
        after: str,
        limit: int,
        *,
        newest: bool,
    ) -> tuple[Sequence[Delivery], str]:
        """Return one page of deliveries, and where the next one begins."""
        with _asking_deliveries():
            page = await self._deliveries.page(
                route=route, state=state, reason=reason, after=after, limit=limit, newest=newest
            )
        return page.deliveries, page.next

    async def find_delivery(self, name: str) -> tuple[Delivery, Sequence[DeliveryRun]] | None:
        """Return a delivery, without its body, and its tries; None if there is none."""
        with _asking_deliveries():
            shown = await self._deliveries.find(name)
        return None if isinstance(shown, Gone) else (shown.delivery, shown.runs)

    async def retry_obstacle(self, name: str, *, force: bool) -> TransitionRefusal | None:
        """Say why a delivery would not be sent now; None if it would."""
        with _asking_deliveries():
            return await self._deliveries.retry_obstacle(name, force=force)

    async def retry_delivery(
        self, name: str, *, force: bool, by: str
    ) -> Delivery | TransitionRefusal:
        """Send a delivery now, or say why not."""
        with _asking_deliveries():
            return await self._deliveries.retry(name, force=force, by=by)

    async def cancel_delivery(self, name: str, *, by: str) -> Delivery | TransitionRefusal:
        """End a delivery that is not being sent, or say why not."""
        with _asking_deliveries():
            return await self._deliveries.cancel(name, by=by)

    def _replay_request(self, name: str, given: RawHeaders, *, force: bool) -> ReplayRequest:
        router = self._router()
        return ReplayRequest(name, given, router.named, router.settings, force)


def not_ready(state: str, settings: Settings) -> str | None:
    """Say why a process in that *state* is not to be sent requests; None if it is."""
    if state != "ready":
        return state
    return None if settings.ready else "switched_off"


@contextmanager
def _asking_store_for(what: str) -> Iterator[None]:
    """Log why the store does not answer about *what*, and raise StoreSilent."""
    try:
        yield
    except StoreError as error:
        _log.warning("the store does not answer about the %s (%s)", what, error)
        raise StoreSilent from error


@contextmanager
def _asking_dead_letters() -> Iterator[None]:
    """Log why the file of the dead letters does not answer, and raise StoreSilent."""
    try:
        yield
    except StoreError as error:
        _log.warning("the dead letters cannot be reached (%s)", error)
        raise StoreSilent from error


@contextmanager
def _asking_deliveries() -> Iterator[None]:
    """Log why the file of the deliveries does not answer, and raise StoreSilent."""
    try:
        yield
    except StoreError as error:
        _log.warning("the deliveries cannot be reached (%s)", error)
        raise StoreSilent from error


def _log_dropped(names: Sequence[str]) -> None:
    """Name in the log the dead letters that are gone for good: an operator may look for one."""
    for start in range(0, len(names), _IDS_IN_LINE):
        ids = " ".join(names[start : start + _IDS_IN_LINE])
        _log.info("dead letters dropped by hand: %s", ids)
