"""Sends deliveries that are due, in the one process of a machine that holds their lock.

::

    lead ──► recover what a dead owner left ──► rounds: give up, and for each route
                                                  closed line: a canary, when one is due
                                                  open line: take what is due ──► send ──► settle

A delivery is ``sending`` on disk before its first byte, and its end is on disk before anybody is
told. What is not sent for a reason that is not its own (throttle, pause, breaker, an upstream that
is down) is given back, and costs no attempt.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace

from proxy.core.clock import Clock
from proxy.core.recorders import DelayMeter
from proxy.delivery.exchange import DeliveryExchange, read_delivery
from proxy.delivery.lines import UpstreamLine, is_unreachable
from proxy.delivery.request import facts_of, is_repeatable
from proxy.http.refusal import Refusal
from proxy.pipeline.dead_letters import attempt_records
from proxy.pipeline.hand_off.attempt import DeliveryRoute, NotSent
from proxy.policy.attempt import Attempt
from proxy.policy.delivery.history import attempts_of_delivery
from proxy.policy.delivery.line import Blame, LinePhase, LineSignal, line_signal
from proxy.policy.delivery.outcome import DeliveryFacts, DeliveryRules, DeliveryStep
from proxy.policy.delivery.state import (
    Delivered,
    Delivery,
    DeliveryRun,
    FailedForGood,
    RetryLater,
    Settlement,
    TransitionRefusal,
)
from proxy.policy.delivery.words import DeferralReason, DeliveryState
from proxy.policy.failure_category import FailureCategory, category
from proxy.policy.repeatable import did_not_run, may_have_run
from proxy.policy.retry.verdict import AttemptResult
from proxy.policy.settings import Settings
from proxy.stores import StoreError
from proxy.stores.deliveries.ports import Abandoned, DeliveryStore, Gone, Taken

_log = logging.getLogger("holdfast")

_LOOK_EVERY = 1.0
"""Seconds between two rounds at the most."""
_SPREAD_OVER = 30.0
"""Seconds over which the sends of what was due at the start are spread."""
_EXPIRE_EVERY = 60.0
_AFTER_FAULT = 1.0
"""Seconds to wait after the file did not answer."""
_SETTLE_TIMES = 10
"""How often the end of a try is written, a second apart, if the file does not answer."""
_DEFERRED_FOR = 60.0
"""Seconds for which it is noted why the deliveries of a route wait, before it is noted again."""

FindRoutes = Callable[[], tuple[Settings, Mapping[str, DeliveryRoute]]]
"""Returns the configuration in force, and the routes that hand off by name."""


class Dispatcher:
    """Delivers what was handed off."""

    def __init__(
        self,
        store: DeliveryStore,
        clock: Clock,
        meter: DelayMeter,
        find_routes: FindRoutes,
        forget_key: Callable[[str], Awaitable[object]],
    ) -> None:
        """*forget_key* drops the record of a key whose delivery has failed."""
        self._store = store
        self._clock = clock
        self._meter = meter
        self._find_routes = find_routes
        self._forget_key = forget_key
        self._awake = asyncio.Event()
        self._lines: dict[str, UpstreamLine] = {}
        self._sending: dict[asyncio.Task[None], _Try] = {}
        self._held_back: dict[str, float] = {}
        """By route, until when no permit is to be had, in monotonic seconds."""
        self._noted: dict[str, float] = {}
        """By route, until when it is on disk why its deliveries wait, in monotonic seconds."""
        self._forgiven: dict[str, int] = {}
        """Attempts that deliveries have back: the upstream was down for all."""
        self._loops: list[asyncio.Task[None]] = []
        self._is_over = False
        self._expire_at = 0.0
        self._look_at: dict[str, float] = {}
        """By route, when something is next due as far as is known, in monotonic seconds."""
        self._led_since = 0.0
        self._backlog: dict[str, int] = {}
        """By route, how many were due when this process began to deliver."""
        self._taken: dict[str, int] = {}
        """By route, how many were taken since then."""

    def __len__(self) -> int:
        return len(self._sending)

    def line(self, upstream: str) -> UpstreamLine:
        """Return the line of *upstream*, which outlives reloads."""
        line = self._lines.get(upstream)
        if line is None:
            line = self._lines[upstream] = UpstreamLine(self._clock, self._awake.set)
        return line

    def phases(self) -> dict[str, LinePhase]:
        """Return how the line of each upstream stands."""
        _, routes = self._find_routes()
        now = self._clock.monotonic()
        upstreams = {to.route.settings.upstream for to in routes.values()}
        return {name: self.line(name).phase(now, _most(routes, name)) for name in upstreams}

    # Its life.

    def start(self) -> None:
        """Begin to deliver, as soon as no other process does."""
        loop = asyncio.get_running_loop()
        self._loops = [
            loop.create_task(self._run(), name="deliveries"),
            loop.create_task(self._listen(), name="deliveries"),
        ]

    def reloaded(self) -> None:
        """Look again: routes have changed."""
        self._look_at.clear()
        self._held_back.clear()
        self._noted.clear()
        self._awake.set()

    async def drain(self, grace: float) -> None:
        """Take nothing any more; cut those off that are still under way after *grace* seconds."""
        self._is_over = True
        loops, self._loops = self._loops, []
        for task in loops:
            task.cancel()
        if loops:
            await asyncio.wait(loops)
        if self._sending:
            await asyncio.wait(tuple(self._sending), timeout=grace)
        for under_way in tuple(self._sending.values()):
            under_way.cut()
        if self._sending:
            await asyncio.wait(tuple(self._sending))

    async def _listen(self) -> None:
        """Have a round whenever the store says that there may be work."""
        while True:
            if await self._store.wait_for_work(_LOOK_EVERY):
                self._look_at.clear()
                self._awake.set()

    async def _run(self) -> None:
        await self._store.lead()
        self._begin_to_lead()
        is_recovered = False
        while True:
            self._awake.clear()
            pause = _AFTER_FAULT
            try:
                if not is_recovered:
                    await self._recover()
                    is_recovered = True
                pause = await self._round()
            except StoreError:
                pass  # the store logs it
            except Exception:  # noqa: BLE001 - deliveries must not end with one that is odd
                _log.exception("a round of deliveries failed inside the proxy")
            with suppress(TimeoutError):
                async with asyncio.timeout(max(pause, 0.0)):
                    await self._awake.wait()

    def _begin_to_lead(self) -> None:
        self._led_since = self._clock.monotonic()
        open_states = (DeliveryState.WAITING, DeliveryState.RETRYING, DeliveryState.SENDING)
        for name, counts in self._store.counts.items():
            self._backlog[name] = sum(counts.states.get(state, 0) for state in open_states)

    async def _recover(self) -> None:
        """Decide about what was being sent when its process died."""
        while recovered := await self._store.recover(self._decide_abandoned):
            for delivery in recovered:
                is_failed = delivery.state is DeliveryState.FAILED
                outcome = "uncertain" if is_failed else "retried"
                self._meter.count("holdfast_delivery_recovered_total", delivery.route, outcome)
                if is_failed:
                    await self._ended(delivery)

    def _decide_abandoned(self, delivery: Delivery) -> Abandoned:
        """Say whether a delivery may be sent again of which it is not known whether it was."""
        _, routes = self._find_routes()
        to = routes.get(delivery.route)
        if to is None:
            return Abandoned(repeatable=False)
        attempts = attempts_of_delivery(delivery, ())
        delay = self._clock.roll() * _SPREAD_OVER
        return Abandoned(is_repeatable(delivery, attempts, to, self._clock.wall()), delay)

    # One round.

    async def _round(self) -> float:
        """Send what is due and may be sent; return the seconds after which to look again."""
        settings, routes = self._find_routes()
        for delivery in await self._store.give_up():
            await self._ended(delivery)
        now = self._clock.monotonic()
        if now >= self._expire_at:
            self._expire_at = now + _EXPIRE_EVERY
            for name, count in (await self._store.expire()).items():
                self._meter.count("holdfast_dead_letters_dropped_total", name, "expired", by=count)
        pause = _LOOK_EVERY
        for name, to in routes.items():
            if self._look_at.get(name, 0.0) <= now:
                pause = min(pause, await self._serve(to, settings, routes))
            else:
                pause = min(pause, self._look_at[name] - now)
        for name, counts in self._store.counts.items():
            is_open = any(counts.states.get(state) for state in (_WAITING, _RETRYING))
            if is_open and name not in routes:
                await self._note_deferral(name, DeferralReason.NO_ROUTE)
        return pause

    async def _serve(
        self, to: DeliveryRoute, settings: Settings, routes: Mapping[str, DeliveryRoute]
    ) -> float:
        """Send what is due on a route; return the seconds after which to look again."""
        name, attempt, upstream = to.name, to.attempt, to.route.settings.upstream
        now = self._clock.monotonic()
        line = self.line(upstream)
        most = _most(routes, upstream)
        under_way = sum(each.route == name for each in self._sending.values())
        capacity = line.capacity(now, most=most, under_way=line.under_way)
        capacity = min(capacity, to.hand_off.concurrency - under_way, self._spread(name, now))
        if capacity <= 0:
            await self._test_line(line, to, settings)
            more_at = line.opens_more_at(now)
            return _LOOK_EVERY if more_at is None else max(more_at - now, 0.0)
        held_back = self._held_back.get(name, 0.0) - now
        if held_back > 0:
            return held_back
        if attempt.is_throttled and not line.has_its_turn:
            not_now = attempt.wait()
            if not_now is not None:
                await self._hold_back(name, not_now)
                return not_now.wait
        # Where a permit is needed, no more are taken than there may be permits for.
        limit = 1 if attempt.is_throttled else capacity
        batch = await self._store.take(name, limit, to.rules.urls)
        self._taken[name] = self._taken.get(name, 0) + len(batch.taken)
        for taken in batch.taken:
            self._begin(taken, to, settings)
        if batch.next_due is None:
            self._look_at[name] = math.inf  # until the store says otherwise
            return _LOOK_EVERY
        if batch.next_due > 0:
            self._look_at[name] = now + batch.next_due
        elif batch.taken:
            await asyncio.sleep(0)  # those taken get their permits first
        return max(batch.next_due, 0.0)

    def _spread(self, name: str, now: float) -> int:
        """Return how many more may be taken: what was due at the start does not go all at once."""
        since = now - self._led_since
        backlog = self._backlog.get(name, 0)
        if not backlog or since >= _SPREAD_OVER or self._taken.get(name, 0) >= backlog:
            self._backlog.pop(name, None)
            return 2**31
        return int(backlog * since / _SPREAD_OVER) + 1 - self._taken.get(name, 0)

    async def _hold_back(self, name: str, not_sent: NotSent) -> None:
        self._held_back[name] = self._clock.monotonic() + not_sent.wait
        if not_sent.wait >= _LOOK_EVERY:
            await self._defer(name, not_sent.reason, not_sent.wait)

    async def _note_deferral(self, name: str, reason: DeferralReason) -> None:
        """Note now and then why what is due on a route waits, for as long as it does."""
        now = self._clock.monotonic()
        if self._noted.get(name, 0.0) <= now:
            self._noted[name] = now + _DEFERRED_FOR / 2
            await self._defer(name, reason, _DEFERRED_FOR)

    async def _defer(self, name: str, reason: DeferralReason, seconds: float) -> None:
        """Note why nothing is sent on a route, for whoever asks."""
        self._meter.count("holdfast_delivery_deferrals_total", name, reason)
        await self._store.defer(name, reason, seconds)

    # A line that is closed.

    async def _test_line(self, line: UpstreamLine, to: DeliveryRoute, settings: Settings) -> None:
        """Send one delivery of a closed line, when it is time, to see if the upstream is back."""
        monotonic = self._clock.monotonic()
        if line.is_closed:
            await self._note_deferral(to.name, DeferralReason.UPSTREAM_DOWN)
        if not line.wants_canary(monotonic):
            return
        page = await self._store.candidates(to.name, not_tried_for=0.0)
        now = self._clock.wall()
        canary = line.choose_canary(
            (each.id, is_repeatable(each, attempts_of_delivery(each, ()), to, now))
            for each in page.deliveries
        )
        if canary is None:
            return
        line.canary_sent(canary.row)
        if canary.connect_first and not await to.upstream.endpoints.can_connect():
            line.connection_failed(self._clock.monotonic())
            return
        taken = await self._store.take_one(canary.row, to.rules.urls)
        if taken is None:
            line.withdrawn(canary.row, self._clock.monotonic())
            return
        self._begin(taken, to, settings)

    # One try.

    def _begin(self, taken: Taken, to: DeliveryRoute, settings: Settings) -> None:
        line = self.line(to.route.settings.upstream)
        under_way = _Try(to.name)
        task = asyncio.get_running_loop().create_task(
            self._send_and_settle(taken, to, settings, line, under_way)
        )
        self._sending[task] = under_way
        line.under_way += 1

        def ended(done: "asyncio.Task[None]") -> None:
            del self._sending[done]
            line.under_way -= 1
            self._look_at.pop(to.name, None)
            self._awake.set()
            if not done.cancelled() and done.exception() is not None:
                _log.error(
                    "delivery %s failed inside the proxy",
                    taken.delivery.id,
                    exc_info=done.exception(),
                )

        task.add_done_callback(ended)

    async def _send_and_settle(
        self,
        taken: Taken,
        to: DeliveryRoute,
        settings: Settings,
        line: UpstreamLine,
        under_way: "_Try",
    ) -> None:
        delivery, rules, route = taken.delivery, to.rules, to.route
        wall, offset = self._clock.wall(), self._clock.monotonic() - self._clock.wall()
        earlier = await self._earlier_attempts(delivery)
        made = delivery.attempts - self._forgiven.get(delivery.id, 0)
        facts = facts_of(delivery, earlier, to, wall, made)
        permission = rules.before_send(facts)
        if isinstance(permission, DeliveryStep):
            line.withdrawn(delivery.id, self._clock.monotonic())
            await self._settle(
                delivery, FailedForGood(str(permission.reason), delivery.error, counts=False), None
            )
            return
        shifted = tuple(_shifted(attempt, offset) for attempt in earlier)
        exchange = read_delivery(taken, shifted, route, settings, self._clock)
        if isinstance(exchange, Refusal):
            # Another configuration than today's accepted it.
            line.withdrawn(delivery.id, self._clock.monotonic())
            failed = FailedForGood(
                exchange.reason.value, category=FailureCategory.PERMANENT, counts=False
            )
            await self._settle(delivery, failed, None)
            return
        self._note_lag(delivery, wall)
        outcome = await self._send(exchange, to, line, under_way)
        now = self._clock.monotonic()
        if isinstance(outcome, NotSent):
            line.withdrawn(delivery.id, now)
            if outcome.reason is not DeferralReason.DRAINING:
                self._held_back[delivery.route] = now + outcome.wait
            self._meter.count("holdfast_delivery_deferrals_total", delivery.route, outcome.reason)
            await self._give_back(delivery, outcome)
            return
        await self._conclude(exchange, outcome, facts, to, line)

    async def _send(
        self, exchange: DeliveryExchange, to: DeliveryRoute, line: UpstreamLine, under_way: "_Try"
    ) -> Attempt | NotSent:
        """Send a delivery, until it is cut off by the end of the process."""
        delivery = exchange.delivery
        if under_way.is_cut:
            return NotSent(DeferralReason.DRAINING, 0.0)
        may_wait = line.has_its_turn
        is_first = not delivery.tries and not exchange.earlier_attempts
        under_way.exchange = exchange
        under_way.task = asyncio.get_running_loop().create_task(
            to.attempt.send(exchange, is_first=is_first, may_wait=may_wait)
        )
        await asyncio.wait([under_way.task])
        exchange.code = exchange.code or 499
        exchange.finish()
        attempts = exchange.attempts
        if under_way.task.cancelled():
            if attempts and attempts[-1].sent:
                return attempts[-1]
            return NotSent(DeferralReason.DRAINING, 0.0)
        outcome = under_way.task.result()
        if isinstance(outcome, Attempt):
            line.sent()
        return outcome

    async def _conclude(
        self,
        exchange: DeliveryExchange,
        attempt: Attempt,
        facts: DeliveryFacts,
        to: DeliveryRoute,
        line: UpstreamLine,
    ) -> None:
        """Settle a try that has ended."""
        delivery, rules, now = exchange.delivery, to.rules, self._clock.monotonic()
        result = AttemptResult(attempt.kind, attempt.status, attempt.sent, exchange.hint)
        blame = self._blame(delivery.id, attempt, result, to, line)
        offset = self._clock.wall() - now
        made = tuple(_shifted(each, offset) for each in exchange.attempts)
        facts = replace(facts, attempts=(*facts.attempts, *made), now=self._clock.wall())
        step = rules.after_attempt(facts, result, roll=self._clock.roll(), counts=blame.counts)
        if step.pause is not None:
            line.pause(now + step.pause - facts.now)
        error = str(attempt.kind or attempt.status)
        reason = "" if step.reason is None else str(step.reason)
        self._meter.count("holdfast_delivery_runs_total", delivery.route, reason or "deferred")
        if step.deferred is not None:
            self._meter.count("holdfast_delivery_deferrals_total", delivery.route, step.deferred)
        delay = 0.0 if step.due is None else max(step.due - facts.now, 0.0)
        if step.deferred is not None and not any(each.sent for each in exchange.attempts):
            await self._give_back(delivery, NotSent(step.deferred, delay))
            return
        settlement: Settlement
        if step.state is DeliveryState.DELIVERED:
            settlement = Delivered(exchange.kept_response())
        elif step.state is DeliveryState.FAILED:
            settlement = FailedForGood(reason, error, _category(attempt, rules), step.counts)
        else:
            settlement = RetryLater(delay, reason, error, step.counts, step.deferred)
        await self._settle(delivery, settlement, self._run_record(exchange, step, rules.refused))

    def _blame(
        self,
        row: str,
        attempt: Attempt,
        result: AttemptResult,
        to: DeliveryRoute,
        line: UpstreamLine,
    ) -> Blame:
        """Tell the line of the upstream how a try ended, and return whose failure it was."""
        now = self._clock.monotonic()
        match line_signal(result):
            case LineSignal.UP:
                line.succeeded(now)
                return Blame(counts=True)
            case LineSignal.DOWN:
                unreachable = is_unreachable(to.upstream, attempt, now)
                blame = line.failed(row, now, unreachable=unreachable)
            case LineSignal.NEITHER:
                blame = line.undecided(row, now)
        for each in blame.forgiven:
            self._forgiven[each] = self._forgiven.get(each, 0) + 1
        return blame

    def _run_record(
        self, exchange: DeliveryExchange, step: DeliveryStep, refused: frozenset[int]
    ) -> DeliveryRun:
        attempts = exchange.attempts
        delivered = step.state is DeliveryState.DELIVERED
        in_doubt = [each for each in attempts if not did_not_run(each, refused)]
        return DeliveryRun(
            self._clock.wall(),
            "succeeded" if delivered else "failed",
            attempt_records(attempts, self._clock),
            not delivered and any(may_have_run(each, refused) for each in attempts),
            tuple(dict.fromkeys(each.url for each in in_doubt)),
        )

    async def _earlier_attempts(self, delivery: Delivery) -> tuple[Attempt, ...]:
        """Return what was sent of a delivery before, as far as it matters for the next try."""
        if not delivery.ran_at and not delivery.may_have_run:
            return ()
        shown = await self._store.find(delivery.id)
        before = replace(delivery, sending_to=())  # those of this try
        return attempts_of_delivery(before, () if isinstance(shown, Gone) else shown.runs)

    def _note_lag(self, delivery: Delivery, wall: float) -> None:
        if not delivery.tries:
            lag = max(wall - delivery.due, 0.0)
            self._meter.observe("holdfast_delivery_lag_seconds", lag, delivery.route)

    # Writing down how it went.

    async def _give_back(self, delivery: Delivery, not_sent: NotSent) -> None:
        wait, reason = not_sent.wait, not_sent.reason
        await self._write(
            lambda: self._store.give_back(delivery, delay=wait, deferred=reason), delivery
        )

    async def _settle(
        self, delivery: Delivery, settlement: Settlement, run: DeliveryRun | None
    ) -> None:
        settled = await self._write(lambda: self._store.settle(delivery, settlement, run), delivery)
        if settled is not None and not settled.is_open:
            await self._ended(settled)

    async def _write(
        self, write: Callable[[], Awaitable[Delivery | TransitionRefusal]], delivery: Delivery
    ) -> Delivery | None:
        """Write down how a try ended, for as long as the file may need to come back."""
        for attempt in range(_SETTLE_TIMES):
            if attempt:
                await asyncio.sleep(_AFTER_FAULT)
            with suppress(StoreError):
                written = await write()
                if isinstance(written, Delivery):
                    return written
                _log.warning(
                    "delivery %s is not this process's any more (%s)", delivery.id, written
                )
                return None
        _log.error("how a try of delivery %s ended cannot be written down", delivery.id)
        return None

    async def _ended(self, delivery: Delivery) -> None:
        """Act on the end of a delivery: metrics, log, and what becomes of its key."""
        self._forgiven.pop(delivery.id, None)
        result = delivery.state.value
        self._meter.count("holdfast_deliveries_ended_total", delivery.route, result)
        if delivery.state is DeliveryState.DELIVERED:
            delay = max(delivery.ended - delivery.accepted, 0.0)
            self._meter.observe("holdfast_delivery_delay_seconds", delay, delivery.route)
            return
        _log.warning(
            "delivery %s of route %s ended: %s, %s",
            delivery.id,
            delivery.route,
            result,
            delivery.reason,
        )
        if delivery.state is DeliveryState.FAILED and delivery.letter is not None:
            self._meter.count("holdfast_dead_letters_total", delivery.route)
        if delivery.record:
            # What may have run is known by the file: the key is not run again under ``hold``.
            await self._forget_key(delivery.record)


_WAITING, _RETRYING = DeliveryState.WAITING, DeliveryState.RETRYING


class _Try:
    """One try that is under way."""

    __slots__ = ("exchange", "is_cut", "route", "task")

    def __init__(self, route: str) -> None:
        self.route = route
        self.is_cut = False
        """Whether the drain has run out of time."""
        self.exchange: DeliveryExchange | None = None
        self.task: asyncio.Task[Attempt | NotSent] | None = None

    def cut(self) -> None:
        """End the try: the drain has run out of time."""
        self.is_cut = True
        if self.exchange is not None and self.task is not None:
            self.exchange.is_cut = True
            self.task.cancel()


def _most(routes: Mapping[str, DeliveryRoute], upstream: str) -> int:
    """Return how many deliveries may be under way to *upstream*, over all its routes."""
    return sum(
        to.hand_off.concurrency for to in routes.values() if to.route.settings.upstream == upstream
    )


def _shifted(attempt: Attempt, offset: float) -> Attempt:
    """Return *attempt* as if by a clock that is *offset* seconds ahead."""
    shifted = copy(attempt)
    shifted.started += offset
    return shifted


def _category(attempt: Attempt, rules: DeliveryRules) -> FailureCategory:
    """Return whether a failure may pass by itself."""
    error = attempt.kind or attempt.status
    return category(error, rules.settings.retry_on.statuses) or FailureCategory.PERMANENT
