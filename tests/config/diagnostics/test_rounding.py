import pytest

from proxy.config.diagnostics.rounding import rounded_down, rounded_up


@pytest.mark.parametrize(
    ("seconds", "down", "up"),
    [
        pytest.param(10 / 3, 3, 4, id="seconds are whole"),
        pytest.param(0.333, 0.3, 0.4, id="milliseconds have one digit"),
        pytest.param(0.3, 0.3, 0.3, id="what is round stays so"),
        pytest.param(0.9999, 0.9, 1, id="nearly a second"),
        pytest.param(16, 15, 20, id="from ten seconds on by fives"),
        pytest.param(100, 90, 120, id="from a minute on by halves"),
        pytest.param(0.0004, 0, 0.001, id="less than a millisecond"),
        pytest.param(2 * 86400 / 7, 24660, 24690, id="hours"),
    ],
)
def test_rounding(seconds: float, down: float, up: float) -> None:
    assert rounded_down(seconds) == pytest.approx(down)
    assert rounded_up(seconds) == pytest.approx(up)
