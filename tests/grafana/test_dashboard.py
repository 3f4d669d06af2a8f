"""The dashboard of ``config/grafana``: whole, and about metrics that there are."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.prometheus.exposed import asked, labels_by_name, scrape, unknown
from tests.support.proxies import ROOT
from tests.support.tools import tool

FILE = ROOT / "config" / "grafana" / "holdfast.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24

every_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])


def variables() -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in DASHBOARD["templating"]["list"]}


def queries() -> Iterator[str]:
    """Every query, with values in place of Grafana's variables."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield filled(target["expr"])
    for annotation in DASHBOARD["annotations"]["list"]:
        if "expr" in annotation:
            yield filled(annotation["expr"])


def filled(query: str) -> str:
    query = query.replace("$__rate_interval", "5m")
    for name in variables():
        query = query.replace(f'"${name}"', '".*"')
    assert "$" not in query
    return query


async def test_it_asks_for_metrics_and_labels_that_there_are() -> None:
    known = labels_by_name(await scrape())
    for query in queries():
        assert unknown(query, known) == [], query
    for variable in variables().values():
        match = re.fullmatch(r"label_values\((\S+), (\w+)\)", variable.get("definition", ""))
        if match:
            # As a query, it would put that metric together by the label.
            assert unknown(filled(f"sum by ({match[2]}) ({match[1]})"), known) == []


async def test_it_shows_every_metric_of_ours() -> None:
    shown = {one.name for query in queries() for one in asked(query)}
    ours = {name for name in labels_by_name(await scrape()) if name.startswith("holdfast_")}
    # Of a histogram the buckets are shown.
    assert {name for name in ours - shown if not re.search("_(sum|count|created)$", name)} == set()


def test_promtool_can_read_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"query:{n}", "expr": query} for n, query in enumerate(queries())]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        [tool("promtool"), "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_fallback_without_retries_is_no_retry_that_did_not_help(tmp_path: Path) -> None:
    panels = [panel for panel in PANELS if panel["title"] == "Retries that helped"]
    assert len(panels) == 2
    alone = {("pay", "attempts_exhausted"): 50, ("pay", "recovered"): 0, ("pay", "retried"): 0}
    other = {("ship", "attempts_exhausted"): 10, ("ship", "recovered"): 30, ("ship", "retried"): 50}
    labels = {"stat": "{}", "timeseries": "{route='ship'}"}
    tests = []
    for counted, share in ((alone, None), (alone | other, 0.75)):
        series = [
            {
                "series": f"holdfast_retry_verdicts_total{{job='a',instance='b',route='{route}',"
                f"reason='{reason}'}}",
                "values": f"0+{many}x20",
            }
            for (route, reason), many in counted.items()
        ]
        expected = [
            {
                "expr": f"round({filled(panel['targets'][0]['expr'])}, 0.001)",
                "eval_time": "15m",
                "exp_samples": []
                if share is None
                else [{"labels": labels[panel["type"]], "value": share}],
            }
            for panel in panels
        ]
        tests.append({"interval": "1m", "input_series": series, "promql_expr_test": expected})
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"tests": tests}))
    done = subprocess.run(
        [tool("promtool"), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_can_be_imported_anywhere() -> None:
    assert "id" not in DASHBOARD
    assert DASHBOARD["uid"] == "holdfast"
    assert DASHBOARD["schemaVersion"] >= 39
    assert variables()["datasource"]["type"] == "datasource"
    assert variables()["datasource"]["query"] == "prometheus"


def test_routes_can_be_chosen() -> None:
    route = variables()["route"]
    assert route["multi"]
    assert route["includeAll"]
    assert route["allValue"] == ".*"
    uses = [query for panel in PANELS for query in (t["expr"] for t in panel["targets"])]
    about_routes = [query for query in uses if "by (route" in query]
    assert about_routes
    assert all('route=~"$route"' in query for query in about_routes)


def test_instances_can_be_chosen() -> None:
    instance = variables()["instance"]
    assert instance["multi"]
    assert instance["includeAll"]
    assert instance["allValue"] == ".*"
    assert instance["definition"] == 'label_values(holdfast_build_info{job=~"$job"}, instance)'
    asked_for = [t["expr"] for panel in PANELS for t in panel["targets"]]
    asked_for += [one["expr"] for one in DASHBOARD["annotations"]["list"] if "expr" in one]
    for query in [*asked_for, variables()["route"]["definition"]]:
        chosen = query.count('{job=~"$job",instance=~"$instance"')
        assert chosen == query.count("{"), query


@every_panel
def test_it_says_what_it_shows_and_leaves_the_source_to_the_viewer(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["datasource"] == SOURCE
    assert all(target["datasource"] == SOURCE for target in panel["targets"])


@every_panel
def test_its_queries_are_told_apart(panel: dict[str, Any]) -> None:
    names = [target["refId"] for target in panel["targets"]]
    assert len(set(names)) == len(names)
    # A legend names only labels that the result has.
    for target in panel["targets"]:
        query = filled(target["expr"])
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert shown <= set(re.findall(r"\w+", query)) | {"instance"}, query


def test_no_panel_covers_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        cells = {
            (place["x"] + column, place["y"] + line)
            for column in range(place["w"])
            for line in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize(
    "subject",
    [
        "Traffic",
        "Errors",
        "Latency",
        "Retries",
        "Throttles",
        "Idempotency and store",
        "Dead letters",
        "Process",
    ],
)
def test_there_is_a_row_for_each_subject(subject: str) -> None:
    assert subject in [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
