import pytest

from bench.load import Sample, Scenario
from bench.report import Finding, Ratio, find, markdown
from bench.rounds import Series

CPU = Scenario("get", "small GET", connections=64)
LATENCY = Scenario("single", "one caller", connections=1, metric="p50", steady=False)


def samples(*cpu: float, p50: float = 100) -> list[Sample]:
    return [Sample(cpu=value, p50=p50, p99=0, per_second=0) for value in cpu]


def test_ratio_pairs_the_figures_of_a_round() -> None:
    # Every round is slower than the last one, for both: the ratio does not care.
    series: Series = {"ours": samples(10, 20, 44), "theirs": samples(20, 40, 80)}
    assert Ratio.of(series, CPU, "ours", "theirs") == Ratio(median=0.5, low=0.5, high=0.55)


def test_a_scenario_of_latency_compares_latency() -> None:
    series: Series = {"ours": samples(9, p50=150), "theirs": samples(1, p50=100)}
    assert find(LATENCY, series, "ours", "theirs").ratio.median == 1.5


@pytest.mark.parametrize(
    ("scenario", "ours", "twin", "faults"),
    [
        pytest.param(CPU, 100, 100, [], id="as much as the peer is within the bar"),
        pytest.param(
            CPU,
            110,
            110,
            ["small GET: 1.10 times the peer, the bar is 1"],
            id="more than the peer is a fault",
        ),
        pytest.param(CPU, 90, 92, [], id="twins within three percent agree"),
        pytest.param(
            CPU,
            90,
            100,
            ["small GET: two instances of one build are 10.0% apart"],
            id="twins that differ make the run worthless",
        ),
        pytest.param(LATENCY, 90, 100, [], id="twins may differ where no run is steady"),
    ],
)
def test_faults(scenario: Scenario, ours: float, twin: float, faults: list[str]) -> None:
    series: Series = {"ours": samples(ours), "ours:twin": samples(twin), "theirs": samples(100)}
    assert list(find(scenario, series, "ours", "theirs", bar=1.0).faults()) == faults


def test_table_has_a_column_per_proxy() -> None:
    finding = Finding("small GET", {"ours": 35.2, "theirs": 42.0}, Ratio(0.84, 0.8, 0.9), bar=1.0)
    assert markdown([finding], ["ours", "theirs"], "theirs").splitlines() == [
        "| µs | ours | theirs | ratio to theirs | bar | A/A |",
        "| --- | --- | --- | --- | --- | --- |",
        "| small GET | 35 | 42 | 0.84 (0.80 to 0.90) | 1 |  |",
    ]
