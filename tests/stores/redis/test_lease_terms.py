"""On what terms permits are lent: no window sees more than was written."""

import pytest
from hypothesis import given, strategies as st

from proxy.policy.settings import Rate, ThrottleSettings
from proxy.policy.throttle.pacing import life_of, most_in_window, part_used
from proxy.stores.redis.lease_terms import lease_terms


@pytest.mark.parametrize(
    ("rates", "written", "life"),
    [
        pytest.param([Rate(200, 1.0)], None, 0.025, id="a 40th of the window"),
        pytest.param([Rate(5, 0.1)], None, 0.01, id="at least 10 ms"),
        pytest.param([Rate(5000, 3600.0)], None, 0.1, id="at most 100 ms"),
        pytest.param([Rate(5000, 3600.0), Rate(10, 1.0)], None, 0.025, id="the shortest window"),
        pytest.param([Rate(200, 1.0)], 0.2, 0.2, id="what was written"),
        pytest.param([], None, 0.1, id="no rate"),
    ],
)
def test_how_long_a_permit_lives(rates: list[Rate], written: float | None, life: float) -> None:
    assert life_of(tuple(rates), written) == pytest.approx(life)
    lent = lease_terms(ThrottleSettings(rates=tuple(rates)), written)
    assert lent.life == pytest.approx(life)
    assert lent.ahead == pytest.approx(life / 2)


def test_the_order_in_the_file_does_not_matter_and_twice_is_once() -> None:
    one, other = Rate(10, 1.0), Rate(5000, 3600.0)
    settings = [ThrottleSettings(rates=rates) for rates in [(one, other, one), (other, one)]]
    assert lease_terms(settings[0]) == lease_terms(settings[1])
    assert lease_terms(settings[0]).interval == pytest.approx(3600.081 / 4900, rel=1e-6)


@pytest.mark.parametrize(
    ("life", "part"), [(0.025, 0.951), (0.1, 0.888), (0.3, 0.754)], ids=["usual", "100ms", "300ms"]
)
def test_what_a_longer_life_leaves_of_the_rate(life: float, part: float) -> None:
    rate = Rate(100, 1.0)
    assert part_used(ThrottleSettings((rate,)), rate, life) == pytest.approx(part, abs=0.001)


@given(
    count=st.integers(1, 100_000),
    period=st.sampled_from([0.5, 1.0, 60.0, 3600.0, 86400.0]),
    burst=st.none() | st.integers(1, 1000),
)
def test_what_is_too_many_is_a_window_apart(count: int, period: float, burst: int | None) -> None:
    rate = Rate(count, period)
    lent = lease_terms(ThrottleSettings(rates=(rate,), burst=burst))
    calls, width, at_once, early = lent.rates
    # Granted as close together as can be, the first used as late as can be.
    least = (most_in_window(rate, burst) - at_once + 1) * width / calls / 1e6
    margin = min(period / 50, 0.05)
    assert least - early / 1e6 - lent.life >= period + margin + 0.001 - 1e-9
