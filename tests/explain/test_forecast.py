"""What chance can make of a course."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from proxy.explain.course import Course, simulate
from proxy.explain.forecast import forecast
from proxy.policy.reasons import VerdictReason
from proxy.policy.settings import Backoff, JitterStrategy
from tests.explain.scripted import UPSTREAM, WALL, outcomes, retrying, subject
from tests.support.depth import DEEP

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


@pytest.mark.parametrize("jitter", [*JitterStrategy, 0.3])
@pytest.mark.parametrize("script", [["503"] * 4, ["429 Retry-After: 1", "503", "429", "reset"]])
def test_no_course_leaves_the_bounds(jitter: JitterStrategy | float, script: list[str]) -> None:
    of = subject(route=retrying(attempts=5, backoff=Backoff(jitter=jitter)))
    of = replace(
        of, route=replace(of.route, timeout=40.0 if jitter is JitterStrategy.DECORRELATED else 4.0)
    )
    found = forecast(of, outcomes(*script), None, WALL)
    chances = (0.0, 0.3, 0.7, 0.999) if DEEP else (0.0, 0.6, 0.999)
    for rolls in product((0.0,) if jitter is JitterStrategy.NONE else chances, repeat=4):
        course = simulate(of, outcomes(*script), rolls, WALL)
        for before, after in zip(course.attempts, course.attempts[1:], strict=False):
            shortest, longest = found.attempts[before.number - 1].waits
            assert after.delay is not None
            least, most = shortest.seconds - 1e-6, longest.seconds + 1e-6
            assert least <= after.delay.seconds <= most
        for attempt in course.attempts:
            assert attempt.verdict in found.attempts[attempt.number - 1].verdicts


@pytest.mark.parametrize("jitter", ["full", "decorrelated"])
@pytest.mark.parametrize("script", [["503"] * 6, ["connect"] * 46, ["503"] * 99, ["503"] * 400])
def test_many_outcomes_take_no_longer(
    script: list[str], jitter: JitterStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second at most on any machine: counted in attempts, each of which takes 0.3 ms."""
    simulated = []

    def count(*arguments: Any) -> Course:  # noqa: ANN401 - as they are
        course = simulate(*arguments)
        simulated.append(len(course.attempts))
        return course

    monkeypatch.setattr("proxy.explain.forecast.simulate", count)
    of = subject(
        route=replace(retrying(attempts=500, backoff=Backoff(jitter=jitter)), timeout=600.0),
        upstream=replace(UPSTREAM, budget=None),
    )
    assert len(forecast(of, outcomes(*script), None, WALL).attempts) > 5
    assert sum(simulated) < 2500
