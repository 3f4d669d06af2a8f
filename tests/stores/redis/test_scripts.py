"""What the server does for us, step by step, by a client that is not ours."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from proxy.stores.redis.scripts import BEAT, CONCURRENCY, PERMITS
from tests.support.redis_server import RedisServer
from tests.support.waiting import PATIENCE

HOUR = 3_600_000_000
SECOND = 1_000_000
KEY = "holdfast:route:x"
Limit = tuple[int, int, int]
"""Count, period in microseconds, burst."""


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[Redis]:
    async with server.client() as client:
        await client.flushall()
        yield client


async def ask(
    client: Redis,
    want: int,
    *limits: Limit,
    pause: int = 0,
    who: str = "us",
    ahead: int = 0,
    early: int = 0,
    alone: tuple[int, int, int] = (0, 0, 0),
) -> list[int]:
    """All that the script answers to *who*."""
    numbers = [number for limit in limits for number in (*limit, early)]
    about: list[int | str] = [want, pause, 60 * SECOND, ahead]
    about += ["holdfast:pauses", who, "route:x", *alone]
    answer: list[int] = await client.eval(PERMITS.text, 1, KEY, *about, *numbers)
    return answer


async def take(client: Redis, want: int, *limits: Limit, pause: int = 0) -> list[int]:
    """Permits given, and the times until there is another one and until the pause is over."""
    return (await ask(client, want, *limits, pause=pause))[:3]


async def report(
    client: Redis,
    who: str,
    kept: int,
    want: int,
    *,
    limit: int = 10,
    lease: int = SECOND,
    after: int = HOUR,
) -> int:
    """Return how many concurrency slots *who* may use."""
    args: list[int | str] = [who, kept, want, limit, lease, after]
    (may,) = await client.eval(CONCURRENCY.text, 1, KEY, *args)
    return int(may)


async def now(client: Redis) -> int:
    seconds, micros = await client.time()
    return int(seconds) * SECOND + int(micros)


# Permits.


@pytest.mark.parametrize(
    ("wants", "limits", "given"),
    [
        pytest.param([3], [(60, HOUR, 5)], [3], id="as many as are wanted"),
        pytest.param([9], [(60, HOUR, 5)], [5], id="but no more than the burst"),
        pytest.param([3, 3, 3], [(60, HOUR, 5)], [3, 2, 0], id="what is gone is gone"),
        pytest.param([9], [(60, HOUR, 5), (9, HOUR, 2)], [2], id="as many as all rates give"),
        pytest.param([0], [(60, HOUR, 5)], [0], id="none, to hear of a pause"),
        pytest.param([7], [], [7], id="without a rate all"),
        pytest.param([1] * 3, [(1, 24 * HOUR, 2)], [1, 1, 0], id="one a day"),
        pytest.param([10**6], [(10**6, SECOND, 10**5)], [10**5], id="a hundred thousand at once"),
    ],
)
async def test_how_many_are_given(
    client: Redis, wants: list[int], limits: list[Limit], given: list[int]
) -> None:
    assert [(await take(client, want, *limits))[0] for want in wants] == given


async def test_a_rate_that_gives_more_is_charged_for_what_was_given(client: Redis) -> None:
    assert (await take(client, 9, (60, HOUR, 5), (9, HOUR, 2)))[0] == 2
    await client.hdel(KEY, "2")
    assert (await take(client, 9, (60, HOUR, 5), (9, HOUR, 9)))[0] == 3


async def test_a_third_of_a_second_does_not_drift(client: Redis) -> None:
    """Three a second for three hundred permits: a hundred seconds, to the microsecond."""
    before = await now(client)
    for _ in range(300):
        assert (await take(client, 1, (3, SECOND, 1000)))[0] == 1
    tat, rest, *_ = str(await client.hget(KEY, "1")).split()
    first = int(tat) - 100 * SECOND
    assert before <= first <= await now(client)
    assert rest == "0"


async def test_when_the_next_one_comes(client: Redis) -> None:
    given, next_in, _ = await take(client, 9, (60, HOUR, 5))
    assert (given, next_in) == (5, 60 * SECOND)
    given, next_in, _ = await take(client, 9, (60, HOUR, 5))
    assert given == 0
    assert 59 * SECOND < next_in <= 60 * SECOND


@pytest.mark.parametrize(
    "value",
    [
        "99999999999999999 0 99999999999999990 60 3600000000 5 0",
        "9" * 40 + " 0 " + "9" * 40 + " 60 3600000000 5 0",
    ],
    ids=["the clock was set back by millennia", "by aeons"],
)
async def test_a_state_from_the_future_costs_a_burst_at_most(client: Redis, value: str) -> None:
    await client.hset(KEY, "1", value)
    given, next_in, _ = await take(client, 9, (60, HOUR, 5))
    assert (given, next_in) == (0, 60 * SECOND)
    _, later, _ = await take(client, 9, (60, HOUR, 5))
    assert later < next_in, "it must not be put off again and again"


@pytest.mark.parametrize(
    "value",
    ["", "x", "1e9 0 60", "-5 0 1 60 1 1 0", "1 2 3 0 5 1 0", "nan nan 1 1 1 1 0", "1 2 3 4 5 0 7"],
)
async def test_a_state_that_makes_no_sense_is_none(client: Redis, value: str) -> None:
    await client.hset(KEY, mapping={"1": value, "pause": value})
    assert (await take(client, 9, (60, HOUR, 5)))[0] == 5


async def test_a_key_that_is_no_bucket_becomes_one(client: Redis) -> None:
    await client.set(KEY, "something else")
    assert (await take(client, 9, (60, HOUR, 5)))[0] == 5
    await client.set(KEY, "something else")
    assert await report(client, "a", 0, 3, limit=3) == 3


@pytest.mark.parametrize(
    ("taken", "old", "new", "left"),
    [
        pytest.param(3, (60, HOUR, 3), (60, HOUR, 50), 47, id="a larger burst"),
        pytest.param(3, (60, HOUR, 9), (60, HOUR, 4), 1, id="a smaller burst holds at once"),
        pytest.param(3, (60, HOUR, 5), (600, HOUR, 5), 2, id="a larger rate leaves what is left"),
        pytest.param(3, (7, HOUR, 5), (3, HOUR, 5), 2, id="a smaller one as well"),
    ],
)
async def test_a_limit_that_is_changed(
    client: Redis, taken: int, old: Limit, new: Limit, left: int
) -> None:
    assert (await take(client, taken, old))[0] == taken
    assert (await take(client, 99, new))[0] == left


async def test_a_bucket_is_forgotten_when_it_is_full_and_not_before(client: Redis) -> None:
    await take(client, 5, (60, HOUR, 5))
    assert 300_000 <= await client.pttl(KEY) <= 306_000
    await report(client, "a", 0, 1, limit=1)
    assert await client.pttl(KEY) > 299_000, "slots need less"


async def test_a_changed_limit_counts_from_the_last_call(client: Redis) -> None:
    assert (await take(client, 1, (3600, HOUR, 1)))[0] == 1
    given, next_in, _ = await take(client, 1, (1, HOUR, 1))
    assert given == 0
    assert HOUR - SECOND < next_in <= HOUR
    given, next_in, _ = await take(client, 1, (3600, HOUR, 1))
    assert given == 0
    assert 0 < next_in <= SECOND


async def test_instances_that_do_not_agree_on_a_limit_gain_nothing(client: Redis) -> None:
    """One after the other they are told of a change; meanwhile each is held to its own."""
    for _ in range(20):
        assert (await take(client, 10, (60, HOUR, 10)))[0] <= 10
        assert (await take(client, 10, (30, HOUR, 3)))[0] <= 3
    sent = 0
    await client.flushall()
    for _ in range(20):
        sent += (await take(client, 10, (60, HOUR, 10)))[0]
        sent += (await take(client, 10, (30, HOUR, 3)))[0]
    assert sent == 10
    await client.flushall()
    sent = sum([(await take(client, 10, (30, HOUR, 3)))[0] for _ in range(3)])
    sent += (await take(client, 99, (60, HOUR, 10)))[0]
    assert sent == 10
    given, next_in, _ = await take(client, 1, (30, HOUR, 3))
    assert given == 0, "the slower one was not given anything meanwhile"
    assert next_in <= HOUR // 30


async def test_permits_are_given_before_their_time_and_told_when_it_comes(client: Redis) -> None:
    limit, ahead = (10, SECOND, 1), 250_000
    given, next_in, _, _, first = await ask(client, 9, limit, ahead=ahead)
    assert (given, first) == (3, 0)
    assert next_in == 50_000, "the fourth one's time comes at 0.3 s"
    given, next_in, _, _, first = await ask(client, 9, limit, ahead=0)
    assert given == 0
    assert 200_000 < first <= 300_000


async def test_a_little_early_is_in_time(client: Redis) -> None:
    given, next_in, _, _, first = await ask(client, 9, (1000, SECOND, 1), early=5000)
    assert (given, next_in, first) == (6, 1000, -5000)


async def test_what_was_sent_without_us_counts(client: Redis) -> None:
    limit = (60, HOUR, 1)
    assert (await ask(client, 0, limit, alone=(1, SECOND, SECOND)))[0] == 0
    given, next_in, *_ = await ask(client, 1, limit)
    assert given == 0
    assert 58 * SECOND < next_in <= 60 * SECOND
    await ask(client, 0, limit, alone=(1, SECOND, SECOND))
    _, next_in, *_ = await ask(client, 1, limit)
    assert 117 * SECOND < next_in <= 120 * SECOND, "one for each of two instances"


@pytest.mark.parametrize(
    ("last_ago", "next_in"),
    [
        pytest.param(0, 60, id="just now"),
        pytest.param(20, 40, id="in between"),
        pytest.param(30, 30, id="when it was due"),
        pytest.param(80, 30, id="much before"),
    ],
)
async def test_what_was_sent_late_counts_from_then(
    client: Redis, last_ago: int, next_in: int
) -> None:
    """One was due half a minute ago; with the next in half a minute there would be one too many."""
    time = await now(client)
    state = f"{time - 30 * SECOND} 0 {time - 90 * SECOND} 60 {HOUR} 1 0"
    await client.hset(KEY, "1", state)
    limit = (60, HOUR, 1)
    await ask(client, 0, limit, alone=(1, 90 * SECOND, last_ago * SECOND))
    _, found, *_ = await ask(client, 1, limit)
    assert (next_in - 2) * SECOND < found <= next_in * SECOND


async def test_what_was_sent_evenly_long_ago_counts_no_more(client: Redis) -> None:
    limit = (60, HOUR, 1)
    for _ in range(3):  # each of three has sent its share in an hour
        await ask(client, 0, limit, alone=(19, HOUR, 190 * SECOND))
    assert (await ask(client, 1, limit))[0] == 1
    await client.flushall()
    await ask(client, 0, limit, alone=(10_000, HOUR, 0))
    _, next_in, *_ = await ask(client, 1, limit)
    assert next_in <= 60 * SECOND, "who sent far too much does not close it for all"


async def test_who_goes_short_learns_that_others_do(client: Redis) -> None:
    async def has_rival(who: str, want: int = 1) -> bool:
        return bool((await ask(client, want, (60, HOUR, 5), who=who))[3])

    assert not await has_rival("a", 9), "it is the first"
    assert not await has_rival("a"), "it is its own rival least of all"
    assert await has_rival("b")
    assert await has_rival("a")
    assert await has_rival("a"), "the last one was itself, but the other one is still there"
    assert await has_rival("c")
    assert await has_rival("b")
    await client.hset(KEY, "short", "b 1 a 1")
    assert not await has_rival("c"), "that was long ago"


async def test_of_a_slow_rate_who_asks_seldom_is_a_rival_all_the_same(client: Redis) -> None:
    """Else whoever is nearest to the store would get every permit, and the others none."""
    limit = (10, 60 * SECOND, 1)  # one each 6 s
    await ask(client, 2, limit, who="a")
    await ask(client, 2, limit, who="b")
    await asyncio.sleep(0.15)
    assert (await ask(client, 2, limit, who="a"))[3] == 1


async def test_who_got_what_it_wanted_is_no_rival(client: Redis) -> None:
    assert (await ask(client, 2, (60, HOUR, 5), who="a"))[3] == 0
    assert (await ask(client, 0, (60, HOUR, 5), who="a"))[3] == 0
    assert (await ask(client, 2, (60, HOUR, 5), who="b"))[3] == 0


async def test_a_pause_closes_it_and_is_told_to_all(client: Redis) -> None:
    async with client.pubsub() as hearing:
        await hearing.subscribe("holdfast:pauses")
        given, next_in, paused_for = await take(client, 3, (60, HOUR, 5), pause=10 * SECOND)
        assert (given, paused_for) == (0, 10 * SECOND)
        assert next_in == 10 * SECOND, "one permit when it opens"
        while (message := await hearing.get_message(timeout=PATIENCE))["type"] != "message":
            pass
        assert message["data"] == "10000000 us route:x"
    given, next_in, paused_for = await take(client, 3, (60, HOUR, 5))
    assert given == 0
    assert 9 * SECOND < next_in == paused_for <= 10 * SECOND
    assert (await take(client, 3, (60, HOUR, 5), pause=1))[2] > 9 * SECOND, "it gets no shorter"
    assert await client.pttl(KEY) > 10_000


async def test_after_a_pause_one_by_one(client: Redis) -> None:
    await take(client, 0, (60, HOUR, 5), pause=1)
    await asyncio.sleep(0.001)
    given, next_in, paused_for = await take(client, 5, (60, HOUR, 5))
    assert (given, paused_for) == (1, 0)
    assert 59 * SECOND < next_in <= 60 * SECOND


async def test_no_pause_is_longer_than_it_may_be(client: Redis) -> None:
    assert (await take(client, 0, pause=HOUR))[2] == 60 * SECOND
    await client.hset(KEY, "pause", "99999999999999999")
    assert (await take(client, 0))[2] == 60 * SECOND
    assert (await take(client, 0))[2] < 60 * SECOND, "it must not be put off again and again"


# Slots.


async def test_slots_for_one(client: Redis) -> None:
    assert await report(client, "a", 0, 3) == 3
    assert await report(client, "a", 3, 30) == 10
    assert await report(client, "a", 10, 10, limit=4) == 4, "the limit was changed"
    assert await report(client, "a", 0, 0) == 0
    assert await client.exists(KEY) == 0


async def test_no_more_than_there_are(client: Redis) -> None:
    assert await report(client, "a", 0, 8) == 8
    assert await report(client, "b", 0, 8) == 2, "the rest"
    assert await report(client, "a", 8, 8) == 5, "its share; it has more in use"
    assert await report(client, "b", 2, 8) == 2, "until those are over"
    assert await report(client, "a", 5, 8) == 5
    assert await report(client, "b", 2, 8) == 5


async def test_who_wants_little_gets_it_and_the_others_share_the_rest(client: Redis) -> None:
    assert await report(client, "small", 0, 1) == 1
    assert await report(client, "b", 0, 50) <= 9
    for _ in range(3):
        b = await report(client, "b", 0, 50)
        c = await report(client, "c", 0, 50)
    assert sorted([b, c]) == [4, 5]
    assert await report(client, "small", 1, 1) == 1


async def test_what_cannot_be_shared_goes_round(client: Redis) -> None:
    after = 300_000
    assert await report(client, "a", 0, 1, limit=1, after=after) == 1
    assert await report(client, "b", 0, 1, limit=1, after=after) == 0
    assert await report(client, "a", 1, 1, limit=1, after=after) == 1, "not yet"
    await asyncio.sleep(0.301)
    assert await report(client, "a", 1, 1, limit=1, after=after) == 0, "another one has waited"
    assert await report(client, "a", 0, 1, limit=1, after=after) == 0, "and goes first"
    assert await report(client, "b", 0, 1, limit=1, after=after) == 1


async def test_the_same_report_twice_is_one(client: Redis) -> None:
    for _ in range(3):
        assert await report(client, "a", 0, 4) == 4
    assert await report(client, "b", 0, 6) == 6


async def test_who_falls_silent_is_forgotten(client: Redis) -> None:
    lease = 300_000
    assert await report(client, "a", 0, 10, lease=lease) == 10
    assert await report(client, "b", 0, 4, lease=lease) == 0
    await asyncio.sleep(0.301)
    assert await report(client, "b", 0, 4, lease=lease) == 4


@pytest.mark.parametrize("value", ["x", "", "5 5 0", "5 5 0 99999999999999999", "5 5 0 0"])
async def test_a_holder_that_makes_no_sense_is_forgotten(client: Redis, value: str) -> None:
    await client.hset(KEY, "at:ghost", value)
    assert await report(client, "a", 0, 10) == 10
    assert not await client.hexists(KEY, "at:ghost")


# Who is there.


async def test_instances_are_counted_while_they_are_heard_of(client: Redis) -> None:
    async def beat(who: str, silence: int) -> int:
        (count,) = await client.eval(BEAT.text, 1, "instances", who, silence)
        return int(count)

    assert await beat("a", SECOND) == 1
    assert await beat("b", SECOND) == 2
    assert await beat("a", SECOND) == 2
    assert await beat("b", 0) == 1, "it said good-bye"
    await client.zadd("instances", {"from the future": 9e15, "long gone": 1})
    assert await beat("c", SECOND) == 2
    assert 0 < await client.pttl("instances") <= 1000
