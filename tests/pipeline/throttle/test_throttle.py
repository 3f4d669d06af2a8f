"""A throttle: a limiter for all, or one for each caller, as many as are needed and no more."""

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.exchange import Exchange
from proxy.core.recorders import ThrottleState
from proxy.pipeline.throttle.async_limiter import AsyncLimiter
from proxy.pipeline.throttle.throttle import Throttle
from proxy.policy.settings import CallerSource, Rate, ThrottleKey, ThrottleSettings
from proxy.policy.throttle.limiter import LimiterListener, Limiters
from proxy.policy.throttle.wait_queue import ThrottleCause
from tests.pipeline.throttle.waiters import Decisions, begun, cancelled, gather, timers, visitor
from tests.policy.throttle.textbook import textbook_limiters
from tests.support import virtual_time
from tests.support.clock import FakeClock

pytestmark = virtual_time


BY_ACCOUNT = ThrottleSettings(
    (Rate(10, 1.0),), burst=2, key=ThrottleKey(CallerSource.HEADER, "account"), max_keys=3
)


class Stage:
    """A throttle, its clock, and the names of the buckets that were made."""

    def __init__(
        self, settings: ThrottleSettings = BY_ACCOUNT, digest_key: bytes = b"secret"
    ) -> None:
        self.clock = FakeClock()
        self.names: list[str] = []
        self.throttle = Throttle(
            ("route", "api"),
            settings,
            self.new_permits,
            Decisions(),
            self.clock,
            digest_key=digest_key,
        )

    def new_permits(self, name: str, settings: ThrottleSettings, _: LimiterListener) -> Limiters:
        self.names.append(name)
        return textbook_limiters(settings, self.clock.monotonic())

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def limiter(self, account: str) -> AsyncLimiter:
        return self.throttle.limiter_for(of(account))

    def state(self) -> ThrottleState:
        return self.throttle.state(self.now)


def of(account: str) -> Exchange:
    return visitor((b"Account", account.encode()))


# Who goes where.


async def test_without_a_key_there_is_one_gate() -> None:
    stage = Stage(replace(BY_ACCOUNT, key=None))
    assert {stage.limiter(account) for account in "abc"} == {stage.throttle.common}
    assert not stage.throttle.common.is_keyed
    assert stage.names == ["route:api"]


@pytest.mark.parametrize(
    ("key", "one", "same", "other"),
    [
        pytest.param(
            ThrottleKey(CallerSource.HEADER, "account"),
            visitor((b"Account", b"a")),
            visitor((b"ACCOUNT", b"a"), target="/other"),
            visitor((b"Account", b"b")),
            id="a header",
        ),
        pytest.param(
            ThrottleKey(CallerSource.QUERY, "k"),
            visitor(target="/?k=a"),
            visitor(target="/other?x=1&k=%61"),
            visitor(target="/?k=b"),
            id="a parameter",
        ),
        pytest.param(
            ThrottleKey(CallerSource.CLIENT_IP),
            visitor(client_ip="192.0.2.1"),
            visitor(client_ip="192.0.2.1", target="/other"),
            visitor(client_ip="192.0.2.2"),
            id="an address",
        ),
    ],
)
async def test_each_value_has_a_gate(
    key: ThrottleKey, one: Exchange, same: Exchange, other: Exchange
) -> None:
    throttle = Stage(replace(BY_ACCOUNT, key=key)).throttle
    limiters = [throttle.limiter_for(exchange) for exchange in (one, same, other)]
    assert limiters[0] is limiters[1]
    assert len({*limiters, throttle.common}) == 3
    assert all(limiter.is_keyed for limiter in limiters)
    assert throttle.limiter_for(visitor()) is throttle.common, "it has no value"
    throttle.close()


async def test_buckets_are_named_after_a_digest() -> None:
    stage = Stage()
    stage.limiter("secret")
    common, own = stage.names
    assert common == "route:api"
    assert own.startswith("route:api:")
    assert "secret" not in own
    stage.throttle.close()


async def test_beyond_the_most_new_ones_share() -> None:
    stage = Stage()
    limiters = [stage.limiter(account) for account in "abc"]
    for limiter in limiters:
        assert limiter.queue.take(stage.now)
    shared = {stage.limiter(str(number)) for number in range(5000)}
    assert len(shared) == 256
    assert shared.isdisjoint({*limiters, stage.throttle.common})
    assert all(limiter.is_keyed for limiter in shared)
    assert stage.limiter("d") is stage.limiter("d")
    assert stage.limiter("b") is limiters[1], "who has one keeps it"
    assert stage.state().buckets == 1 + 3 + 256
    assert set(stage.names[4:]) == {f"route:api:{number:02x}" for number in range(256)}
    stage.throttle.close()


async def test_who_was_answered_well_gets_its_own_again() -> None:
    stage = Stage()
    for account in "abc":
        assert stage.limiter(account).queue.take(stage.now)
    own, shared = stage.limiter("b"), stage.limiter("d")
    stage.throttle.record_success(of("b"), own)
    stage.throttle.record_success(of("d"), shared)
    assert own.is_known
    assert not shared.is_known, "it is not of one caller"
    mine = stage.limiter("d")
    assert mine not in (shared, stage.throttle.common)
    assert mine.is_known
    assert stage.limiter("b") is own
    assert stage.limiter("a") is not own, "the oldest that is not known has lost its place"
    assert stage.state().buckets >= 5
    stage.throttle.close()


async def test_digests_depend_on_a_key() -> None:
    names = []
    for key in (b"one", b"other", b"one"):
        stage = Stage(digest_key=key)
        stage.limiter("a")
        names.append(stage.names[1])
        stage.throttle.close()
    assert names[0] == names[2] != names[1]


async def test_who_is_not_missed_makes_room_wherever_it_stands() -> None:
    stage = Stage()
    limiters = {account: stage.limiter(account) for account in "abc"}
    calls = {account: limiter.queue.take(stage.now) for account, limiter in limiters.items()}
    shared = stage.limiter("d")
    assert calls["b"] is not None
    calls["b"].close()
    assert stage.limiter("d") is shared, "a new one would have more permits"
    stage.clock.advance(1.0)
    assert stage.limiter("d") is not shared
    assert (stage.limiter("a"), stage.limiter("c")) == (limiters["a"], limiters["c"])
    assert stage.limiter("b") is not limiters["b"]
    stage.throttle.close()


async def test_who_was_here_last_stays_longest() -> None:
    stage = Stage()
    first, *_ = [stage.limiter(account) for account in "abc"]
    assert stage.limiter("a") is first
    stage.limiter("d")  # in the place of b
    assert stage.limiter("a") is first
    assert stage.state().buckets == 4
    stage.throttle.close()


# Those who are gone.


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose timers a test can make due."""

    passed = 0.0

    def time(self) -> float:
        return super().time() + self.passed

    async def jump(self, seconds: float) -> None:
        """Let so many seconds pass for its timers."""
        self.passed += seconds
        for _ in range(3):
            await asyncio.sleep(0)


def on_a_jumping_loop(story: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(story)


def test_idle_callers_are_forgotten_after_a_while() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        stage = Stage()
        assert timers() == 0
        busy, paused, idle = (stage.limiter(account) for account in "abc")
        assert timers() == 1, "one looks after all of them"
        one, other = (each.queue.take(stage.now) for each in (busy, idle))
        assert one is not None
        assert other is not None
        other.close()
        paused.pause(stage.now, 60.0)
        stage.clock.advance(10.0)
        await loop.jump(10.0)
        assert stage.state().buckets == 3
        assert (stage.limiter("a"), stage.limiter("b")) == (busy, paused)
        assert stage.limiter("c") is not idle
        one.close()
        stage.clock.advance(61.0)
        await loop.jump(10.0)
        assert stage.state().buckets == 1
        assert timers() == 0, "there is nobody to look after"
        stage.limiter("a")
        assert timers() == 1
        stage.throttle.close()
        assert timers() == 0

    on_a_jumping_loop(story())


# What goes on.


async def test_its_state_is_that_of_all_buckets() -> None:
    stage = Stage(replace(BY_ACCOUNT, concurrency=1))
    for account in "ab":
        assert stage.limiter(account).queue.take(stage.now)
    waiting = [
        await begun(stage.limiter(account).wait_in_queue(of(account), math.inf))
        for account in "aab"
    ]
    now = stage.now
    stage.limiter("a").pause(now, 2.0)
    stage.throttle.common.pause(now, 3.0)
    state = stage.throttle.state(now)
    assert replace(state, paused_for=round(state.paused_for, 6)) == ThrottleState(
        waiting=3, under_way=2, buckets=3, paused=2, paused_for=3.0
    )
    for task in waiting:
        await cancelled(task)
    assert stage.throttle.state(now + 9) == ThrottleState(
        waiting=0, under_way=2, buckets=3, paused=0, paused_for=0.0
    )
    stage.throttle.close()
    assert timers() == 0


async def test_it_tells_where_it_stands() -> None:
    stage = Stage()
    stage.limiter("a")
    assert repr(stage.throttle) == "<throttle route:api, 2 limiters>"
    stage.throttle.close()


# Other settings.


async def test_other_limits_hold_for_every_caller_and_its_line() -> None:
    stage = Stage(replace(BY_ACCOUNT, rates=(Rate(1, 3600.0),), burst=1, max_wait=None))
    waiting = []
    for account in "ab":
        assert stage.limiter(account).queue.take(stage.now)
        waiting.append(await begun(stage.limiter(account).wait_in_queue(of(account), math.inf)))
    stage.throttle.change(replace(BY_ACCOUNT, rates=()))
    assert all(not isinstance(waited, ThrottleCause) for waited in await gather(*waiting))
    stage.throttle.close()


async def test_the_same_settings_change_nothing() -> None:
    stage = Stage()
    limiter = stage.limiter("a")
    assert limiter.queue.take(stage.now)
    before = repr(limiter.queue.rates)
    stage.throttle.change(replace(BY_ACCOUNT))
    assert stage.limiter("a") is limiter
    assert repr(limiter.queue.rates) == before
    stage.throttle.close()


async def test_with_another_key_all_begin_anew_and_those_in_queue_get_their_turn() -> None:
    stage = Stage(replace(BY_ACCOUNT, rates=(Rate(100, 1.0),), burst=1))
    before = stage.limiter("a")
    assert before.queue.take(stage.now)
    waiting = await begun(before.wait_in_queue(of("a"), math.inf))
    stage.throttle.change(replace(BY_ACCOUNT, key=ThrottleKey(CallerSource.QUERY, "k")))
    assert stage.limiter("a") is stage.throttle.common
    assert stage.throttle.limiter_for(visitor(target="/?k=a")) is not before
    assert stage.state().buckets == 2
    [waited] = await gather(waiting)
    assert not isinstance(waited, ThrottleCause)
    stage.throttle.close()


@pytest.mark.parametrize("has_key", [False, True], ids=["no key any more", "a key where was none"])
async def test_a_gate_knows_whether_it_is_one_callers(*, has_key: bool) -> None:
    keyless = replace(BY_ACCOUNT, key=None)
    stage = Stage(keyless if has_key else BY_ACCOUNT)
    stage.limiter("a")
    stage.throttle.change(BY_ACCOUNT if has_key else keyless)
    assert stage.limiter("a").is_keyed is has_key
    assert stage.throttle.common.is_keyed is has_key
    stage.throttle.close()
