"""Every change of a delivery in every state: what is allowed, what is not and why."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from proxy.policy.delivery.state import (
    Delivered,
    DeliveredResponse,
    Delivery,
    DeliveryRun,
    FailedForGood,
    LetterTerms,
    Outcome,
    RetryLater,
    TransitionRefusal,
    cancel,
    give_back,
    give_up,
    owner_died,
    retry,
    settle,
    take,
)
from proxy.policy.delivery.words import DeferralReason, DeliveryState

NOW = 1000.0
SECRET = (b"Authorization", b"Bearer 1")
PLAIN = (b"A", b"1")
DELIVERY = Delivery(
    id="d_1",
    route="orders",
    upstream="api",
    method="POST",
    target="/",
    headers=(SECRET, PLAIN),
    wiped=("authorization",),
    size=3,
    request_id="r",
    caller="c",
    accepted=900.0,
    gives_up=2000.0,
    give_up_after=1100.0,
    due=950.0,
    ttl=60.0,
    letter=LetterTerms(600.0, 5),
    deferred=DeferralReason.BUSY,
)
RAN = DeliveryRun(NOW, "failed", (), may_have_run=True, urls=("u1", "u2", "u1"))
REFUSED = DeliveryRun(NOW, "refused", ())
OK = Delivered(DeliveredResponse(200, (), b""))

STATES = tuple(DeliveryState)
W, S, R, D, F, C = STATES
BUSY, ENDED = TransitionRefusal.SENDING, TransitionRefusal.ENDED
LATE = TransitionRefusal.NOT_SENDING
CHANGES: dict[str, tuple[Callable[[Delivery], Outcome], dict[DeliveryState, object]]] = {
    "take": (
        lambda each: take(each, NOW, ("u",)),
        {W: S, S: BUSY, R: S, D: ENDED, F: ENDED, C: ENDED},
    ),
    "give back": (
        lambda each: give_back(each, NOW),
        {W: LATE, S: W, R: LATE, D: LATE, F: LATE, C: LATE},
    ),
    "deliver": (
        lambda each: settle(each, OK, RAN, NOW),
        {W: LATE, S: D, R: LATE, D: LATE, F: LATE, C: LATE},
    ),
    "retry later": (
        lambda each: settle(each, RetryLater(5, "x"), RAN, NOW),
        {W: LATE, S: R, R: LATE, D: LATE, F: LATE, C: LATE},
    ),
    "fail": (
        lambda each: settle(each, FailedForGood("x"), RAN, NOW),
        {W: LATE, S: F, R: LATE, D: LATE, F: LATE, C: LATE},
    ),
    "cancel": (
        lambda each: cancel(each, NOW),
        {W: C, S: BUSY, R: C, D: ENDED, F: ENDED, C: ENDED},
    ),
    "give up": (
        lambda each: give_up(each, 2000.0),
        {W: F, S: BUSY, R: F, D: ENDED, F: ENDED, C: ENDED},
    ),
    "a person's retry": (
        lambda each: retry(each, NOW, repeatable=False, force=False),
        {W: W, S: BUSY, R: R, D: ENDED, F: W, C: ENDED},
    ),
    "its owner died, repeatable": (
        lambda each: owner_died(each, NOW, 5, repeatable=True),
        {W: LATE, S: R, R: LATE, D: LATE, F: LATE, C: LATE},
    ),
    "its owner died, not repeatable": (
        lambda each: owner_died(each, NOW, 5, repeatable=False),
        {W: LATE, S: F, R: LATE, D: LATE, F: LATE, C: LATE},
    ),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_in_every_state(change: str, state: DeliveryState) -> None:
    function, expected = CHANGES[change]
    after = function(replace(DELIVERY, state=state))
    if isinstance(after, Delivery):
        assert after.state is expected[state]
        assert after.version == DELIVERY.version + 1
        assert after.is_open == (after.state in {W, S, R})
    else:
        assert after is expected[state]


def of(outcome: Outcome) -> Delivery:
    assert isinstance(outcome, Delivery), outcome
    return outcome


SENDING = replace(of(take(DELIVERY, NOW, ("u9",))), attempts=2, tries=3, ran_at=("u0",))


def test_a_take_says_where_it_may_go_and_is_not_early() -> None:
    taken = of(take(DELIVERY, NOW, ("u9",)))
    assert (taken.sending_to, taken.last_try, taken.deferred) == (("u9",), NOW, None)
    later = replace(DELIVERY, due=NOW + 1)
    assert take(later, NOW) is TransitionRefusal.NOT_DUE
    assert of(take(later, NOW, early=True)).state is S


def test_what_is_given_back_costs_nothing() -> None:
    back = of(give_back(SENDING, NOW, 7, DeferralReason.DRAINING))
    assert (back.state, back.attempts, back.tries, back.due) == (R, 2, 3, NOW + 7)
    assert (back.deferred, back.sending_to) == (DeferralReason.DRAINING, ())
    assert not back.may_have_run


@pytest.mark.parametrize(
    ("settlement", "run", "attempts", "ran_at", "may_have_run"),
    [
        (OK, RAN, 3, ("u0", "u1", "u2"), True),
        (RetryLater(5, "x"), RAN, 3, ("u0", "u1", "u2"), True),
        (RetryLater(5, "x", counts=False), REFUSED, 2, ("u0",), False),
        (FailedForGood("x"), REFUSED, 3, ("u0",), False),
        (FailedForGood("x", counts=False), None, 2, ("u0",), False),
    ],
)
def test_what_a_try_leaves(
    settlement: Delivered | RetryLater | FailedForGood,
    run: DeliveryRun | None,
    attempts: int,
    ran_at: tuple[str, ...],
    *,
    may_have_run: bool,
) -> None:
    after = of(settle(SENDING, settlement, run, NOW))
    assert (after.attempts, after.tries, after.sending_to) == (attempts, 4, ())
    assert (after.ran_at, after.may_have_run) == (ran_at, may_have_run)


def test_a_retry_is_due_after_its_delay_and_says_why() -> None:
    after = of(
        settle(SENDING, RetryLater(5, "hint", "503", deferred=DeferralReason.BUSY), RAN, NOW)
    )
    assert (after.due, after.reason, after.error) == (NOW + 5, "hint", "503")
    assert after.deferred is DeferralReason.BUSY
    assert after.headers == (SECRET, PLAIN)


@pytest.mark.parametrize(
    ("after", "ttl", "reason"),
    [
        (of(settle(SENDING, OK, RAN, NOW)), 60, ""),
        (of(settle(SENDING, FailedForGood("rejected", "404"), RAN, NOW)), 600, "rejected"),
        (of(settle(replace(SENDING, letter=None), FailedForGood("x"), RAN, NOW)), 60, "x"),
        (of(cancel(DELIVERY, NOW)), 60, "cancelled"),
        (of(give_up(replace(DELIVERY, gives_up=NOW), NOW)), 600, "gave_up"),
        (of(owner_died(SENDING, NOW, 5, repeatable=False)), 600, "uncertain"),
    ],
)
def test_at_the_end_credentials_are_gone_and_the_time_to_keep_it_begins(
    after: Delivery, ttl: float, reason: str
) -> None:
    assert after.headers == (PLAIN,)
    assert (after.ended, after.expires, after.reason) == (NOW, NOW + ttl, reason)
    assert after.deferred is None


def test_nothing_gives_up_before_its_time() -> None:
    assert give_up(DELIVERY, NOW) is TransitionRefusal.NOT_DUE


@pytest.mark.parametrize(
    ("ran", "repeatable", "force", "allowed"),
    [
        (False, False, False, True),
        (True, True, False, True),
        (True, False, False, False),
        (True, False, True, True),
    ],
)
def test_what_may_have_run_is_sent_again_by_force_alone(
    *, ran: bool, repeatable: bool, force: bool, allowed: bool
) -> None:
    failed = of(settle(SENDING, FailedForGood("x", "500"), RAN if ran else REFUSED, NOW))
    after = retry(failed, NOW + 50, repeatable=repeatable, force=force)
    if not allowed:
        assert after is TransitionRefusal.MAY_HAVE_RUN
        return
    anew = of(after)
    assert (anew.state, anew.attempts, anew.tries, anew.due) == (R, 0, 4, NOW + 50)
    assert (anew.gives_up, anew.reason, anew.ended, anew.expires) == (NOW + 50 + 1100, "", 0, 0)
    assert anew.may_have_run == ran


def test_a_retry_of_what_waits_is_due_now() -> None:
    after = of(retry(replace(DELIVERY, due=5000.0), NOW, repeatable=False, force=False))
    assert (after.due, after.deferred, after.gives_up) == (NOW, None, DELIVERY.gives_up)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("repeatable", [False, True])
@pytest.mark.parametrize("ran", [False, True])
@pytest.mark.parametrize("state", list(DeliveryState))
def test_who_may_have_which_delivery_sent_again(
    state: DeliveryState,
    ran: bool,  # noqa: FBT001 - every combination
    repeatable: bool,  # noqa: FBT001 - a parameter of the test
    force: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    delivery = replace(DELIVERY, state=state, may_have_run=ran, attempts=7, response_status=500)
    found = retry(delivery, NOW, repeatable=repeatable, force=force)
    expected: TransitionRefusal | None = None
    if state is DeliveryState.SENDING:
        expected = TransitionRefusal.SENDING
    elif state in {DeliveryState.DELIVERED, DeliveryState.CANCELLED}:
        expected = TransitionRefusal.ENDED
    elif state is DeliveryState.FAILED and ran and not repeatable and not force:
        expected = TransitionRefusal.MAY_HAVE_RUN
    if expected is not None:
        assert found is expected
        return
    again = of(found)
    assert (again.due, again.is_open) == (NOW, True)
    if state is DeliveryState.FAILED:  # anew: new attempts, a new age, and no answer yet
        assert (again.attempts, again.gives_up) == (0, NOW + delivery.give_up_after)
        assert (again.response_status, again.ended) == (0, 0.0)


def test_the_refusals_are_problem_types() -> None:
    refusals = (TransitionRefusal.MAY_HAVE_RUN, TransitionRefusal.SENDING, TransitionRefusal.ENDED)
    expected = ["delivery_may_have_run", "delivery_under_way", "delivery_over"]
    assert [refusal.value for refusal in refusals] == expected


def test_an_owner_that_died_may_have_sent_it_wherever_it_was_to_go() -> None:
    after = of(owner_died(SENDING, NOW, 5, repeatable=True))
    assert (after.may_have_run, after.ran_at, after.due) == (True, ("u0", "u9"), NOW + 5)
    assert (after.attempts, after.tries, after.reason) == (3, 4, "uncertain")
