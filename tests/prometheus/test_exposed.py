"""The comparison of queries with metrics sees what is wrong."""

import pytest

from tests.prometheus.exposed import unknown

KNOWN = {"a_total": {"route"}, "b": {"name"}}


@pytest.mark.parametrize(
    "query",
    [
        'sum by (job, route) (rate(a_total{route="x"}[5m]))',
        "max by (route) (a_total) / on () group_left () max(b{instance='c'}) > 5",
        "time() - b > 300 and b > 0",
        "histogram_quantile(0.9, sum by (route) (rate(a_total[5m])))",
        "max_over_time(sum(a_total)[10m:1m])",
    ],
)
def test_what_is_there(query: str) -> None:
    assert unknown(query, KNOWN) == []


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ("rate(c_total[5m])", ["c_total"]),
        ("1 - (a_total unless d)", ["d"]),
        ('a_total{code="5"}', ["a_total{code}"]),
        ("sum by (phase) (rate(a_total[5m]))", ["a_total{phase}"]),
        ("sum by (name) (b) / sum by (name) (a_total)", ["a_total{name}"]),
    ],
)
def test_what_is_not(query: str, missing: list[str]) -> None:
    assert unknown(query, KNOWN) == missing
