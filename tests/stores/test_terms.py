"""On what terms permits are lent: the rate holds, and the burst is what the operator wrote."""

import pytest
from hypothesis import given, strategies as st

from proxy.policy.settings import Rate, ThrottleSettings
from proxy.stores.redis.terms import LONGEST, SHORTEST, terms


@pytest.mark.parametrize(
    ("rates", "burst", "life", "bursts"),
    [
        pytest.param([Rate(200, 1.0)], 20, 0.05, [10], id="half of the burst for either side"),
        pytest.param([Rate(5000, 1.0)], None, 0.05, [250], id="the default burst: 50 ms"),
        pytest.param([Rate(10, 1.0)], 100, 0.1, [99], id="never longer than 100 ms"),
        pytest.param([Rate(10, 1.0)], 1, 0.05, [1], id="a burst of one: half an interval"),
        pytest.param([Rate(1, 60.0)], 5, 0.1, [5], id="a slow rate gives its whole burst"),
        pytest.param([Rate(5000, 1.0)], 1, 0.01, [1], id="never shorter than it takes to use it"),
        pytest.param(
            [Rate(1000, 1.0), Rate(10, 1.0)], 10, 0.01, [10, 1], id="the fastest sets the life"
        ),
        pytest.param([], None, 0.1, [], id="no rate"),
    ],
)
def test_terms(rates: list[Rate], burst: int | None, life: float, bursts: list[int]) -> None:
    lent = terms(ThrottleSettings(rates=tuple(rates), burst=burst))
    assert lent.life == pytest.approx(life)
    assert list(lent.rates[2::3]) == bursts


def test_the_order_in_the_file_does_not_matter_and_twice_is_once() -> None:
    one, other = Rate(10, 1.0), Rate(5000, 3600.0)
    settings = [ThrottleSettings(rates=rates) for rates in [(one, other, one), (other, one)]]
    assert terms(settings[0]) == terms(settings[1])
    assert terms(settings[0]).interval == pytest.approx(0.72)


@given(
    count=st.integers(1, 100_000),
    period=st.sampled_from([0.5, 1.0, 60.0, 3600.0, 86400.0]),
    burst=st.integers(1, 100_000),
)
def test_in_no_period_more_than_rate_and_burst(count: int, period: float, burst: int) -> None:
    lent = terms(ThrottleSettings(rates=(Rate(count, period),), burst=burst))
    b = lent.rates[2]
    assert 1 <= b <= burst
    assert SHORTEST <= lent.life <= LONGEST
    # What goes out in a period was granted in the period and a life before it.
    most = int(count + count * lent.life / period + 1e-6) + b
    allowed = count + burst
    if lent.life > SHORTEST:
        assert most <= allowed
    else:
        assert most <= allowed + count * SHORTEST / period
