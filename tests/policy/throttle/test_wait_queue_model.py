"""A wait queue in any order of events, beside a plain account of what happened to each caller."""

import math
from copy import deepcopy
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from proxy.policy.settings import Rate, RateAlgorithm, ThrottleSettings
from proxy.policy.throttle.wait_queue import Reservation, ThrottleCause, Waiter, WaitQueue
from tests.policy.throttle.textbook import textbook_limiters
from tests.support.depth import fewer

SECOND = 1_000_000_000


def after(clock: int, wait: float) -> int:
    """So many seconds later, in whole nanoseconds: never too early but for what a float lacks."""
    return clock + max(math.ceil(wait * SECOND - 0.001), 1)


rates = st.sampled_from([Rate(10, 1.0), Rate(3, 1.0), Rate(1, 0.25), Rate(50, 2.0)])
all_settings = st.builds(
    ThrottleSettings,
    rates=st.lists(rates, max_size=2, unique=True).map(tuple),
    burst=st.integers(1, 4),
    algorithm=st.sampled_from(RateAlgorithm),
    concurrency=st.sampled_from([None, None, 1, 3]),
    max_wait=st.sampled_from([None, 5.0, 1.0, 0.2, 0.0]),
    max_queue=st.sampled_from([1000, 3, 0]),
    longest_pause=st.sampled_from([60.0, 1.0, None]),
)
nanoseconds = st.one_of(
    st.sampled_from([0, 1, 100_000_000, 250_000_000, SECOND, 5 * SECOND, 100 * SECOND]),
    st.integers(0, SECOND),
)


class Caller(Waiter):
    """A caller, and what became of it."""

    def __init__(self, number: int, entered: float, deadline: float) -> None:
        super().__init__(entered, deadline)
        self.number = number
        self.has_left = False
        self.was_held_before = False
        """Whether its permit was reserved while other limits applied, or before a pause."""
        self.held: Reservation | None = None
        """What it has got of the queue."""

    @property
    def is_gone(self) -> bool:
        return self.has_left


class Line(RuleBasedStateMachine):
    """Time is counted in whole nanoseconds, so that no rate may be exceeded by even one."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = 1000 * SECOND
        self.callers = 0
        self.in_queue: list[Caller] = []
        self.back: list[Caller] = []
        self.reserved: list[Caller] = []
        self.lapsed: list[Caller] = []
        """Callers that came back: they have their slots, and no permit."""
        self.aside: list[Caller] = []
        """Callers for which a connection is made."""
        self.sending: list[Caller] = []
        self.last_out = 0
        """The number of the last caller that was released for the first time."""
        self.sent: list[int] = []
        """When, since the present limits hold."""
        self.opens = 0.0

    @initialize(settings=all_settings)
    def begin(self, settings: ThrottleSettings) -> None:
        self.queue: WaitQueue[Caller] = WaitQueue(settings, textbook_limiters(settings, self.now))

    @property
    def now(self) -> float:
        return self.clock / SECOND

    @property
    def placed(self) -> list[Caller]:
        """Callers that have their slots."""
        return [*self.back, *self.reserved, *self.lapsed, *self.aside, *self.sending]

    # What the world does.

    @rule(
        within=st.sampled_from([math.inf, math.inf, 3.0, 0.3, 0.0]),
        does=st.sampled_from(["send", "send", "reserve", "set aside"]),
    )
    def come(self, within: float, does: str) -> None:
        now = self.now
        self.callers += 1
        caller = Caller(self.callers, now, now + within)
        caller.held = self.queue.reserve(now) if does == "reserve" else self.queue.take(now)
        if caller.held is not None:
            self.first_turn(caller)
            if does == "send":
                self.send(caller)
            elif does == "reserve":
                self.reserved.append(caller)
            else:
                caller.held.set_aside(now)
                self.aside.append(caller)
            return
        refusal = self.queue.refusal(now, within)
        if refusal is None:
            self.queue.join(caller, now)
            self.in_queue.append(caller)
            self.look()
        else:
            self.check_refusal(refusal.cause, refusal.wait, within)
        self.check_promise(within, is_in=refusal is None)

    @rule(step=nanoseconds, stalled=st.booleans())
    def time_passes(self, step: int, *, stalled: bool) -> None:
        """Serve the queue whenever it asks for it, unless the loop is *stalled*."""
        end = self.clock + step
        in_vain = 0
        while not stalled and (wait := self.queue.next_look(self.now)) is not None:
            due = after(self.clock, wait)
            if due > end:
                break
            self.clock = due
            in_vain = 0 if self.look() else in_vain + 1
            # While all permits are held nobody can tell when there is another one.
            assert in_vain < 3 or self.reserved, "it wakes up all the time, for nothing"
        self.clock = end
        self.look()

    @precondition(lambda self: self.in_queue or self.back)
    @rule(data=st.data(), later=st.booleans())
    def leave(self, data: st.DataObject, *, later: bool) -> None:
        """Let a caller leave; if *later*, the queue finds out by itself."""
        caller = data.draw(st.sampled_from([*self.in_queue, *self.back]))
        if later:
            caller.has_left = True
            return
        self.queue.leave(caller)
        if caller in self.back:
            self.back.remove(caller)
            self.lapsed.append(caller)
        else:
            self.in_queue.remove(caller)
        self.look()

    @precondition(lambda self: self.reserved)
    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        caller = data.draw(st.sampled_from(self.reserved))
        self.reserved.remove(caller)
        assert caller.held is not None
        if caller.held.commit(self.now):
            self.send(caller)
        else:
            assert self.now < self.opens or caller.was_held_before
            self.lapsed.append(caller)

    @precondition(lambda self: self.aside)
    @rule(data=st.data())
    def connected(self, data: st.DataObject) -> None:
        caller = data.draw(st.sampled_from(self.aside))
        self.aside.remove(caller)
        assert caller.held is not None
        caller.held.release()
        self.lapsed.append(caller)

    @precondition(lambda self: self.reserved)
    @rule(data=st.data())
    def lapse(self, data: st.DataObject) -> None:
        caller = data.draw(st.sampled_from(self.reserved))
        self.reserved.remove(caller)
        assert caller.held is not None
        caller.held.release()
        caller.was_held_before = False
        self.lapsed.append(caller)
        self.look()

    @precondition(lambda self: self.lapsed)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        caller = data.draw(st.sampled_from(self.lapsed))
        caller.entered, caller.has_left, caller.was_held_before = self.now, False, False
        caller.reservation = caller.held
        assert caller.held is not None
        if self.queue.reserve_again(caller.held, self.now):
            assert not self.back
            self.lapsed.remove(caller)
            self.reserved.append(caller)
        elif self.queue.come_back(caller):
            self.lapsed.remove(caller)
            self.back.append(caller)
            self.look()
        else:
            assert self.opens > min(caller.deadline, self.now + self.patience)

    @precondition(lambda self: self.lapsed or self.sending or self.aside or self.reserved)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        lists = (self.lapsed, self.sending, self.aside, self.reserved)
        caller = data.draw(st.sampled_from([caller for each in lists for caller in each]))
        next(each for each in lists if caller in each).remove(caller)
        assert caller.held is not None
        caller.held.close()
        self.look()

    @rule(seconds=st.sampled_from([0.0, 0.1, 0.5, 2.0, 10.0]))
    def pause(self, seconds: float) -> None:
        longest = self.queue.settings.longest_pause
        if longest is not None and seconds:
            self.opens = max(self.opens, self.now + min(seconds, longest))
            for caller in self.reserved:
                caller.was_held_before = True
        for caller in self.queue.pause(self.now, seconds):
            assert min(caller.deadline, caller.entered + self.patience) < self.opens
            self.refused(caller)
        assert self.queue.paused_for(self.now) == max(self.opens - self.now, 0)
        self.look()

    @rule(settings=all_settings)
    def change(self, settings: ThrottleSettings) -> None:
        self.queue.change(settings, self.now)
        self.opens = min(self.opens, self.now + (settings.longest_pause or 0.0))
        self.sent.clear()
        for caller in self.reserved:
            caller.was_held_before = True
        self.look()

    # What comes of it.

    @property
    def patience(self) -> float:
        max_wait = self.queue.settings.max_wait
        return math.inf if max_wait is None else max_wait

    def first_turn(self, caller: Caller) -> None:
        assert caller.number > self.last_out, "somebody who came later went first"
        self.last_out = caller.number
        most = self.queue.settings.concurrency
        assert most is None or self.queue.under_way <= most

    def look(self) -> bool:
        served = self.queue.serve(self.now)
        assert not served.out or self.now >= self.opens
        for caller, reservation in served.out:
            assert not caller.has_left
            assert caller.held in {None, reservation}
            caller.held = reservation
            if caller in self.back:
                assert not any(not before.has_left for before in self.back_before(caller))
                self.back.remove(caller)
            else:
                self.in_queue.remove(caller)
                self.first_turn(caller)
            self.reserved.append(caller)
        for caller, cause in served.refused:
            assert not caller.has_left
            assert cause in {ThrottleCause.MAX_WAIT, ThrottleCause.PAUSED}
            assert caller.entered + self.patience <= self.now
            self.refused(caller)
        self.forget_those_who_left()
        return bool(served.out or served.refused)

    def back_before(self, caller: Caller) -> list[Caller]:
        return self.back[: self.back.index(caller)]

    def forget_those_who_left(self) -> None:
        """Forget callers that left, once the queue has removed them."""
        known = {*self.queue.waiters, *self.queue.returned}
        self.lapsed += [caller for caller in self.back if caller.has_left and caller not in known]
        for line in (self.in_queue, self.back):
            line[:] = [caller for caller in line if not caller.has_left or caller in known]

    def refused(self, caller: Caller) -> None:
        if caller in self.back:
            self.back.remove(caller)
            self.lapsed.append(caller)
        else:
            self.in_queue.remove(caller)

    def send(self, caller: Caller) -> None:
        self.sending.append(caller)
        assert self.now >= self.opens
        self.sent.append(self.clock)
        settings = self.queue.settings
        for rate in settings.rates:
            if settings.algorithm is RateAlgorithm.WINDOW:
                together, apart = rate.count, round(rate.period * SECOND)
                if len(self.sent) > together:
                    assert self.sent[-1] - self.sent[-1 - together] >= apart
            else:
                for count, at in enumerate(reversed(self.sent), start=1):
                    spare = count - (settings.burst or 1)
                    assert (self.clock - at) * rate.count >= spare * round(rate.period * SECOND)

    # The same once more, in a world in which nothing else happens.

    def alone(self, settings: ThrottleSettings) -> WaitQueue[Caller]:
        """A copy in which all who hold a permit send now."""
        queue, reserved = deepcopy((self.queue, [caller.held for caller in self.reserved]))
        queue.settings = settings
        for reservation in reserved:
            assert reservation is not None
            if not reservation.commit(self.now):
                # The caller has its slot, and nothing else to do than to wait.
                caller = Caller(0, self.now, math.inf)
                caller.reservation = reservation
                queue.come_back(caller)
        return queue

    def when_it_goes(self) -> float:
        """Return the seconds until one more would be released; only rates hold it back."""
        queue = self.alone(replace(self.queue.settings, max_wait=None))
        one = Caller(0, self.now, math.inf)
        queue.join(one, self.now)
        clock = self.clock
        while True:
            served = queue.serve(clock / SECOND)
            if any(caller is one for caller, _ in served.out):
                return (clock - self.clock) / SECOND
            for _, reservation in served.out:
                assert reservation.commit(clock / SECOND)
            wait = queue.next_look(clock / SECOND)
            assert wait is not None
            clock = after(clock, wait)

    @property
    def rounding(self) -> int:
        """Nanoseconds that it may take longer: everybody ahead goes at a whole one."""
        return len(self.in_queue) + len(self.back) + len(self.reserved) + 1

    @property
    def can_be_foretold(self) -> bool:
        """Slots become free when they do, and several windows delay each other."""
        settings = self.queue.settings
        is_simple = settings.algorithm is RateAlgorithm.GCRA or len(settings.rates) < 2
        nobody_is_gone = not any(caller.has_left for caller in (*self.in_queue, *self.back))
        return settings.concurrency is None and is_simple and nobody_is_gone and not self.aside

    def check_refusal(self, cause: ThrottleCause, wait: float, within: float) -> None:
        """Refused only if there is no other way; and who obeys Retry-After passes."""
        if cause is ThrottleCause.QUEUE_FULL:
            assert len(self.in_queue) + len(self.back) >= self.queue.settings.max_queue
        elif cause is ThrottleCause.PAUSED:
            assert self.now + min(self.patience, within) < self.opens
        if not self.can_be_foretold:
            return
        if cause in {ThrottleCause.MAX_WAIT, ThrottleCause.DEADLINE} and self.patience:
            assert self.when_it_goes() > min(self.patience, within) - 1e-9
        queue = self.alone(self.queue.settings)
        clock, end = self.clock, after(self.clock, wait) + self.rounding
        while (step := queue.next_look(clock / SECOND)) is not None and clock < end:
            clock = min(after(clock, step), end)
            for _, reservation in queue.serve(clock / SECOND).out:
                assert reservation.commit(clock / SECOND)
        assert queue.take(end / SECOND)

    def check_promise(self, within: float, *, is_in: bool) -> None:
        """Check that a caller that was queued is released in time, as things stand."""
        if not is_in or not self.can_be_foretold or not self.in_queue:
            return
        newest = self.in_queue[-1]
        if newest.number != self.callers:
            return  # it went at once
        self.queue.leave(newest)
        try:
            patience = min(self.patience, within) + self.rounding / SECOND
            assert self.when_it_goes() <= patience
        finally:
            self.queue.join(newest, self.now)

    @invariant()
    def nobody_is_counted_twice(self) -> None:
        if not hasattr(self, "queue"):
            return
        assert self.queue.under_way == len(self.placed)
        assert self.queue.reserved == len(self.reserved)
        assert self.queue.waiting == len(self.in_queue) + len(self.back)
        everybody = [*self.in_queue, *self.placed]
        assert len(everybody) == len(set(everybody))

    def teardown(self) -> None:
        """When all have gone it is as good as new."""
        if not hasattr(self, "queue"):
            return
        for caller in (*self.in_queue, *self.back):
            self.queue.leave(caller)
        for caller in self.placed:
            assert caller.held is not None
            caller.held.close()
        assert self.queue.reserved == self.queue.under_way == 0
        assert self.queue.is_idle(self.now + 1000)
        assert self.queue.next_look(self.now) is None


TestLine = Line.TestCase
TestLine.settings = fewer(3)
