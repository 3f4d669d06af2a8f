import pytest

from bench.figures import METRICS, Ratio, medians, ratio
from bench.loads import Figures


def cpu(*values: float) -> list[Figures]:
    return [{"cpu": value} for value in values]


def test_ratio_pairs_the_figures_of_a_round() -> None:
    # Every round is slower than the last one, for both: the ratio does not care.
    series = {"ours": cpu(10, 20, 44), "theirs": cpu(20, 40, 80)}
    assert ratio(series, "cpu", "ours", "theirs") == Ratio(median=0.5, low=0.5, high=0.55)


@pytest.mark.parametrize(
    ("series", "metric"),
    [
        pytest.param({"ours": cpu(1)}, "cpu", id="the other was left out"),
        pytest.param({"ours": [], "theirs": []}, "cpu", id="no round yet"),
        pytest.param({"ours": cpu(1), "theirs": cpu(1)}, "p50", id="neither has that figure"),
        pytest.param({"ours": cpu(1), "theirs": cpu(0)}, "cpu", id="nothing to divide by"),
    ],
)
def test_no_ratio(series: dict[str, list[Figures]], metric: str) -> None:
    assert ratio(series, metric, "ours", "theirs") is None


def test_medians_are_of_each_metric_by_itself() -> None:
    assert medians([{"cpu": 1, "p50": 30}, {"cpu": 5, "p50": 10}, {"cpu": 3}]) == {
        "cpu": 3,
        "p50": 20,
    }


def test_a_figure_is_written_with_its_unit() -> None:
    assert METRICS["cpu"].text(1234.56) == "1,234.6 µs"
