"""The measurement of hand-off: a small run of it, and the figures beside their goals."""

import asyncio
from pathlib import Path

import pytest

from bench.hand_off.__main__ import goals, table
from bench.hand_off.phases import Size, fsyncs_per_second, measure_holdfast, measure_takeover
from bench.tools import BenchFailed, cores, program

SMALL = Size(requests=60, single=10, backlog=0, few=20)


@pytest.fixture(autouse=True)
def two_cores() -> None:
    """The proxy has a core of its own."""
    try:
        cores()
        program("taskset")
    except BenchFailed as missing:
        pytest.skip(str(missing))


def test_all_that_is_accepted_is_delivered_and_measured(tmp_path: Path) -> None:
    """A phase in which the ids of both are not the same raises."""
    fsyncs = fsyncs_per_second(tmp_path)
    figures = asyncio.run(measure_holdfast(tmp_path, SMALL, fsyncs))
    assert all(figure >= 0 for figure in figures.values())
    assert figures["cpu_us_per_202"] > 0
    assert figures["cpu_us_per_delivery"] > 0


def test_another_process_takes_over(tmp_path: Path) -> None:
    figures = asyncio.run(measure_takeover(tmp_path, SMALL))
    assert figures["takeover_seconds"] > 0


def test_figures_stand_beside_their_goals() -> None:
    ours = {
        "accepted_per_second": 6000.0,
        "accepted_per_fsync": 25.0,
        "cpu_us_per_202": 100.0,
        "single_p50_in_fsyncs": 1.1,
        "cpu_us_per_delivery": 400.0,
        "lag_p99_ms": 12.0,
    }
    anchor = {"accepted_per_second": 500.0, "cpu_us_per_202": 400.0, "cpu_us_per_delivery": 500.0}
    backlog = {"rss_mib_over_empty": 4.0, "take_cpu_ratio": 1.0, "live_get_cpu_ratio": 1.01}
    content = {
        "holdfast": ours,
        "anchor": anchor,
        "backlog": backlog,
        "takeover": {"takeover_seconds": 0.2},
    }
    found = {what: figure for what, figure, _ in goals(content)}
    assert found["202 per second, over the anchor"] == 12
    assert found["CPU of a 202, over the anchor"] == 0.25
    assert found["CPU of a delivery, over the anchor"] == 0.8
    assert "| takeover after kill -9, seconds | 0.2 | <= 1 |" in table(content)
