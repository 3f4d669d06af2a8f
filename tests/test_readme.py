"""README.md tells the truth: its tables are those of the code."""

import json
import re
from collections.abc import Iterator
from typing import cast

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.admin.operations import Operations
from proxy.admin.site import AdminSite
from proxy.cli import main
from proxy.http.fields import HOP_BY_HOP
from proxy.http.refusal import Refusal, RefusalReason
from proxy.observe.metrics.families import PHASES, WAIT_SOURCES
from proxy.policy.attempt import STATUS_CLASSES, FailureKind
from proxy.policy.dead_letter import ReplayResult
from proxy.policy.reasons import KeyResult, VerdictReason
from proxy.policy.settings import Listen
from proxy.stores import redis, sqlite
from tests.readme.blocks import blocks, code, rows
from tests.readme.tables import README, SECTIONS, tables, with_tables
from tests.support import (
    ScriptedUpstream,
    answer,
    eventually,
    one_route,
    response,
    running,
)
from tests.support.redis_server import redis_server

TEXT = README.read_text()
ANSWERS = "## Answers that Holdfast makes itself"
ADMIN = "## Admin listener"


# Tables.


def test_keys_are_those_of_the_models() -> None:
    assert with_tables(TEXT) == TEXT, "run make generate"


def test_every_key_has_a_row() -> None:
    assert tables(TEXT) == [
        "FileKeys",
        "UpstreamKeys",
        "RouteKeys",
        "PolicyKeys",
        "ThrottleKeys",
        "IdempotencyKeys",
        "DeadLetterKeys",
    ]
    documented = set(re.findall(r"^\| `(?:[\w\[\]]+\.)*(\w+)`", TEXT, re.MULTILINE))
    keys = {key for section in SECTIONS.values() for key in section.keys}
    # Mappings that have a row for each of their keys.
    assert keys - documented == {"limits", "tls", "request", "response", "backoff"}


def test_answers() -> None:
    shown = [(int(status), *code(reason)) for status, reason, _ in rows(TEXT, ANSWERS)]
    assert shown == [(Refusal(reason, "").status, reason.value) for reason in RefusalReason]


def test_only_429_503_and_a_key_in_flight_promise_that_waiting_helps() -> None:
    for reason in RefusalReason:
        refusal = Refusal(reason, "")
        helps = refusal.status in {429, 503} or reason is RefusalReason.KEY_IN_FLIGHT
        assert (refusal.retry_after is not None) == helps


def test_kinds() -> None:
    table = rows(TEXT, "## How attempts end")
    assert [(code(kind)[0], acted) for kind, _, acted, _ in table] == [
        (kind.value, "yes" if kind.may_have_run else "no") for kind in FailureKind
    ]
    for *_, gets in table:
        for reason in code(gets):
            assert gets == f"{Refusal(RefusalReason(reason), '').status} `{reason}`"


def test_reasons() -> None:
    table = rows(TEXT, "### Why was my request not retried?")
    assert [code(reason)[0] for reason, *_ in table] == [why.value for why in VerdictReason]


async def test_metrics() -> None:
    route, options = (
        "retry: true\nthrottle: true\nidempotency: true\ndead_letter: true",
        "breaker: true",
    )
    async with redis_server() as redis, ScriptedUpstream() as upstream:
        store = f"store: redis://127.0.0.1:{redis.port}"
        async with running(one_route(upstream, route, options=options, top=store)) as proxy:
            await proxy.get("/")
            upstream.usual = answer(response(503))
            async with proxy.client() as client:
                await client.request("POST", "/", body=b"a letter")
            await eventually(lambda: proxy.app._dead_letters.counts)
            exposed = (await proxy.admin("GET", "/metrics")).body.decode()
    families = {
        f"{family.name}_total" if family.type == "counter" else family.name: (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for family in text_string_to_metric_families(exposed)
        if family.name.startswith("holdfast_")
    }
    table = rows(TEXT, "## Metrics")
    shown = {code(name)[0]: (kind, set(code(labels))) for name, kind, labels, _ in table}
    assert shown == families


@pytest.mark.parametrize(
    ("label", "values"),
    [
        ("phase", {*PHASES}),
        ("outcome", {*STATUS_CLASSES[1:], "other", "a kind"}),
        ("reason", {*VerdictReason}),
        ("source", {*WAIT_SOURCES}),
        ("scope", {"route", "upstream"}),
        ("decision", {"passed", "delayed", "refused"}),
        ("operation", {*redis.OPERATIONS, *sqlite.OPERATIONS}),
        ("result", {"success", "failure"}),
        ("result", {*KeyResult}),
        ("result", {*ReplayResult}),
    ],
)
def test_metric_labels_have_these_values(label: str, values: set[str]) -> None:
    found = re.findall(rf"`{label}` \(([^)]+)\)", TEXT)
    assert values in [set(words.split(", ")) for words in found]


def test_access_log() -> None:
    shown = {field for row in rows(TEXT, "## Access log") for field in code(row[0])}
    (line,) = (json.loads(block) for block in blocks(TEXT, "json"))
    fields = {field for attempt in line["attempts"] for field in attempt}
    seldom = {
        "attempts[]",
        "refusal",
        "cause",
        "idempotency",
        "record",
        "queue_ms",
        "dead_letter",
        "replay",
    }
    assert shown == (line.keys() - {"attempts"}) | seldom | fields


def test_admin_endpoints() -> None:
    operations = cast("Operations", None)  # nothing is asked
    site = AdminSite(operations, Listen("127.0.0.1", 9901)).application()
    shown = [(*code(endpoint)[0].split(), token) for endpoint, token, _ in rows(TEXT, ADMIN)]
    assert {(method, path) for method, path, _ in shown} == {
        (route.method, str(route.resource and route.resource.canonical))
        for route in site.router.routes()
        if route.method != "HEAD"
    }
    open_to_all = {path for _, path, token in shown if token == "no"}
    assert open_to_all == {"/healthz", "/readyz", "/metrics"}


def commands_of(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands with their names, those of groups as ``keys show``."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def test_commands_and_their_options() -> None:
    shown = {}
    for command, _ in rows(TEXT, "## Command line"):
        usage = code(command.replace("\\|", "|"))[0].removeprefix("holdfast ")
        words = re.match(r"[a-z]+(?: [a-z]+)*", usage)
        assert words
        shown[words[0]] = set(re.findall(r"--?[a-zA-Z][a-zA-Z-]*", usage[words.end() :]))
    for name, known in commands_of(main):
        options = [param for param in known.params if isinstance(param, click.Option)]
        assert shown.pop(name) == {opt for p in options for opt in p.opts if opt != "--config"}
    assert not shown


def test_removed_fields_are_those_that_end_here() -> None:
    removed = {name.lower().encode() for name in code(rows(TEXT, "## Header fields")[0][1])}
    assert removed - {b"expect", b"x_forwarded_for", b"holdfast-timeout"} == HOP_BY_HOP
