import json
from pathlib import Path
from typing import Any

import pytest

from bench.cases import ENVOY, SUBJECT
from bench.loads import Plan
from bench.report import bars, case_table, markdown, missing
from bench.results import FORMAT, Results, keep, read, text_of
from bench.rounds import Measured


def results() -> Results:
    """A run of two rounds that only had time for one case."""
    measured = Measured(
        series={
            SUBJECT: [{"cpu": 40.0, "p50": 100.0}, {"cpu": 30.0, "p50": 120.0}],
            ENVOY: [{"cpu": 80.0, "p50": 100.0}, {"cpu": 40.0, "p50": 100.0}],
        },
        left_out={"traefik": "traefik is not installed"},
        repeated=[(ENVOY, "wrk ended without a word")],
    )
    return Results(
        Plan(rounds=2, seconds=0.5),
        commit="abc",
        machine={"cores": 2, "cpu": "one", "load_before": 0.5},
        versions={"python": "3.11.7", "envoy": "1.40.0"},
        cases={"get": measured},
        began=0.0,
    )


def content() -> dict[str, Any]:
    return json.loads(text_of(results().content()))  # type: ignore[no-any-return]  # it is JSON


def test_every_sample_median_and_ratio_is_there() -> None:
    case = content()["cases"]["get"]
    assert case["contenders"][SUBJECT] == {
        "proxy": SUBJECT,
        "medians": {"cpu": 35.0, "p50": 110.0},
        "samples": {"cpu": [40.0, 30.0], "p50": [100.0, 120.0]},
    }
    assert case["ratios"] == [
        {"metric": "cpu", "of": SUBJECT, "to": ENVOY, "median": 0.625, "low": 0.5, "high": 0.75},
        {"metric": "p50", "of": SUBJECT, "to": ENVOY, "median": 1.1, "low": 1.0, "high": 1.2},
    ]


def test_bars_are_judged_and_those_that_are_not_say_why() -> None:
    found = content()["bars"]
    assert found["get"] == {
        "what": "CPU per small GET, times Envoy's",
        "figure": 0.625,
        "most": 1.0,
        "least": None,
        "met": True,
        "why": "",
    }
    assert (found["post"]["met"], found["post"]["figure"]) == (None, None)
    assert found["post"]["why"]


def test_where_when_and_what() -> None:
    found = content()
    assert found["format"] == FORMAT
    assert found["at"] == "1970-01-01T00:00:00Z"
    assert found["complete"] is False
    assert found["plan"]["rounds"] == 2
    assert found["left_out"] == [
        {"case": "get", "contender": "traefik", "why": "traefik is not installed"}
    ]
    assert found["repeated"] == [
        {"case": "get", "contender": ENVOY, "why": "wrk ended without a word"}
    ]


def test_samples_are_on_one_line() -> None:
    assert '"cpu": [40.0, 30.0],' in text_of(results().content())


def test_what_is_kept_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "results" / "kept.json"
    keep(path, text_of(results().content()))
    assert read(path)["commit"] == "abc"
    assert [file.name for file in path.parent.iterdir()] == ["kept.json"]


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text('{"format": 99}')
    with pytest.raises(ValueError, match="format 99"):
        read(path)


# The tables.


def test_table_of_a_case() -> None:
    assert case_table(content()["cases"]["get"]).splitlines() == [
        "| | CPU per request | median latency |",
        "| --- | --- | --- |",
        "| holdfast-policies | 35.0 µs | 110 µs |",
        "| envoy-policies | 60.0 µs | 100 µs |",
        "| *holdfast-policies / envoy-policies* | 0.62 (0.50 to 0.75) | 1.10 (1.00 to 1.20) |",
    ]


def test_a_case_without_contenders_says_so() -> None:
    assert case_table({"contenders": {}}) == "Nobody could take part.\n"


def test_table_of_bars() -> None:
    judged = content()["bars"]
    lines = bars({name: judged[name] for name in ("get", "workers-share")}).splitlines()
    assert lines[2] == "| CPU per small GET, times Envoy's | 0.625 | at most 1 | yes |"
    assert lines[3].startswith("| the lesser of two workers' share of the work | | at least 0.4 |")
    assert "unknown: case workers was not run" in lines[3]


def test_who_is_missing_is_told_once_for_all_cases() -> None:
    left_out = [{"case": case, "contender": "caddy", "why": "no caddy"} for case in ("a", "b")]
    assert list(missing(left_out)) == ["- caddy is missing from a, b: no caddy"]


def test_the_whole_report_says_that_it_is_not_all() -> None:
    text = markdown(content())
    assert "**The run was broken off: cases are missing.**" in text
    assert "- traefik is missing from get: traefik is not installed" in text
