"""What chance can make of a course."""

from dataclasses import replace
from itertools import product

import pytest

from proxy.explain.course import simulate
from proxy.explain.forecast import forecast
from proxy.policy.reasons import VerdictReason
from proxy.policy.settings import Backoff
from tests.explain.scripted import WALL, outcomes, retrying, subject

SPREAD = subject(route=retrying(backoff=Backoff()))


def bounds(script: list[str], roll: float | None = None) -> list[tuple[float, ...]]:
    """Of the waits, in milliseconds."""
    found = forecast(SPREAD, outcomes(*script), roll, WALL)
    return [
        tuple(round(delay.seconds * 1000, 3) for delay in attempt.waits)
        for attempt in found.attempts
    ]


def test_waits_lie_between_bounds() -> None:
    assert bounds(["503", "503", "200"]) == [(0, 100), (0, 200), ()]
    assert bounds(["429", "200"]) == [(0, 1000), ()]
    assert bounds(["429 Retry-After: 5", "200"]) == [(5000, 7500), ()]


def test_a_roll_makes_them_exact() -> None:
    assert bounds(["503", "503", "200"], 0.5) == [(50, 50), (100, 100), ()]


def test_chance_may_decide_how_it_ends() -> None:
    found = forecast(
        replace(SPREAD, route=replace(SPREAD.route, timeout=0.15)),
        outcomes("503", "503", "503"),
        None,
        WALL,
    )
    assert [attempt.verdicts for attempt in found.attempts] == [
        (VerdictReason.RETRIED,),
        (VerdictReason.RETRIED, VerdictReason.DEADLINE),
        (VerdictReason.ATTEMPTS_EXHAUSTED,),
    ]
    assert [ending.course.attempts[-1].verdict for ending in found.endings] == [
        VerdictReason.ATTEMPTS_EXHAUSTED,
        VerdictReason.DEADLINE,
    ]


def test_when_it_ends() -> None:
    (ending,) = forecast(SPREAD, outcomes("503", "200"), None, WALL).endings
    assert ending.ends == pytest.approx((0.0, 0.1))


@pytest.mark.parametrize("jitter", ["full", "equal", "decorrelated", "none", 0.3])
@pytest.mark.parametrize("script", [["503"] * 4, ["429 Retry-After: 1", "503", "429", "reset"]])
def test_no_course_leaves_the_bounds(jitter: str | float, script: list[str]) -> None:
    of = subject(route=retrying(attempts=5, backoff=Backoff(jitter=jitter)))
    of = replace(of, route=replace(of.route, timeout=40.0 if jitter == "decorrelated" else 4.0))
    found = forecast(of, outcomes(*script), None, WALL)
    for rolls in product((0.0, 0.3, 0.7, 0.999), repeat=4):
        course = simulate(of, outcomes(*script), rolls, WALL)
        for before, after in zip(course.attempts, course.attempts[1:], strict=False):
            shortest, longest = found.attempts[before.number - 1].waits
            assert after.delay is not None
            least, most = shortest.seconds - 1e-6, longest.seconds + 1e-6
            assert least <= after.delay.seconds <= most
        for attempt in course.attempts:
            assert attempt.verdict in found.attempts[attempt.number - 1].verdicts


def test_many_outcomes_take_no_longer() -> None:
    of = subject(route=retrying(attempts=100, backoff=Backoff()))
    assert len(forecast(of, outcomes(*["connect"] * 99), None, WALL).attempts) > 5
