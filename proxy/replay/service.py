"""Sending a dead letter again, because a person said so.

::

    marked on disk ──► the route's own chain, as any request ──► succeeded: it is gone
                                                              └► else it waits on, with one more
                                                                 run on record

Nothing is sent before the mark is on disk. Whoever dies in between leaves a letter that is
*uncertain*; nobody sends one of those by accident.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from proxy.core.clock import Clock
from proxy.core.ids import new_token
from proxy.core.ports import Refused
from proxy.core.route import Route
from proxy.http.fields import RawHeaders
from proxy.http.refusal import Refusal, RefusalReason
from proxy.pipeline.dead_letters import attempt_records
from proxy.policy.attempt import FIRST_FAILURE
from proxy.policy.dead_letter import DeadLetter, Obstacle, Replayed, ReplayResult, ReplayRun
from proxy.policy.repeatable import may_have_run
from proxy.policy.settings import Settings
from proxy.replay.exchange import ReplayExchange, read_dead_letter
from proxy.stores import StoreError
from proxy.stores.dead_letters import DeadLetterStore

_log = logging.getLogger("holdfast")

_OUR_FAULT = Refusal(RefusalReason.UNKNOWN, "The letter could not be sent; the log says why.")
_TELL_TIMES = 3
"""How often the disk is told how a replay ended, if it does not answer."""

_ANSWERED = "The upstream answered {status}: the letter stays. Drop it if that is its answer."
_CUT_SHORT = "The response broke off: it may have run. Find out before you send it again."
_FELL_BACK = "Only the fallback answered: the letter stays."
_INTERRUPTED = "Holdfast was told to end: look at the letter again once it runs."


class ReplayService:
    """All letters that this process is sending."""

    def __init__(
        self, letters: DeadLetterStore, clock: Clock, count: Callable[[str, ReplayResult], None]
    ) -> None:
        """*count* is told of each replay that began: its route, and how it ended."""
        self._letters = letters
        self._clock = clock
        self._count = count
        self._tasks: dict[asyncio.Task[Replayed | Obstacle], ReplayExchange | None] = {}
        self._is_over = False

    def __len__(self) -> int:
        return len(self._tasks)

    async def replay(
        self,
        letter: str,
        given: RawHeaders,
        find: Callable[[str], Route | None],
        settings: Settings,
        *,
        force: bool,
    ) -> Replayed | Obstacle:
        """Send it again, with the header fields that are *given* besides; or say why not.

        It goes on if whoever asked does not wait for it. *find* gives the route of a name.
        Raises StoreError.
        """
        if self._is_over:
            return Obstacle.DRAINING
        work = self._mark_and_send(letter, given, find, settings, force=force)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        await asyncio.wait([task])
        return Obstacle.DRAINING if task.cancelled() else task.result()

    async def obstacle(
        self,
        name: str,
        given: RawHeaders,
        find: Callable[[str], Route | None],
        settings: Settings,
        *,
        force: bool,
    ) -> Obstacle | None:
        """Why :meth:`replay` would not send it now; None if it would. Raises StoreError."""
        letter = await self._letters.find(name)
        if letter is None:
            return Obstacle.UNKNOWN
        obstacle = letter.outline.obstacle(force=force)
        if obstacle is not None or self._is_over:
            return obstacle or Obstacle.DRAINING
        exchange = self._exchange(letter, given, find, settings)
        return exchange if isinstance(exchange, Obstacle) else None

    async def drain(self, patience: float) -> None:
        """Begin none any more, and let those under way end; after *patience* seconds, end them."""
        self._is_over = True
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=patience)
        for task, exchange in tuple(self._tasks.items()):
            if exchange is not None:
                exchange.is_cut = True
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _mark_and_send(
        self,
        name: str,
        given: RawHeaders,
        find: Callable[[str], Route | None],
        settings: Settings,
        *,
        force: bool,
    ) -> Replayed | Obstacle:
        ticket = new_token()
        letter = await self._letters.begin_replay(name, ticket, force=force)
        if isinstance(letter, Obstacle):
            return letter
        exchange = self._exchange(letter, given, find, settings)
        if isinstance(exchange, Obstacle):
            await self._letters.end_replay(name, ticket, None, may_have_run=False, gone=False)
            return exchange
        replayed = await self._send(exchange, letter, settings)
        await self._tell(exchange, ticket, replayed)
        self._count(letter.outline.route, replayed.result)
        if replayed.attempts:
            _log.info("dead letter %s was sent again: %s", name, replayed.result)
        elif replayed.result is ReplayResult.SUCCEEDED:
            _log.info("dead letter %s was not sent: its key has a result, and it is gone", name)
        else:
            _log.info("dead letter %s was not sent: %s", name, replayed.result)
        return replayed

    def _exchange(
        self,
        letter: DeadLetter,
        given: RawHeaders,
        find: Callable[[str], Route | None],
        settings: Settings,
    ) -> ReplayExchange | Obstacle:
        """The request that is sent for *letter*, or why there is none."""
        route = find(letter.outline.route)
        if route is None:
            return Obstacle.NO_ROUTE
        exchange = read_dead_letter(letter, given, route, settings, self._clock)
        return exchange if isinstance(exchange, ReplayExchange) else Obstacle.BAD_HEADERS

    async def _send(
        self, exchange: ReplayExchange, letter: DeadLetter, settings: Settings
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
            _log.exception("dead letter %s failed inside the proxy", letter.id)
            refusal = _OUR_FAULT
        finally:
            self._tasks[task] = None
        if refusal is not None:
            exchange.answer(refusal)
        elif not exchange.code:
            exchange.code = 499
        exchange.finish()
        return _judged(exchange, settings, is_cancelled=is_cancelled)

    async def _tell(self, exchange: ReplayExchange, ticket: str, replayed: Replayed) -> None:
        """Put on disk how it ended; what cannot be put there is uncertain after the next start."""
        attempts = exchange.attempts
        run = None
        if attempts:
            run = ReplayRun(
                self._clock.wall(), replayed.result, attempt_records(attempts, self._clock)
            )
        gone = replayed.result is ReplayResult.SUCCEEDED
        for _ in range(_TELL_TIMES):
            with suppress(StoreError):
                await self._letters.end_replay(
                    replayed.letter, ticket, run, may_have_run=replayed.may_have_run, gone=gone
                )
                return
        _log.error(
            "how the replay of dead letter %s ended (%s) cannot be written down",
            replayed.letter,
            replayed.result,
        )


def _judged(exchange: ReplayExchange, settings: Settings, *, is_cancelled: bool) -> Replayed:
    """What became of it. Only a good answer of its own upstream is a success.

    A client takes a 401 or a 422 for an answer; a letter that went away after one would be
    lost, most likely for a credential that nobody gave.
    """
    refusal, code, attempts = exchange.refusal, exchange.code, exchange.attempts
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
        result, error, detail = ReplayResult.SUCCEEDED, "", ""
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
        "" if refusal is None else refusal.record,
        len(attempts),
        ran,
    )
