"""The alerts of ``config/prometheus``: tried on series, and about metrics that there are."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.prometheus.exposed import labels_by_name, scrape, unknown
from tests.support import ScriptedUpstream, one_route, running
from tests.support.proxies import ROOT
from tests.support.redis_server import redis_server
from tests.support.tools import tool
from tests.support.waiting import PATIENCE

FOLDER = ROOT / "config" / "prometheus"
UNIT_TESTS = Path(__file__).with_name("alerts.yaml")


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


@every_alert
def test_it_has_unit_tests_for_both(alert: dict[str, Any]) -> None:
    name = alert["alert"]
    metrics = {word for word in _words(alert["expr"]) if word.startswith("holdfast_")}
    fires = silent = 0
    for case in yaml.safe_load(UNIT_TESTS.read_text())["tests"]:
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
    assert set(notes) == {"summary", "description"}
    assert notes["summary"].endswith(".")
    assert len(notes["description"]) > len(notes["summary"])


async def test_they_ask_for_metrics_and_labels_that_there_are() -> None:
    known = labels_by_name(await scrape())
    for rule in RECORDED:
        assert unknown(rule["expr"], known) == []
        known[rule["record"]] = {"route"}
    for alert in ALERTS:
        assert unknown(alert["expr"], known) == [], alert["alert"]


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
