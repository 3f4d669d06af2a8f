import pytest

from bench.bars import BARS, judge
from bench.cases import CASES, ENVOY, SUBJECT, TWIN
from bench.figures import METRICS
from bench.loads import Figures, Plan
from bench.proxies import PROXIES
from bench.rounds import Measured
from bench.run import FULL, QUICK


def one(metric: str, **values: float) -> dict[str, list[Figures]]:
    """A single round."""
    names = {"ours": SUBJECT, "twin": TWIN, "envoy": ENVOY}
    return {names.get(name, name): [{metric: value}] for name, value in values.items()}


Found = dict[str, dict[str, list[Figures]]]
"""By name of the case, and of the contender."""


def met(name: str, found: Found, plan: Plan = FULL) -> bool | None:
    bar = next(bar for bar in BARS if bar.name == name)
    series = found.get(bar.case)
    return judge(bar, None if series is None else Measured(series), plan).met


@pytest.mark.parametrize(
    ("name", "found", "expected"),
    [
        pytest.param("get", {"get": one("cpu", ours=42, envoy=42)}, True, id="as much as Envoy"),
        pytest.param("get", {"get": one("cpu", ours=43, envoy=42)}, False, id="more than Envoy"),
        pytest.param("get", {"get": one("cpu", ours=43)}, None, id="no Envoy, no judgement"),
        pytest.param("get", {}, None, id="not run"),
        pytest.param(
            "single", {"single": one("p50", ours=1, envoy=2)}, True, id="latency is compared"
        ),
        pytest.param("large", {"large": one("cpu", ours=12, envoy=10)}, True, id="up to 1.2"),
        pytest.param("keyed", {"keyed-memory": one("cpu", keyed=16, plain=10)}, False, id="a key"),
        pytest.param("idle", {"idle": one("rss", ours=299)}, True, id="below 300 MiB"),
        pytest.param("idle", {"idle": one("rss", ours=301)}, False, id="above 300 MiB"),
        pytest.param("stall", {"stall": one("above_idle", ours=31)}, False, id="31 MiB more"),
        pytest.param("start", {"start": one("seconds", ours=0.9)}, True, id="within a second"),
        pytest.param("aa-get", {"get": one("cpu", ours=102, twin=100)}, True, id="2 % apart"),
        pytest.param("aa-get", {"get": one("cpu", ours=90, twin=100)}, False, id="10 % apart"),
    ],
)
def test_bar(name: str, found: Found, *, expected: bool | None) -> None:
    assert met(name, found) is expected


@pytest.mark.parametrize(("share", "expected"), [(0.41, True), (0.39, False)])
def test_each_worker_has_to_do_its_part(share: float, *, expected: bool) -> None:
    found: Found = {"workers": {"holdfast-2-workers": [{"share": share}]}}
    assert met("workers-share", found) is expected


def test_the_worst_stall_counts() -> None:
    found: Found = {"stall": {SUBJECT: [{"above_idle": 1.0}, {"above_idle": 40.0}]}}
    assert met("stall", found) is False


@pytest.mark.parametrize("name", ["idle", "stall"])
def test_a_quick_run_does_not_judge_what_it_has_not_sent(name: str) -> None:
    found: Found = {
        "idle": {SUBJECT: [{"rss": 1.0}]},
        "stall": {SUBJECT: [{"above_idle": 1.0}]},
    }
    assert met(name, found, FULL) is True
    assert met(name, found, QUICK) is None


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        pytest.param(None, "case get was not run", id="not run"),
        pytest.param(
            Measured({SUBJECT: [{"cpu": 40.0}]}, {ENVOY: "envoy is not installed"}),
            "envoy is not installed",
            id="no Envoy",
        ),
    ],
)
def test_what_cannot_be_judged_says_why(measured: Measured | None, why: str) -> None:
    bar = next(bar for bar in BARS if bar.name == "get")
    assert str(judge(bar, measured, FULL)) == (
        f"CPU per small GET, times Envoy's: not measured ({why}); the bar is at most 1"
    )


# The tables fit together.


def test_every_bar_is_about_a_case() -> None:
    assert {bar.case for bar in BARS} <= {case.name for case in CASES}


def test_names_are_unique() -> None:
    for names in ([bar.name for bar in BARS], [case.name for case in CASES]):
        assert len(names) == len(set(names))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_is_consistent(case: object) -> None:
    found = next(one for one in CASES if one is case)
    names = [contender.name for contender in found.contenders]
    assert len(names) == len(set(names))
    assert {contender.proxy for contender in found.contenders} <= set(PROXIES)
    assert {name for pair in found.pairs for name in pair} <= set(names)
    assert set(found.metrics) <= set(METRICS)
