"""Pages quote the run that is kept beside them, and quote it rightly."""

from pathlib import Path
from typing import Any

import pytest

from bench import quotes
from bench.cases import ENVOY, SUBJECT, TWIN
from bench.publish import PERFORMANCE, README, main, section, with_ratios, with_section
from bench.report import markdown
from bench.results import FORMAT, PUBLISHED, read, text_of


def test_pages_say_what_the_published_run_found() -> None:
    text = PERFORMANCE.read_text()
    assert with_section(text, read(PUBLISHED)) == text, "run make generate"
    text = README.read_text()
    assert with_ratios(text, read(PUBLISHED)) == text, "run make generate"


def test_the_tables_beside_it_are_those_of_the_same_run() -> None:
    assert PUBLISHED.with_suffix(".md").read_text() == markdown(read(PUBLISHED))
    assert PUBLISHED.read_text() == text_of(read(PUBLISHED))


def test_the_published_run_came_to_its_end_and_has_enough_rounds() -> None:
    content = read(PUBLISHED)
    assert content["complete"]
    assert content["plan"]["rounds"] >= 7


def test_a_run_that_was_broken_off_is_not_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = PUBLISHED.read_text()
    path = tmp_path / "half.json"
    path.write_text(text_of(read(PUBLISHED) | {"complete": False}))
    assert main(["--publish", str(path)]) == 1
    assert "broken off" in capsys.readouterr().err
    assert PUBLISHED.read_text() == before


# How figures become sentences.


def case(ratios: list[dict[str, Any]] | None = None, **contenders: dict[str, float]) -> Any:  # noqa: ANN401 - a part of some JSON
    return {
        "contenders": {name: {"medians": medians} for name, medians in contenders.items()},
        "ratios": ratios or [],
    }


def times(of: str, to: str, value: float, metric: str = "cpu") -> dict[str, Any]:
    found = {"median": value, "low": value - 0.1, "high": value + 0.1}
    return {"metric": metric, "of": of, "to": to} | found


def run(**cases: Any) -> quotes.Run:  # noqa: ANN401 - a part of some JSON
    return quotes.Run({"cases": {name.replace("_", "-"): one for name, one in cases.items()}})


def test_peers_are_columns_with_the_ratio_and_who_is_missing_has_none() -> None:
    get = case(
        [times(SUBJECT, ENVOY, 0.8), times(SUBJECT, TWIN, 1.01)],
        **{SUBJECT: {"cpu": 40.0}, ENVOY: {"cpu": 50.0}},
    )
    heading, _, first, second, *_ = quotes.peers(run(get=get)).splitlines()
    assert heading == "| | Holdfast | Envoy | A/A |"
    assert first == "| small GET, CPU | 40 µs | 50 µs (0.80) | 1.01 |"
    assert second == "| POST of 1 KiB, CPU | not measured | not measured | |"


@pytest.mark.parametrize(
    ("metric", "value", "words"),
    [
        ("p99", 12_345.0, "12 ms"),
        ("p99", 1_234.0, "1,234 µs"),
        ("kib_each", 7.66, "7.7 KiB"),
        ("seconds", 0.5678, "0.568 s"),
        ("per_second", 12_345.6, "12,346"),
    ],
)
def test_figures_have_no_more_digits_than_they_are_worth(
    metric: str, value: float, words: str
) -> None:
    contender = {SUBJECT: {metric: value}}
    name = next(name for _, name, one in quotes.ROWS if one == metric)
    table = quotes.peers(quotes.Run({"cases": {name: case(None, **contender)}}))
    assert f"| {words} |" in table


def test_what_a_policy_costs() -> None:
    found = run(
        policies_get=case([times("holdfast-retry", "holdfast", 1.1)], holdfast={"cpu": 50.0}),
        keyed_memory=case([times("keyed", "plain", 1.4)]),
    )
    lines = quotes.costs(found).splitlines()
    assert "| no policy | 50 µs | not measured |" in lines
    assert "| retries, never needed | 1.10 times (1.00 to 1.20) | not measured |" in lines
    assert "| a new key with each POST, in memory | | 1.40 times (1.30 to 1.50) |" in lines


def test_what_a_core_and_a_redis_carry_is_arithmetic() -> None:
    found = run(
        get=case(None, **{SUBJECT: {"cpu": 40.0}}),
        keyed_memory=case(keyed={"cpu": 81.0}),
        redis=case(None, **{"holdfast-redis": {"store_cpu": 4.0}}),
    )
    assert " ".join(quotes.capacity(found)) == (
        "A core that does nothing else carries, per second, 1,000,000 µs divided by the CPU of one"
        " request: 25,000 GETs with retries and a throttle and 12,000 POSTs with a key in memory."
        " A Redis, which uses one core, spends 4.0 µs on a request under a shared throttle, and so"
        " carries 250,000 of them per second, from all instances together."
    )


def test_three_ratios_and_where_others_cost_less() -> None:
    found = run(
        get=case(
            [times(SUBJECT, ENVOY, 0.9), times(SUBJECT, "nginx", 4.0)], **{SUBJECT: {"cpu": 50.0}}
        ),
        single=case([times(SUBJECT, ENVOY, 0.95, "p50")]),
        upload=case([times(SUBJECT, ENVOY, 1.25, "cpu_mib")]),
        keyed_memory=case([times("keyed", "plain", 1.4)]),
    )
    _, _, cpu, latency, key, *_ = quotes.ratios(found).splitlines()
    assert cpu.endswith("| 0.90 |")
    assert latency.endswith("| 0.95 |")
    assert key.endswith("| 1.40, not measured, not measured |")
    assert quotes.other_ratios(found) == (
        "For a small GET nginx takes 25% of Holdfast's CPU. An upload of 1 MiB takes 1.25 times"
        " Envoy's CPU. One core carries some 20,000 such GETs per second."
    )


def test_who_was_left_out_is_named() -> None:
    content = read(PUBLISHED)
    missing = {"case": "get", "contender": "caddy", "why": "caddy is not installed"}
    text = section(content | {"format": FORMAT, "left_out": [missing]})
    assert "\n- caddy is missing from get: caddy is not installed\n" in text
