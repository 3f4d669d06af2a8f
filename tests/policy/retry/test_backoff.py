from typing import Any

import pytest
from hypothesis import given, strategies as st

from proxy.policy.retry.backoff import backoff_delay, nominal, spread_hint
from proxy.policy.settings import Backoff, BackoffStrategy, JitterStrategy
from tests.vectors.load import cases, group

TOLERANCE = group("meta")["tolerance"]


def backoff_of(case: dict[str, Any]) -> Backoff:
    return Backoff(
        strategy=case["strategy"],
        base=case["base"],
        factor=case.get("factor", 2),
        increment=case.get("increment"),
        max=case["cap"],
        jitter=JitterStrategy.NONE,
    )


@pytest.mark.parametrize("case", cases("backoff_nominal", lambda case: "expect" in case))
def test_the_curves_of_the_vectors(case: dict[str, Any]) -> None:
    backoff = backoff_of(case)
    curve = [nominal(backoff, n, backoff.base) for n in range(1, len(case["expect"]) + 1)]
    assert curve == pytest.approx(case["expect"], abs=TOLERANCE)


@pytest.mark.parametrize("case", cases("backoff_nominal", lambda case: "expect_single" in case))
def test_far_points_of_the_vectors(case: dict[str, Any]) -> None:
    assert backoff_delay(backoff_of(case), case["attempt"], 0.0, 0.5) == case["expect_single"]


@pytest.mark.parametrize("strategy", BackoffStrategy)
@pytest.mark.parametrize("n", [5000, 10**9])
@pytest.mark.timeout(1)
def test_no_retry_is_too_many(strategy: BackoffStrategy, n: int) -> None:
    largest = 1.0 if strategy is BackoffStrategy.CONSTANT else 60.0
    assert nominal(Backoff(strategy, factor=2, max=60.0), n, 1.0) == largest
    # From nothing nothing grows, at no speed.
    assert nominal(Backoff(strategy, factor=2, max=60.0), n, 0.0) == 0.0


@pytest.mark.parametrize(
    "case", cases("jitter", lambda case: case["kind"] in {"full", "equal", "grpc_pm20"})
)
def test_the_jitters_of_the_vectors(case: dict[str, Any]) -> None:
    jitter = 0.2 if case["kind"] == "grpc_pm20" else case["kind"]
    backoff = Backoff(BackoffStrategy.CONSTANT, base=case["delay"], max=60.0, jitter=jitter)
    assert backoff_delay(backoff, 1, 0.0, case["u"]) == pytest.approx(case["expect"], abs=TOLERANCE)


@pytest.mark.parametrize("case", cases("jitter", lambda case: case["kind"] == "decorrelated"))
def test_the_decorrelated_jitter_of_the_vectors(case: dict[str, Any]) -> None:
    backoff = Backoff(base=case["base"], max=case["cap"], jitter=JitterStrategy.DECORRELATED)
    waited = backoff_delay(backoff, 9, case["previous"], case["u"])
    assert waited == pytest.approx(case["expect"], abs=TOLERANCE)


@pytest.mark.parametrize(
    "case", cases("jitter", lambda case: case["kind"] == "retry_after_additive_50")
)
def test_a_wait_that_a_server_gave(case: dict[str, Any]) -> None:
    assert spread_hint(case["delay"], case["u"]) == pytest.approx(case["expect"], abs=TOLERANCE)


ALMOST_ONE = 1 - 2**-53


@pytest.mark.parametrize(
    ("backoff", "n", "previous", "roll", "expected"),
    [
        pytest.param(
            Backoff(jitter=JitterStrategy.NONE), 3, 0.0, 0.9, 0.4, id="no jitter, no chance"
        ),
        pytest.param(Backoff(), 3, 0.0, 0.0, 0.0, id="full jitter may not wait at all"),
        pytest.param(Backoff(), 3, 0.0, ALMOST_ONE, 0.4, id="or as long as the curve says"),
        pytest.param(
            Backoff(jitter=JitterStrategy.EQUAL), 3, 0.0, 0.0, 0.2, id="equal waits half at least"
        ),
        pytest.param(Backoff(jitter=0.2), 3, 0.0, 0.0, 0.32, id="a fifth less"),
        pytest.param(Backoff(jitter=0.2), 3, 0.0, ALMOST_ONE, 0.48, id="a fifth more"),
        pytest.param(Backoff(jitter=0.2), 30, 0.0, ALMOST_ONE, 30.0, id="but not above the max"),
        pytest.param(Backoff(jitter=0.2), 30, 0.0, 0.0, 24.0, id="and spread below it"),
        pytest.param(Backoff(jitter=0), 3, 0.0, 0.0, 0.4, id="±0 is none"),
        pytest.param(Backoff(jitter=1), 3, 0.0, 0.0, 0.0, id="±1 may not wait at all"),
        pytest.param(
            Backoff(jitter=JitterStrategy.DECORRELATED),
            9,
            0.0,
            ALMOST_ONE,
            0.3,
            id="a walk begins at the base",
        ),
        pytest.param(
            Backoff(jitter=JitterStrategy.DECORRELATED),
            1,
            2.0,
            ALMOST_ONE,
            6.0,
            id="and may triple each time",
        ),
        pytest.param(
            Backoff(jitter=JitterStrategy.DECORRELATED),
            1,
            2.0,
            0.0,
            0.1,
            id="or fall back to the base",
        ),
        pytest.param(
            Backoff(jitter=JitterStrategy.DECORRELATED), 1, 0.01, 0.9, 0.1, id="but not below it"
        ),
        pytest.param(
            Backoff(jitter=JitterStrategy.DECORRELATED),
            1,
            1e308,
            0.0,
            0.1,
            id="even after a very long wait",
        ),
        pytest.param(
            Backoff(base=5.0, max=3.0, jitter=JitterStrategy.DECORRELATED),
            1,
            0.0,
            0.5,
            3.0,
            id="the max wins",
        ),
    ],
)
def test_delay(backoff: Backoff, n: int, previous: float, roll: float, expected: float) -> None:
    assert backoff_delay(backoff, n, previous, roll) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("backoff", "n", "expected"),
    [
        pytest.param(
            Backoff(jitter=JitterStrategy.NONE), 3, 4.0, id="the whole curve starts from it"
        ),
        pytest.param(
            Backoff(base=2.0, jitter=JitterStrategy.NONE), 1, 2.0, id="unless it starts higher"
        ),
        pytest.param(
            Backoff(BackoffStrategy.LINEAR, jitter=JitterStrategy.NONE),
            3,
            3.0,
            id="the usual increment follows",
        ),
        pytest.param(
            Backoff(BackoffStrategy.LINEAR, increment=0.5, jitter=JitterStrategy.NONE),
            3,
            2.0,
            id="a given one does not",
        ),
        pytest.param(
            Backoff(max=0.5, jitter=JitterStrategy.NONE), 1, 0.5, id="the max still holds"
        ),
    ],
)
def test_the_least_base(backoff: Backoff, n: int, expected: float) -> None:
    assert backoff_delay(backoff, n, 0.0, 0.5, least_base=1.0) == expected


@given(
    backoff=st.builds(
        Backoff,
        strategy=st.sampled_from(BackoffStrategy),
        base=st.floats(0, 1e6),
        factor=st.floats(1, 1e6),
        increment=st.none() | st.floats(0, 1e6),
        max=st.floats(0, 1e8),
        jitter=st.sampled_from(JitterStrategy) | st.floats(0, 1),
    ),
    n=st.integers(1, 10**12),
    previous=st.floats(0, 1e9),
    roll=st.floats(0, 1, exclude_max=True),
    least_base=st.sampled_from([0.0, 1.0]),
)
def test_never_negative_and_never_above_the_max(
    backoff: Backoff, n: int, previous: float, roll: float, least_base: float
) -> None:
    assert 0 <= backoff_delay(backoff, n, previous, roll, least_base=least_base) <= backoff.max


@given(st.floats(0, 1e12), st.floats(0, 1, exclude_max=True))
def test_nobody_comes_back_before_the_server_said(seconds: float, roll: float) -> None:
    assert seconds <= spread_hint(seconds, roll) <= 1.5 * seconds
