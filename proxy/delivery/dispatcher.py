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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace

from proxy.core.clock import Clock
from proxy.core.recorders import DeliveryMeter
from proxy.delivery.exchange import DeliveryExchange, read_delivery
from proxy.delivery.lines import UpstreamLine, is_unreachable
from proxy.delivery.request import facts_of, is_repeatable
from proxy.http.refusal import Refusal
from proxy.pipeline.dead_letters import attempt_records
from proxy.pipeline.hand_off.attempt import DeliveryRoute, NotSent, last_sent
from proxy.policy.attempt import Attempt
from proxy.policy.delivery.history import DeliveryHistory, attempts_of_delivery
from proxy.policy.delivery.line import Blame, Canary, LinePhase, LineSignal, line_signal
from proxy.policy.delivery.outcome import DeliveryFacts, DeliveryRules, DeliveryStep
from proxy.policy.delivery.schedule import wait_before_next
from proxy.policy.delivery.state import (
    Delivered,
    Delivery,
    DeliveryRun,
    FailedForGood,
    RetryLater,
    Settlement,
    TransitionRefusal,
)
from proxy.policy.delivery.words import DeferralReason, DeliveryEnd, DeliveryState
from proxy.policy.failure_category import FailureCategory, category
from proxy.policy.repeatable import did_not_run
from proxy.policy.retry.verdict import AttemptResult
from proxy.policy.settings import Settings
from proxy.stores import StoreError
from proxy.stores.deliveries.ports import Abandoned, DeliveryStore, Gone, Taken

_log = logging.getLogger("holdfast")

_LOOK_EVERY = 1.0
"""Seconds between two rounds at the most."""
_LOOK_AGAIN = 5.0
"""Seconds after which a route is looked at again though nothing was to be due: a process that
accepts and dies at once wakes nobody."""
_SPREAD_OVER = 30.0
"""Seconds over which the sends of what was due at the start are spread."""
_EXPIRE_EVERY = 60.0
_AFTER_FAULT = 1.0
"""Seconds to wait after the file did not answer."""
_RECOVER_WITHIN = 5.0
"""Seconds for which a start waits until it is decided about the tries of dead owners."""
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
        meter: DeliveryMeter,
        find_routes: FindRoutes,
    ) -> None:
        self._store = store
        self._clock = clock
        self._meter = meter
        self._find_routes = find_routes
        self._awake = asyncio.Event()
        self._lines: dict[str, UpstreamLine] = {}
        self._sending: dict[asyncio.Task[None], _Try] = {}
        self._held_back: dict[str, float] = {}
        """By route, until when no permit is to be had, in monotonic seconds."""
        self._noted: dict[str, float] = {}
        """By route, until when it is on disk why its deliveries wait, in monotonic seconds."""
        self._loops: list[asyncio.Task[None]] = []
        self._canaries: set[asyncio.Task[None]] = set()
        """Tests of closed lines that have not sent anything yet."""
        self._is_over = False
        self._recovered = asyncio.Event()
        self._give_up_at = 0.0
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

    async def start(self) -> None:
        """Begin to deliver, as soon as no other process does.

        If none does now, it is decided first about what a dead one left.
        """
        loop = asyncio.get_running_loop()
        self._loops = [
            loop.create_task(self._run(), name="deliveries"),
            loop.create_task(self._listen(), name="deliveries"),
        ]
        await asyncio.sleep(0)  # it has the lock then, if that is free
        if self._store.delivers:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RECOVER_WITHIN):
                    await self._recovered.wait()

    def reloaded(self) -> None:
        """Look again: routes have changed."""
        self._look_at.clear()
        self._held_back.clear()
        self._noted.clear()
        self._awake.set()

    async def drain(self, grace: float) -> None:
        """Take nothing any more; cut those off that are still under way after *grace* seconds."""
        self._is_over = True
        loops, self._loops = [*self._loops, *self._canaries], []
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
        while True:
            self._awake.clear()
            pause = _AFTER_FAULT
            try:
                if not self._recovered.is_set():
                    await self._recover()
                    self._recovered.set()
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
                    self._ended(delivery)

    def _decide_abandoned(self, delivery: Delivery) -> Abandoned:
        """Say whether a delivery may be sent again of which it is not known whether it was."""
        _, routes = self._find_routes()
        to = routes.get(delivery.route)
        if to is None:
            # It waits for its route, and is judged again before it is sent.
            return Abandoned(repeatable=True)
        return Abandoned(
            is_repeatable(delivery, to, delivery.last_try),
            wait_before_next(to.hand_off.backoff, delivery.attempts + 1, self._clock.roll()),
        )

    # One round.

    async def _round(self) -> float:
        """Send what is due and may be sent; return the seconds after which to look again."""
        settings, routes = self._find_routes()
        now = self._clock.monotonic()
        if now >= self._give_up_at:
            while given_up := await self._store.give_up():
                for delivery in given_up:
                    self._ended(delivery)
            self._give_up_at = now + _LOOK_EVERY
        if now >= self._expire_at:
            self._expire_at = now + _EXPIRE_EVERY
            await self._recover()  # an owner may have seemed to live when it was last asked
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
        under_way = sum(each.to.name == name for each in self._sending.values())
        capacity = line.capacity(now, most=most, under_way=line.under_way)
        capacity = min(capacity, to.hand_off.concurrency - under_way, self._spread(to, now))
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
        if batch.taken and self._noted.pop(name, None) is not None:
            await self._store.defer(name, None)
        if batch.next_due is None:
            self._look_at[name] = now + _LOOK_AGAIN  # or when the store says so
            return _LOOK_EVERY
        if batch.next_due > 0:
            self._look_at[name] = now + min(batch.next_due, _LOOK_AGAIN)
        elif batch.taken:
            await asyncio.sleep(0)  # those taken get their permits first
        return max(batch.next_due, 0.0)

    def _spread(self, to: DeliveryRoute, now: float) -> int:
        """Return how many more may be taken: what was due at the start does not go all at once.

        No more are held back than would be a crowd: as many as may be under way go at once.
        """
        name, since = to.name, now - self._led_since
        backlog, taken = self._backlog.get(name, 0), self._taken.get(name, 0)
        if since >= _SPREAD_OVER or taken >= backlog:
            self._backlog.pop(name, None)
            return to.hand_off.concurrency
        return int(backlog * since / _SPREAD_OVER) + to.hand_off.concurrency - taken

    async def _hold_back(self, name: str, not_sent: NotSent) -> None:
        self._held_back[name] = self._clock.monotonic() + not_sent.wait
        if not_sent.wait >= _LOOK_EVERY and not_sent.reason is not None:
            await self._defer(name, not_sent.reason, not_sent.wait)

    async def _note_deferral(self, name: str, reason: DeferralReason) -> None:
        """Note now and then why what is due on a route waits, for as long as it does."""
        now = self._clock.monotonic()
        if self._noted.get(name, 0.0) <= now:
            self._noted[name] = now + _DEFERRED_FOR / 2
            await self._defer(name, reason, _DEFERRED_FOR)

    async def _defer(self, name: str, reason: DeferralReason, seconds: float) -> None:
        """Note why nothing is sent on a route, for whoever asks."""
        self._noted.setdefault(name, 0.0)
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
            (each.id, is_repeatable(each, to, now)) for each in page.deliveries
        )
        if canary is None:
            return
        line.canary_sent(canary.row)
        task = asyncio.get_running_loop().create_task(
            self._send_canary(canary, line, to, settings), name="deliveries"
        )
        self._canaries.add(task)
        task.add_done_callback(self._canaries.discard)

    async def _send_canary(
        self, canary: Canary, line: UpstreamLine, to: DeliveryRoute, settings: Settings
    ) -> None:
        """Send *canary*; other routes do not wait for its connection."""
        taken = None
        is_connected = True
        try:
            if canary.connect_first:
                is_connected = await to.upstream.endpoints.can_connect()
            if is_connected and not self._is_over:
                taken = await self._store.take_one(canary.row, to.rules.urls)
        except StoreError:
            pass  # the store logs it
        finally:
            if taken is not None:
                self._begin(taken, to, settings)
            elif is_connected:
                line.withdrawn(canary.row, self._clock.monotonic())
            else:
                line.connection_failed(self._clock.monotonic())
            self._awake.set()

    # One try.

    def _begin(self, taken: Taken, to: DeliveryRoute, settings: Settings) -> None:
        line = self.line(to.route.settings.upstream)
        under_way = _Try(taken, to, settings, line, self._clock)
        task = asyncio.get_running_loop().create_task(self._send_and_settle(under_way))
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

    async def _send_and_settle(self, under_way: "_Try") -> None:
        """Make one try. However it ends, the delivery is not left as being sent."""
        delivery, line = under_way.delivery, under_way.line
        try:
            await self._try(under_way)
        except Exception as error:  # noqa: BLE001 - deliveries must not end with one that is odd
            line.withdrawn(delivery.id, self._clock.monotonic())
            if isinstance(error, StoreError) and under_way.exchange is None:
                await self._give_back(under_way, NotSent(None, _AFTER_FAULT))
                return
            _log.exception("a try of delivery %s failed inside the proxy", delivery.id)
            if not under_way.is_settled:
                await self._settle_after_fault(under_way)

    async def _try(self, under_way: "_Try") -> None:
        delivery, to, line = under_way.delivery, under_way.to, under_way.line
        history = await self._history(delivery)
        facts = facts_of(delivery, history, to, under_way.date())
        permission = to.rules.before_send(facts)
        if isinstance(permission, DeliveryStep):
            line.withdrawn(delivery.id, self._clock.monotonic())
            reason = str(permission.reason)
            await self._settle(under_way, FailedForGood(reason, delivery.error, counts=False), None)
            return
        before = (*history.earlier, *history.attempts)
        shifted = tuple(_shifted(attempt, -under_way.offset) for attempt in before)
        exchange = read_delivery(
            under_way.taken, shifted, to.route, under_way.settings, self._clock
        )
        if isinstance(exchange, Refusal):
            # Another configuration than today's accepted it.
            line.withdrawn(delivery.id, self._clock.monotonic())
            failed = FailedForGood(
                exchange.reason.value, category=FailureCategory.PERMANENT, counts=False
            )
            await self._settle(under_way, failed, None)
            return
        if not delivery.tries:
            lag = max(delivery.last_try - delivery.due, 0.0)
            self._meter.observe("holdfast_delivery_lag_seconds", lag, delivery.route)
        outcome = await self._send(exchange, under_way)
        now = self._clock.monotonic()
        if isinstance(outcome, NotSent):
            line.withdrawn(delivery.id, now)
            if outcome.reason is not DeferralReason.DRAINING:
                self._held_back[delivery.route] = now + outcome.wait
            await self._give_back(under_way, outcome)
            return
        await self._conclude(exchange, outcome, facts, under_way)

    async def _send(self, exchange: DeliveryExchange, under_way: "_Try") -> Attempt | NotSent:
        """Send a delivery, until it is cut off by the end of the process."""
        line = under_way.line
        if under_way.is_cut:
            return NotSent(DeferralReason.DRAINING, 0.0)
        is_first = not exchange.delivery.tries and not exchange.earlier_attempts
        under_way.exchange = exchange
        under_way.task = asyncio.get_running_loop().create_task(
            under_way.to.attempt.send(exchange, is_first=is_first, may_wait=line.has_its_turn)
        )
        await asyncio.wait([under_way.task])
        exchange.code = exchange.code or 499
        exchange.finish()
        if under_way.task.cancelled():
            return last_sent(exchange) or NotSent(DeferralReason.DRAINING, 0.0)
        outcome = under_way.task.result()
        if isinstance(outcome, Attempt):
            line.sent()
        return outcome

    async def _conclude(
        self,
        exchange: DeliveryExchange,
        attempt: Attempt,
        facts: DeliveryFacts,
        under_way: "_Try",
    ) -> None:
        """Settle a try that has ended."""
        delivery, rules, line = under_way.delivery, under_way.to.rules, under_way.line
        now = self._clock.monotonic()
        result = AttemptResult(attempt.kind, attempt.status, attempt.sent, exchange.hint)
        blame = self._blame(attempt, result, under_way)
        await self._forgive(blame.forgiven)
        made = tuple(_shifted(each, under_way.offset) for each in exchange.attempts)
        facts = replace(
            facts,
            made=max(delivery.attempts - under_way.forgiven, 0),
            attempts=(*facts.attempts, *made),
            now=under_way.date(),
        )
        step = rules.after_attempt(facts, result, roll=self._clock.roll(), counts=blame.counts)
        if step.pause is not None:
            line.pause(now + step.pause - facts.now)
        error = str(attempt.kind or attempt.status)
        reason = "" if step.reason is None else str(step.reason)
        self._meter.count("holdfast_delivery_runs_total", delivery.route, reason or "deferred")
        delay = 0.0 if step.due is None else max(step.due - facts.now, 0.0)
        if step.deferred is not None and not any(each.sent for each in exchange.attempts):
            await self._give_back(under_way, NotSent(step.deferred, delay))
            return
        settlement: Settlement
        if step.state is DeliveryState.DELIVERED:
            settlement = Delivered(exchange.kept_response())
        elif step.state is DeliveryState.FAILED:
            response = None if attempt.kind is not None else exchange.kept_response()
            settlement = FailedForGood(
                reason, error, _category(attempt, rules), step.counts, response
            )
        else:
            if step.deferred is not None:
                self._meter.count(
                    "holdfast_delivery_deferrals_total", delivery.route, step.deferred
                )
            settlement = RetryLater(delay, reason, error, step.counts, step.deferred)
        await self._settle(under_way, settlement, self._run_record(under_way, step.state))

    def _blame(self, attempt: Attempt, result: AttemptResult, under_way: "_Try") -> Blame:
        """Tell the line of the upstream how a try ended, and return whose failure it was."""
        now, line, row = self._clock.monotonic(), under_way.line, under_way.delivery.id
        match line_signal(result):
            case LineSignal.UP:
                line.succeeded(now)
                return Blame(counts=True)
            case LineSignal.DOWN:
                unreachable = is_unreachable(under_way.to.upstream, attempt, now)
                return line.failed(row, now, unreachable=unreachable)
            case LineSignal.NEITHER:
                return line.undecided(row, now)

    async def _forgive(self, forgiven: Sequence[str]) -> None:
        """Give an attempt back to each delivery that failed because the upstream was down."""
        if not forgiven:
            return
        others = list(forgiven)
        for under_way in self._sending.values():
            while under_way.delivery.id in others:
                others.remove(under_way.delivery.id)
                under_way.forgiven += 1
        if others:
            with suppress(StoreError):  # one attempt more or less is no promise
                await self._store.forgive(others)

    def _run_record(self, under_way: "_Try", state: DeliveryState) -> DeliveryRun:
        rules, exchange = under_way.to.rules, under_way.exchange
        attempts = [] if exchange is None else exchange.attempts
        delivered = state is DeliveryState.DELIVERED
        in_doubt = [each for each in attempts if not did_not_run(each, rules.refused)]
        return DeliveryRun(
            self._clock.wall(),
            "succeeded" if delivered else "failed",
            attempt_records(attempts, self._clock, under_way.offset),
            not delivered and rules.may_have_run(attempts),
            tuple(dict.fromkeys(each.url for each in in_doubt)),
        )

    async def _history(self, delivery: Delivery) -> DeliveryHistory:
        """Return what was sent of a delivery before, as far as it matters for the next try."""
        if not delivery.ran_at and not delivery.may_have_run:
            return DeliveryHistory()
        shown = await self._store.find(delivery.id)
        before = replace(delivery, sending_to=())  # those of this try
        return attempts_of_delivery(before, () if isinstance(shown, Gone) else shown.runs)

    # Writing down how it went.

    async def _give_back(self, under_way: "_Try", not_sent: NotSent) -> None:
        """Write down that nothing was sent, though it was due."""
        delivery, wait, reason = under_way.delivery, not_sent.wait, not_sent.reason
        if reason is not None:
            self._meter.count("holdfast_delivery_deferrals_total", delivery.route, reason)
        await self._write(
            lambda: self._store.give_back(delivery, delay=wait, deferred=reason), under_way
        )

    async def _settle_after_fault(self, under_way: "_Try") -> None:
        """Settle a try that failed by a fault of our own, as if its process had died."""
        delivery, to, exchange = under_way.delivery, under_way.to, under_way.exchange
        was_sent = exchange is not None and any(each.sent for each in exchange.attempts)
        run = None
        reason = DeliveryEnd.UNCERTAIN.value
        if was_sent:
            urls = delivery.sending_to
            run = DeliveryRun(self._clock.wall(), "uncertain", (), may_have_run=True, urls=urls)
        settlement: Settlement = FailedForGood(reason)
        if not was_sent or is_repeatable(delivery, to, under_way.date()):
            wait = wait_before_next(to.hand_off.backoff, delivery.attempts + 1, self._clock.roll())
            settlement = RetryLater(wait, reason)
        await self._settle(under_way, settlement, run)

    async def _settle(
        self, under_way: "_Try", settlement: Settlement, run: DeliveryRun | None
    ) -> None:
        forgiven, under_way.forgiven = under_way.forgiven, 0
        delivery = under_way.delivery
        delivery = replace(delivery, attempts=max(delivery.attempts - forgiven, 0))
        under_way.is_settled = True
        settled = await self._write(
            lambda: self._store.settle(delivery, settlement, run), under_way
        )
        if settled is None:
            return
        if under_way.forgiven:  # while it was being written
            with suppress(StoreError):
                await self._store.forgive([delivery.id] * under_way.forgiven)
        if not settled.is_open:
            self._ended(settled)

    async def _write(
        self, write: Callable[[], Awaitable[Delivery | TransitionRefusal]], under_way: "_Try"
    ) -> Delivery | None:
        """Write down how a try ended, however long the file may need to come back.

        Until then the delivery takes up its place among those under way. A process that ends leaves
        it as being sent: the next one decides, by the rule for dead owners.
        """
        while True:
            with suppress(StoreError):
                written = await write()
                if isinstance(written, Delivery):
                    return written
                _log.warning(
                    "delivery %s is not this process's any more (%s)",
                    under_way.delivery.id,
                    written,
                )
                return None
            if under_way.is_cut:
                _log.error(
                    "how a try of delivery %s ended cannot be written down", under_way.delivery.id
                )
                return None
            await asyncio.sleep(_AFTER_FAULT)

    def _ended(self, delivery: Delivery) -> None:
        """Count and log the end of a delivery.

        Its key needs nothing: duplicates are answered by what the file has of the delivery.
        """
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


_WAITING, _RETRYING = DeliveryState.WAITING, DeliveryState.RETRYING


class _Try:
    """One try that is under way."""

    __slots__ = (
        "_clock",
        "delivery",
        "exchange",
        "forgiven",
        "is_cut",
        "is_settled",
        "line",
        "offset",
        "settings",
        "taken",
        "task",
        "to",
    )

    def __init__(
        self,
        taken: Taken,
        to: DeliveryRoute,
        settings: Settings,
        line: UpstreamLine,
        clock: Clock,
    ) -> None:
        self.taken = taken
        self.delivery = taken.delivery
        self.to = to
        self.settings = settings
        self.line = line
        self._clock = clock
        self.offset = taken.delivery.last_try - clock.monotonic()
        """What the dates of the delivery are ahead of the monotonic clock: whoever sets the wall
        clock meanwhile changes nothing."""
        self.forgiven = 0
        """Attempts of earlier tries that turned out to be the upstream's failures."""
        self.is_settled = False
        """Whether it was decided how the try ended."""
        self.is_cut = False
        """Whether the drain has run out of time."""
        self.exchange: DeliveryExchange | None = None
        self.task: asyncio.Task[Attempt | NotSent] | None = None

    def date(self) -> float:
        """Return the date, as the delivery's times have it."""
        return self._clock.monotonic() + self.offset

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
