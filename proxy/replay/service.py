"""Replays dead letters: sends them again because an operator asked for it.

::

    marked on disk ──► the pipeline of its route, as any request ──► succeeded: it is deleted
                                                                  └► else it stays, with one more
                                                                     run on record

Nothing is sent before the mark is on disk. A process that dies in between leaves a dead letter
that is *uncertain*, which is not sent again by accident.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from proxy.core.clock import Clock
from proxy.core.ids import new_owner_token
from proxy.core.ports import Refused
from proxy.core.recorders import Meter
from proxy.core.route import Route
from proxy.http.fields import RawHeaders
from proxy.http.refusal import Refusal, RefusalReason
from proxy.pipeline.dead_letters import attempt_records
from proxy.policy.attempt import FIRST_FAILURE
from proxy.policy.dead_letter import DeadLetter, Obstacle, Replayed, ReplayResult, ReplayRun
from proxy.policy.reasons import KeyResult
from proxy.policy.repeatable import may_have_run
from proxy.policy.settings import Settings
from proxy.replay.exchange import ReplayExchange, read_dead_letter
from proxy.stores import StoreError
from proxy.stores.dead_letters import DeadLetterStore

_log = logging.getLogger("holdfast")

_OUR_FAULT = Refusal(RefusalReason.UNKNOWN, "The letter could not be sent; the log says why.")
_HAD_RESULT = frozenset({KeyResult.REPLAYED, KeyResult.JOINED})
"""What a key means whose request has run: its result is the answer."""
_RECORD_TIMES = 3
"""How often the result of a replay is written, if the store does not answer."""

_ANSWERED = "The upstream answered {status}: the letter stays. Drop it if that is its answer."
_HAS_RESULT = (
    "Its key has a result already ({status}), so nothing was sent: the letter stays. Drop it if "
    "that is its answer."
)
_CUT_SHORT = "The response broke off: it may have run. Find out before you send it again."
_FELL_BACK = "Only the fallback answered: the letter stays."
_INTERRUPTED = "Holdfast was told to end: look at the letter again once it runs."


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What an operator asks for: which dead letter is sent again, and how."""

    dead_letter_id: str
    given: RawHeaders
    """Header fields besides those that are kept."""
    find: Callable[[str], Route | None]
    """Returns the route of a name."""
    settings: Settings
    force: bool


class ReplayService:
    """All dead letters that this process is replaying."""

    def __init__(self, store: DeadLetterStore, clock: Clock, meter: Meter) -> None:
        self._store = store
        self._clock = clock
        self._meter = meter
        self._tasks: dict[asyncio.Task[Replayed | Obstacle], ReplayExchange | None] = {}
        self._is_over = False

    def __len__(self) -> int:
        return len(self._tasks)

    async def replay(self, request: ReplayRequest) -> Replayed | Obstacle:
        """Replay a dead letter, or say why not.

        The replay goes on if the operator's request is cancelled. Raises StoreError.
        """
        if self._is_over:
            return Obstacle.DRAINING
        task = asyncio.get_running_loop().create_task(self._mark_and_send(request))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        await asyncio.wait([task])
        return Obstacle.DRAINING if task.cancelled() else task.result()

    async def prepare(self, request: ReplayRequest) -> ReplayExchange | Obstacle:
        """Return what :meth:`replay` would send now, or why it would not. Raises StoreError."""
        dead_letter = await self._store.find(request.dead_letter_id)
        if dead_letter is None:
            return Obstacle.UNKNOWN
        obstacle = dead_letter.summary.obstacle(force=request.force)
        if obstacle is not None or self._is_over:
            return obstacle or Obstacle.DRAINING
        return self._exchange(dead_letter, request)

    async def drain(self, grace: float) -> None:
        """Begin no replay any more; cancel those still under way after *grace* seconds."""
        self._is_over = True
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=grace)
        for task, exchange in tuple(self._tasks.items()):
            if exchange is not None:
                exchange.is_cut = True
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _mark_and_send(self, request: ReplayRequest) -> Replayed | Obstacle:
        dead_letter_id, ticket = request.dead_letter_id, new_owner_token()
        dead_letter = await self._store.begin_replay(dead_letter_id, ticket, force=request.force)
        if isinstance(dead_letter, Obstacle):
            return dead_letter
        exchange = self._exchange(dead_letter, request)
        if isinstance(exchange, Obstacle):
            await self._store.end_replay(
                dead_letter_id, ticket, None, may_have_run=False, gone=False
            )
            return exchange
        replayed = await self._send(exchange, dead_letter, request.settings)
        await self._record_result(exchange, ticket, replayed)
        self._meter.count(
            "holdfast_dead_letter_replays_total", dead_letter.summary.route, replayed.result
        )
        if replayed.attempts:
            _log.info("dead letter %s was sent again: %s", dead_letter_id, replayed.result)
        elif replayed.result is ReplayResult.ALREADY_DONE:
            _log.info(
                "dead letter %s was not sent: its key has a result already (%s), and it is gone",
                dead_letter_id,
                replayed.status,
            )
        else:
            _log.info("dead letter %s was not sent: %s", dead_letter_id, replayed.result)
        return replayed

    def _exchange(
        self, dead_letter: DeadLetter, request: ReplayRequest
    ) -> ReplayExchange | Obstacle:
        """Return the exchange that is sent for *dead_letter*, or why there is none."""
        route = request.find(dead_letter.summary.route)
        if route is None:
            return Obstacle.NO_ROUTE
        given, settings = request.given, request.settings
        exchange = read_dead_letter(dead_letter, given, route, settings, self._clock)
        return exchange if isinstance(exchange, ReplayExchange) else Obstacle.BAD_HEADERS

    async def _send(
        self, exchange: ReplayExchange, dead_letter: DeadLetter, settings: Settings
    ) -> Replayed:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        self._tasks[task] = exchange
        route = exchange.route
        is_cancelled = False
        route.recorder.started()
        try:
            refusal = await route.handle(exchange)
        except Refused as refused:
            refusal = refused.refusal
        except asyncio.CancelledError:
            is_cancelled, refusal = True, None
        except Exception:  # noqa: BLE001 - our own fault is an outcome like the others
            _log.exception("dead letter %s failed inside the proxy", dead_letter.id)
            refusal = _OUR_FAULT
        finally:
            self._tasks[task] = None
        if refusal is not None:
            exchange.answer(refusal)
        elif not exchange.code:
            exchange.code = 499
        exchange.finish()
        return _result_of(exchange, settings, is_cancelled=is_cancelled)

    async def _record_result(
        self, exchange: ReplayExchange, ticket: str, replayed: Replayed
    ) -> None:
        """Write the result to disk; a replay without one is uncertain after the next start."""
        attempts = exchange.attempts
        run = None
        if attempts:
            run = ReplayRun(
                self._clock.wall(), replayed.result, attempt_records(attempts, self._clock)
            )
        gone = replayed.result.is_good
        for _ in range(_RECORD_TIMES):
            with suppress(StoreError):
                await self._store.end_replay(
                    replayed.dead_letter_id,
                    ticket,
                    run,
                    may_have_run=replayed.may_have_run,
                    gone=gone,
                )
                return
        _log.error(
            "how the replay of dead letter %s ended (%s) cannot be written down",
            replayed.dead_letter_id,
            replayed.result,
        )


def _result_of(exchange: ReplayExchange, settings: Settings, *, is_cancelled: bool) -> Replayed:
    """Return the result of a replay. Only a good answer of its own upstream is a success.

    A client takes a 401 or a 422 for an answer; a dead letter that was deleted after one would be
    lost, most likely for a credential that was not given.
    """
    refusal, code, attempts = exchange.refusal, exchange.code, exchange.attempts
    has_result = not attempts and exchange.key_result in _HAD_RESULT
    result, error, detail = ReplayResult.FAILED, str(code), _ANSWERED.format(status=code)
    if is_cancelled:
        result, error, detail = ReplayResult.INTERRUPTED, "shutdown", _INTERRUPTED
    elif refusal is not None:
        result = ReplayResult.FAILED if attempts else ReplayResult.REFUSED
        error, detail = refusal.reason.value, refusal.detail
    elif exchange.fallback:
        error, detail = "fallback", _FELL_BACK
    elif exchange.was_truncated:
        error, detail = "truncated", _CUT_SHORT
    elif code < FIRST_FAILURE:
        result = ReplayResult.ALREADY_DONE if has_result else ReplayResult.SUCCEEDED
        error = detail = ""
    elif has_result:
        result, detail = ReplayResult.REFUSED, _HAS_RESULT.format(status=code)
    names = {upstream.name: upstream for upstream in settings.upstreams}
    ran = (
        exchange.fallback
        and bool(attempts)
        and attempts[-1].upstream != exchange.route.settings.upstream
    )
    for attempt in attempts:
        upstream = names.get(attempt.upstream)
        refused = frozenset[int]() if upstream is None else upstream.refused
        ran = ran or may_have_run(attempt, refused)
    return Replayed(
        exchange.dead_letter,
        exchange.route.settings.name,
        result,
        error,
        code,
        detail,
        exchange.record if has_result else "" if refusal is None else refusal.record,
        len(attempts),
        ran,
    )
