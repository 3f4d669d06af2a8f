"""The alerts of ``config/prometheus``: tried on series, and about metrics that there are."""

import asyncio
import json
import re
import sqlite3
import subprocess
import tomllib
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.prometheus.exposed import labels_by_name, scrape, unknown
from tests.support import ScriptedUpstream, answer, one_route, response, running
from tests.support.keys import new_key, post
from tests.support.proxies import ROOT
from tests.support.redis_server import redis_server
from tests.support.tools import tool
from tests.support.waiting import PATIENCE

FOLDER = ROOT / "config" / "prometheus"
UNIT_TESTS = Path(__file__).with_name("alerts.yaml")
RUNBOOK = ROOT / "docs" / "reference" / "alerts.md"
UP = {"up": {"job", "instance"}}
"""What Prometheus itself knows of each target."""


def rules(file: str) -> list[dict[str, Any]]:
    content = yaml.safe_load((FOLDER / file).read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


ALERTS = rules("alerts.yaml")
RECORDED = rules("rules.yaml")

every_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("file", ["alerts.yaml", "rules.yaml"])
def test_promtool_finds_nothing_wrong(file: str) -> None:
    assert "SUCCESS" in run(tool("promtool"), "check", "rules", str(FOLDER / file))


def test_each_alert_fires_and_stays_silent_as_its_unit_tests_say() -> None:
    run(tool("promtool"), "test", "rules", str(UNIT_TESTS))


@cache
def unit_tests() -> list[dict[str, Any]]:
    tests: list[dict[str, Any]] = yaml.safe_load(UNIT_TESTS.read_text())["tests"]
    return tests


@every_alert
def test_it_has_unit_tests_for_both(alert: dict[str, Any]) -> None:
    name = alert["alert"]
    metrics = {word for word in _words(alert["expr"]) if word.startswith("holdfast_") or word in UP}
    fires = silent = 0
    for case in unit_tests():
        about = str(case["input_series"])
        for expected in case.get("promql_expr_test", ()):
            if f'alertname="{name}"' in str(expected["exp_samples"]):
                fires += 1
            elif not expected["exp_samples"] and any(metric in about for metric in metrics):
                silent += 1
    assert fires
    assert silent


def _words(expr: str) -> list[str]:
    for rule in RECORDED:
        expr = expr.replace(rule["record"], rule["expr"])
    return "".join(c if c.isalnum() or c == "_" else " " for c in expr).split()


@every_alert
def test_it_says_how_bad_it_is_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning"}
    notes = alert["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert notes["summary"].endswith(".")
    assert len(notes["description"]) > len(notes["summary"])


# The page that tells what to do.


def home() -> str:
    """The address of the project, from which all others derive."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["urls"]["Homepage"])


def sections() -> dict[str, str]:
    """What the page says under each of its second headings."""
    parts = re.split(r"^## (.+)$", RUNBOOK.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@every_alert
def test_its_runbook_is_a_section_of_the_page(alert: dict[str, Any]) -> None:
    name, page = alert["alert"], RUNBOOK.relative_to(ROOT)
    assert alert["annotations"]["runbook_url"] == f"{home()}/blob/main/{page}#{name.lower()}"
    section = sections()[name]
    for part in ("- **It means**: ", "- **Confirm**: ", "- **Do**: "):
        assert part in section
    severity, after = re.findall(r"^\*(\w+), (.+?)\.\*", section, re.MULTILINE)[0]
    assert severity.lower() == alert["labels"]["severity"]
    assert after.startswith("at once") == ("for" not in alert)


def test_the_page_has_a_section_for_each_alert_in_their_order_and_for_nothing_else() -> None:
    assert list(sections()) == [alert["alert"] for alert in ALERTS]


async def test_the_page_asks_for_metrics_and_labels_that_there_are() -> None:
    page = RUNBOOK.read_text()
    queries = re.findall(r"^  ```promql\n(.+?)^  ```$", page, re.MULTILINE | re.DOTALL)
    assert queries
    known = labels_by_name(await scrape())
    for query in queries:
        assert unknown(query.strip(), known) == []
    named = set(re.findall(r"`(holdfast_[a-z_]+)`", page))
    assert named - known.keys() == set()


# What Prometheus is told to scrape.


def test_promtool_finds_nothing_wrong_with_the_scrape_configuration(tmp_path: Path) -> None:
    config = scrape_config(tmp_path)
    assert "SUCCESS" in run(tool("promtool"), "check", "config", str(config))


POD = {
    "namespace": "shop",
    "pod_name": "app-1",
    "pod_ip": "10.0.0.1",
    "pod_phase": "Running",
    "pod_container_name": "holdfast",
    "pod_container_port_name": "holdfast-admin",
    "pod_container_port_number": "9901",
}
"""What Kubernetes tells Prometheus of each port of a pod."""


def test_pods_become_targets_by_the_name_of_the_port(tmp_path: Path) -> None:
    of_the_app = POD | {
        "pod_container_name": "app",
        "pod_container_port_name": "http",
        "pod_container_port_number": "8000",
        "pod_annotation_prometheus_io_scrape": "true",
        "pod_annotation_prometheus_io_port": "8000",
    }
    without_a_port = POD | {"pod_container_port_name": "", "pod_container_port_number": ""}
    not_running = [POD | {"pod_phase": phase} for phase in ("Pending", "Succeeded", "Failed")]
    config = scrape_config(tmp_path, POD, of_the_app, without_a_port, *not_running)
    look = ("check", "service-discovery", "--timeout=1s", str(config), "holdfast-pods")
    found = [target["labels"] for target in json.loads(run(tool("promtool"), *look))]
    [labels] = filter(None, found)
    assert len(found) == 6
    shown = {"__address__", "__metrics_path__", "instance", "job", "namespace", "pod"}
    assert {name: value for name, value in labels.items() if name in shown} == {
        "__address__": "10.0.0.1:9901",
        "__metrics_path__": "/metrics",
        "instance": "shop/app-1",
        "job": "holdfast-pods",
        "namespace": "shop",
        "pod": "app-1",
    }


def scrape_config(folder: Path, *found: dict[str, str]) -> Path:
    """A copy of the configuration with these pods, as Kubernetes would tell of them.

    Debian's promtool does not know Kubernetes, so that it is given the labels by hand.
    """
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    by_name = {job["job_name"]: job for job in config["scrape_configs"]}
    pods = by_name["holdfast-pods"]
    assert pods.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    pods["static_configs"] = [
        {
            # The address that Kubernetes's discovery gives.
            "targets": [f"{pod['pod_ip']}:{pod['pod_container_port_number']}".rstrip(":")],
            "labels": {f"__meta_kubernetes_{name}": value for name, value in pod.items()},
        }
        for pod in found
    ]
    config["rule_files"] = [str(FOLDER / file) for file in config["rule_files"]]
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def test_every_job_is_one_that_absent_targets_are_looked_for_in() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    absent = next(alert for alert in ALERTS if alert["alert"] == "HoldfastAbsent")
    [pattern] = re.findall(r'job=~"(.+?)"', absent["expr"])
    for job in config["scrape_configs"]:
        assert re.fullmatch(pattern, job["job_name"])
    assert config["rule_files"] == ["rules.yaml", "alerts.yaml"]


# The metrics that they ask for.


async def test_they_ask_for_metrics_and_labels_that_there_are() -> None:
    known = labels_by_name(await scrape()) | UP
    for rule in RECORDED:
        assert unknown(rule["expr"], known) == []
        known[rule["record"]] = {"route"}
    for alert in ALERTS:
        assert unknown(alert["expr"], known) == [], alert["alert"]


@pytest.mark.parametrize(
    ("retry", "retried"), [("", False), ("retry: {attempts: 2, backoff: {base: 1ms}}", True)]
)
async def test_only_a_route_with_retries_counts_what_was_to_be_retried(
    retry: str, *, retried: bool
) -> None:
    """By which the share of saved requests leaves out routes with a fallback alone."""
    share = next(rule["expr"] for rule in RECORDED if "retry_success" in rule["record"])
    [reasons] = re.findall(r'reason=~"(retried\|.+?)"', share)
    async with ScriptedUpstream() as upstream:
        upstream.script(answer(response(503)), answer(response(503)))
        config = one_route(upstream, f"fallback: {{status: 503}}\n{retry}")
        async with running(config) as proxy:
            await proxy.get("/")
            metrics = await proxy.metrics()
    counted = {
        reason: metrics.total("holdfast_retry_verdicts_total", reason=reason)
        for reason in (*reasons.split("|"), "attempts_exhausted")
    }
    assert counted.pop("attempts_exhausted") == 1
    assert any(counted.values()) is retried, counted


async def test_a_store_that_is_gone_shows_as_failed_connects() -> None:
    """Which is what HoldfastStoreDown looks at."""
    async with redis_server() as redis, ScriptedUpstream() as upstream:
        top = redis.line("timeout: 200ms")
        async with running(one_route(upstream, "throttle: 1000/s", top=top)) as proxy:
            await proxy.get("/")
            await redis.stop()
            failed = 0.0
            async with asyncio.timeout(PATIENCE):
                while failed < 2:
                    await proxy.get("/")
                    metrics = await proxy.metrics()
                    failed = metrics.total("holdfast_store_errors_total", operation="connect")


async def test_a_file_that_is_locked_shows_as_claims_that_fail(tmp_path: Path) -> None:
    """Which HoldfastStoreDown looks at, too: a file has no connections."""
    file = tmp_path / "keys.db"
    top = f"store: {{url: 'sqlite:{file}', timeout: 50ms}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "idempotency: true", top=top)) as proxy,
    ):
        assert (await post(proxy, new_key())).status == 200
        before = await proxy.metrics()
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert (await post(proxy, new_key())).reason_word == "store"
            metrics = await proxy.metrics()
            other.execute("ROLLBACK")
        assert metrics.total("holdfast_store_errors_total", operation="claim") == 1
        answered = "holdfast_store_operation_duration_seconds_count"
        assert metrics.total(answered, operation="claim") == before.total(
            answered, operation="claim"
        )
