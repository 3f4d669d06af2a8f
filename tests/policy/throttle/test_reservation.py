"""The life of a reservation: what each step does in each state, and what is left of it."""

import pytest
from hypothesis import given, strategies as st

from proxy.policy.settings import Rate, RateAlgorithm, ThrottleSettings
from proxy.policy.throttle.wait_queue import Reservation, ReservationState, Waiter, WaitQueue
from tests.policy.throttle.textbook import textbook_limiters
from tests.support.depth import FUZZ

START = 1000.0
RESERVED, COMMITTED, ASIDE, RELEASED, CLOSED = ReservationState
HOURLY = ThrottleSettings((Rate(2, 3600.0),), burst=2, concurrency=2)
"""Two at once, and nothing comes back while a test lasts."""

Queue = WaitQueue[Waiter]


def queue_of(settings: ThrottleSettings = HOURLY) -> Queue:
    return WaitQueue(settings, textbook_limiters(settings, START))


def reservation_in(state: ReservationState, queue: Queue) -> Reservation:
    reservation = queue.reserve(START) if state is RESERVED else queue.take(START)
    assert reservation is not None
    if state is ASIDE:
        reservation.set_aside(START)
    elif state is RELEASED:
        reservation.release()
    elif state is CLOSED:
        reservation.release()
        reservation.close()
    assert reservation.state is state
    return reservation


def account(queue: Queue) -> tuple[int, int, int, int]:
    """Permits left to newcomers, permits reserved, calls under way, slots left."""
    rates, slots = queue.quotas(START)
    return rates.remaining - queue.reserved, queue.reserved, queue.under_way, slots.remaining


BEFORE = (2, 0, 0, 2)
"""What there is without any reservation."""

ACCOUNTS = {
    RESERVED: (1, 1, 1, 1),
    COMMITTED: (1, 0, 1, 1),
    ASIDE: (2, 0, 1, 1),
    RELEASED: (2, 0, 1, 1),
    CLOSED: BEFORE,
}
"""What there is with one of each state."""


@pytest.mark.parametrize("state", ReservationState)
def test_what_each_state_takes(state: ReservationState) -> None:
    queue = queue_of()
    reservation_in(state, queue)
    assert account(queue) == ACCOUNTS[state]


@pytest.mark.parametrize(
    ("state", "step", "result", "after"),
    [
        (RESERVED, "commit", True, COMMITTED),
        (COMMITTED, "commit", True, COMMITTED),
        (ASIDE, "commit", False, ASIDE),
        (RELEASED, "commit", False, RELEASED),
        (CLOSED, "commit", False, CLOSED),
        (RESERVED, "release", False, RELEASED),
        (COMMITTED, "release", False, RELEASED),
        (ASIDE, "release", False, RELEASED),
        (RELEASED, "release", False, RELEASED),
        (CLOSED, "release", False, CLOSED),
        (RESERVED, "set_aside", None, RESERVED),
        (COMMITTED, "set_aside", None, ASIDE),
        (ASIDE, "set_aside", None, ASIDE),
        (RELEASED, "set_aside", None, RELEASED),
        (CLOSED, "set_aside", None, CLOSED),
        (RESERVED, "close", False, CLOSED),
        (ASIDE, "close", False, CLOSED),
        (RELEASED, "close", False, CLOSED),
        (CLOSED, "close", False, CLOSED),
    ],
)
def test_each_step_in_each_state(
    state: ReservationState, step: str, result: object, after: ReservationState
) -> None:
    queue = queue_of()
    reservation = reservation_in(state, queue)
    assert _do(reservation, step) is result
    assert reservation.state is after
    assert account(queue) == ACCOUNTS[after]


def _do(reservation: Reservation, step: str) -> object:
    match step:
        case "commit":
            return reservation.commit(START)
        case "set_aside":
            reservation.set_aside(START)
            return None
        case "release":
            return reservation.release()
        case _:
            return reservation.close()


def test_a_permit_that_was_used_stays_spent() -> None:
    queue = queue_of()
    reservation = reservation_in(COMMITTED, queue)
    assert not reservation.close()
    assert reservation.state is CLOSED
    assert account(queue) == (1, 0, 0, 2)
    reservation.release()
    reservation.close()
    assert account(queue) == (1, 0, 0, 2), "a second time nothing happens"


@FUZZ
@given(
    st.booleans(),
    st.lists(st.sampled_from(["commit", "release", "set_aside", "close"]), max_size=12),
)
def test_in_whatever_order_nothing_is_lost_nor_won(
    sends: bool,  # noqa: FBT001 - hypothesis passes it so
    steps: list[str],
) -> None:
    queue = queue_of()
    reservation = reservation_in(COMMITTED if sends else RESERVED, queue)
    for step in steps:
        is_committed = reservation.state is COMMITTED
        _do(reservation, step)
        if step == "close" and is_committed:
            assert account(queue) == (1, 0, 0, 2)
            return
        assert account(queue) == ACCOUNTS[reservation.state]
    reservation.release()
    reservation.close()
    assert account(queue) == BEFORE
    assert queue.is_idle(START)


@pytest.mark.parametrize("state", [RESERVED, COMMITTED, ASIDE], ids=lambda state: state.name)
@pytest.mark.parametrize("step", ["release", "close"])
def test_it_says_whether_there_is_somebody_for_what_is_free(
    state: ReservationState, step: str
) -> None:
    queue = queue_of()
    reservation = reservation_in(state, queue)
    queue.join(Waiter(START, START + 10), START)
    assert _do(reservation, step) is True
    assert _do(reservation, step) is False, "nothing more became free"


settings = st.builds(
    ThrottleSettings,
    rates=st.lists(st.builds(Rate, st.integers(1, 5), st.just(1.0)), max_size=2).map(tuple),
    burst=st.none() | st.integers(1, 3),
    algorithm=st.sampled_from(RateAlgorithm),
    concurrency=st.none() | st.integers(1, 3),
)


@FUZZ
@given(settings, st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.booleans())))
def test_take_is_reserve_and_commit(
    settings: ThrottleSettings, happening: list[tuple[float, bool]]
) -> None:
    """The same calls go out at the same moments, and leave the same behind."""
    at_once, in_two_steps = queue_of(settings), queue_of(settings)
    under_way: list[tuple[Reservation, Reservation]] = []
    now = START
    for wait, ends in happening:
        now += wait
        if ends and under_way:
            for each in under_way.pop(0):
                each.close()
        taken, reserved = at_once.take(now), in_two_steps.reserve(now)
        assert (taken is None) == (reserved is None)
        if taken is not None and reserved is not None:
            assert reserved.commit(now)
            assert taken.state is reserved.state is COMMITTED
            assert (taken.queue, reserved.queue) == (at_once, in_two_steps)
            under_way.append((taken, reserved))
        assert at_once.quotas(now) == in_two_steps.quotas(now)
        assert at_once.under_way == in_two_steps.under_way == len(under_way)
        assert at_once.reserved == in_two_steps.reserved == 0


# Other limits, and pauses.


@pytest.mark.parametrize("state", [RESERVED, COMMITTED, ASIDE, RELEASED])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(HOURLY, ThrottleSettings(), id="no limit any more"),
        pytest.param(ThrottleSettings(), HOURLY, id="the first limit"),
        pytest.param(
            HOURLY, ThrottleSettings((Rate(9, 60.0),), burst=2, concurrency=9), id="larger limits"
        ),
        pytest.param(
            HOURLY, ThrottleSettings((Rate(2, 60.0),), burst=2, concurrency=2), id="another rate"
        ),
    ],
)
def test_whatever_the_limits_become_all_is_given_back(
    state: ReservationState, before: ThrottleSettings, after: ThrottleSettings
) -> None:
    queue = queue_of(before)
    reservation = reservation_in(state, queue)
    queue.change(after, START)
    assert queue.under_way == 1
    if after.concurrency is not None:
        left = queue.quotas(START)[-1].remaining
        assert left == after.concurrency - 1, "the call under way counts"
    reservation.close()
    assert (queue.under_way, queue.reserved) == (0, 0)
    assert queue.is_idle(START + 10_000)


def test_what_was_reserved_at_a_faster_rate_is_not_sent_at_a_slower_one() -> None:
    fast = ThrottleSettings((Rate(10, 1.0),), burst=3)
    queue = queue_of(fast)
    first, second = queue.reserve(START), queue.reserve(START)
    assert first is not None
    assert second is not None
    queue.change(ThrottleSettings((Rate(10, 1.0),), burst=1), START)
    assert first.commit(START)
    assert not second.commit(START)
    assert second.state is RELEASED, "it needs another permit"
    assert not queue.reserve_again(second, START + 0.05)
    assert queue.reserve_again(second, START + 0.1)
    assert second.commit(START + 0.1)


def test_a_pause_takes_what_was_reserved() -> None:
    queue = queue_of()
    reservation = reservation_in(RESERVED, queue)
    queue.pause(START, 10.0)
    assert not reservation.commit(START + 1)
    assert reservation.state is RELEASED
    assert queue.reserved == 0
    assert not queue.reserve_again(reservation, START + 9.9)
    assert queue.reserve_again(reservation, START + 10)


def test_after_a_pause_what_was_reserved_before_it_goes_at_the_rate_too() -> None:
    queue = queue_of(ThrottleSettings((Rate(10, 1.0),), burst=3))
    reserved = [queue.reserve(START) for _ in range(3)]
    queue.pause(START, 10.0)
    now = START + 10
    sent = [each is not None and each.commit(now) for each in reserved]
    assert sent == [True, False, False]


def test_it_tells_where_it_stands() -> None:
    assert repr(reservation_in(ASIDE, queue_of())) == "<reservation, aside>"
