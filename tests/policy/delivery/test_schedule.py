"""When a delivery is tried again, and when it is given up."""

from itertools import islice
from typing import Any

import pytest
from hypothesis import given, strategies as st

from proxy.policy.delivery.schedule import (
    deferred_until,
    gives_up_at,
    next_try,
    planned_tries,
    usable_hint,
    wait_before_next,
)
from proxy.policy.delivery.words import DeliveryEnd
from proxy.policy.reasons import VerdictReason
from proxy.policy.settings import BackoffStrategy, DeliveryBackoff, HandOffSettings, JitterStrategy
from tests.support.depth import FUZZ

HOUR, DAY = 3600.0, 86_400.0
EXACT = JitterStrategy.NONE
SEED = DeliveryBackoff(base=120, factor=2, max=12 * HOUR, jitter=EXACT)
LISTED = DeliveryBackoff(waits=(5, 300, 1800), jitter=EXACT)


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        pytest.param(SEED, [120, 240, 480, 960, 1920], id="2^attempt x 60 s, as the seed says"),
        pytest.param(LISTED, [5, 300, 1800, 1800, 1800], id="the last one of a list repeats"),
        pytest.param(DeliveryBackoff(waits=(7,), jitter=EXACT), [7, 7, 7, 7, 7], id="one wait"),
        pytest.param(
            DeliveryBackoff(jitter=EXACT), [2, 6, 18, 54, 162], id="what is built in, but exact"
        ),
        pytest.param(
            DeliveryBackoff(strategy=BackoffStrategy.CONSTANT, base=3, jitter=EXACT),
            [3, 3, 3, 3, 3],
            id="constant",
        ),
    ],
)
def test_waits_grow(backoff: DeliveryBackoff, waits: list[float]) -> None:
    assert [wait_before_next(backoff, made, 0.5) for made in range(1, 6)] == waits


@pytest.mark.parametrize(
    ("jitter", "shortest", "longest"),
    [
        (0.2, 80, 120),
        (JitterStrategy.FULL, 0, 100),
        (JitterStrategy.EQUAL, 50, 100),
        (EXACT, 100, 100),
    ],
)
@pytest.mark.parametrize("form", [{"waits": (100.0,)}, {"base": 100.0}])
def test_jitter_spreads_a_curve_and_a_list_alike(
    jitter: JitterStrategy | float, shortest: float, longest: float, form: dict[str, Any]
) -> None:
    backoff = DeliveryBackoff(jitter=jitter, **form)
    assert wait_before_next(backoff, 1, 0.0) == pytest.approx(shortest)
    assert wait_before_next(backoff, 1, 1.0) == pytest.approx(longest)


def test_a_list_has_no_longest_wait_but_its_own() -> None:
    backoff = DeliveryBackoff(waits=(2 * DAY,), max=1.0, base=1.0, jitter=0.2)
    assert wait_before_next(backoff, 1, 1.0) == pytest.approx(2.4 * DAY)


def test_after_429_without_a_hint_the_first_wait_is_at_least_a_second() -> None:
    backoff = DeliveryBackoff(base=0.1, jitter=EXACT)
    assert wait_before_next(backoff, 1, 0.5) == pytest.approx(0.1)
    assert wait_before_next(backoff, 1, 0.5, slow_down=True) == 1.0


def settings(**others: Any) -> HandOffSettings:  # noqa: ANN401 - fields of any type
    return HandOffSettings(**{"backoff": SEED} | others)


@pytest.mark.parametrize(
    ("given", "others", "expected"),
    [
        pytest.param(settings(), {}, 1120.0, id="by the curve"),
        pytest.param(settings(), {"made": 3}, 1480.0, id="further up"),
        pytest.param(settings(attempts=3), {"made": 2}, 1240.0, id="one is left"),
        pytest.param(
            settings(attempts=3), {"made": 3}, VerdictReason.ATTEMPTS_EXHAUSTED, id="none is left"
        ),
        pytest.param(settings(), {"hint": 200.0}, 1200.0, id="a hint is a floor"),
        pytest.param(settings(), {"hint": 5.0}, 1120.0, id="the curve is one, too"),
        pytest.param(settings(), {"hint": 30 * HOUR}, 1000 + DAY, id="a long hint is cut"),
        pytest.param(settings(longest_hint=None), {"hint": 500.0}, 1120.0, id="no hints"),
        pytest.param(
            settings(give_up_after=1000), {"made": 1, "accepted": 120.0}, DeliveryEnd.GAVE_UP,
            id="due when it is given up",
        ),
        pytest.param(
            settings(give_up_after=1000), {"made": 1, "accepted": 121.0}, 1120.0, id="just before"
        ),
        pytest.param(
            settings(give_up_after=HOUR), {"hint": 2 * HOUR}, DeliveryEnd.GAVE_UP,
            id="a hint beyond that",
        ),
        pytest.param(
            settings(give_up_after=1, attempts=1), {}, VerdictReason.ATTEMPTS_EXHAUSTED,
            id="attempts are counted first",
        ),
    ],
)  # fmt: skip
def test_the_next_try(given: HandOffSettings, others: dict[str, Any], expected: object) -> None:
    facts = {"accepted": 1000.0, "now": 1000.0, "made": 1, "roll": 0.5} | others
    assert next_try(given, **facts) == expected


def test_a_hint_is_spread_on_top_and_not_beyond_the_longest() -> None:
    spread = settings(backoff=DeliveryBackoff())
    at: dict[str, Any] = {"accepted": 0.0, "now": 0.0, "made": 1}
    assert next_try(spread, roll=0.0, hint=100.0, **at) == 100.0
    assert next_try(spread, roll=1.0, hint=100.0, **at) == 150.0
    assert next_try(spread, roll=1.0, hint=30 * HOUR, **at) == DAY


@pytest.mark.parametrize(
    ("hint", "due"),
    [(20.0, 20.0), (DAY, DAY), (1.0, 1.0), (0.2, 1.0), (0.0, 120.0)],
)
def test_a_deferral_never_ends_at_once(hint: float, due: float) -> None:
    assert deferred_until(settings(), accepted=0.0, now=0.0, hint=hint, roll=0.9) == due


def test_a_deferral_does_not_outlive_the_delivery() -> None:
    given = settings(give_up_after=60)
    assert deferred_until(given, accepted=0, now=50, hint=20, roll=0) is DeliveryEnd.GAVE_UP
    assert gives_up_at(given, 7.0) == 67.0


def test_hints_that_are_used() -> None:
    assert usable_hint(settings(), None) is None
    assert usable_hint(settings(), 3.0) == 3.0
    assert usable_hint(settings(longest_hint=2.0), 3.0) == 2.0
    assert usable_hint(settings(longest_hint=None), 3.0) is None


def test_the_plan_of_the_seed() -> None:
    plan = [*planned_tries(settings(attempts=6, timeout=10.0))]
    assert [(one.number, one.earliest, one.latest) for one in plan] == [
        (1, 0, 0),
        (2, 120, 130),
        (3, 360, 380),
        (4, 840, 870),
        (5, 1800, 1840),
        (6, 3720, 3770),
    ]


def test_the_plan_that_is_built_in_has_about_twenty_tries() -> None:
    plan = [*planned_tries(HandOffSettings())]
    assert 18 <= len(plan) <= 26
    assert plan[-1].earliest < 3 * DAY
    assert plan[-1].latest is None  # with the longest waits there are fewer
    assert len([one for one in plan if one.latest is not None]) >= 17


def test_a_plan_without_end_is_not_made_whole() -> None:
    endless = settings(backoff=DeliveryBackoff(waits=(0.001,), jitter=EXACT), timeout=None)
    assert [one.number for one in islice(planned_tries(endless), 5)] == [1, 2, 3, 4, 5]


@FUZZ
@given(
    st.builds(
        DeliveryBackoff,
        strategy=st.sampled_from(BackoffStrategy),
        base=st.floats(1, 1000),
        max=st.floats(1000, DAY),
        jitter=st.sampled_from([*JitterStrategy, 0.2, 1.0]),
    )
    | st.builds(DeliveryBackoff, waits=st.lists(st.floats(1, DAY), min_size=1).map(tuple)),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=30, max_size=30),
)
def test_what_happens_is_within_the_plan(backoff: DeliveryBackoff, rolls: list[float]) -> None:
    """Real waits, with attempts that take no time, lie between the two ends of the plan."""
    given = HandOffSettings(backoff=backoff, give_up_after=10 * DAY, timeout=None)
    now, previous = 0.0, 0.0
    for planned, roll in zip(planned_tries(given), rolls, strict=False):
        assert planned.earliest <= now * (1 + 1e-9)
        if planned.latest is not None:
            assert now <= planned.latest * (1 + 1e-9)
        due = next_try(
            given, accepted=0.0, now=now, made=planned.number, roll=roll, previous=previous
        )
        if not isinstance(due, float):
            break
        now, previous = due, due - now
