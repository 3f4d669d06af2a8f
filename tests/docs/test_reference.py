"""The reference tells the truth: its tables are those of the code."""

import json
import re
from inspect import getsource as source_of
from typing import cast

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.admin.dead_letters import _OBSTACLES
from proxy.admin.deliveries import _REFUSALS
from proxy.admin.operations import Operations
from proxy.admin.site import AdminSite
from proxy.cli import main
from proxy.http.fields import HOP_BY_HOP
from proxy.http.refusal import Refusal, RefusalReason
from proxy.observe.metrics.families import PHASES, WAIT_SOURCES
from proxy.pipeline import build
from proxy.policy.attempt import STATUS_CLASSES, FailureKind
from proxy.policy.dead_letter import ReplayResult
from proxy.policy.reasons import KeyResult, VerdictReason
from proxy.policy.settings import Listen
from proxy.stores import redis, sqlite
from tests.docs.generated.command_line import commands_of, with_commands
from tests.docs.generated.key_tables import SECTIONS, tables, with_tables
from tests.docs.kit.blocks import blocks, code, links, rows
from tests.docs.kit.pages import ROOT
from tests.prometheus.exposed import scrape

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"


def text_of(page: str) -> str:
    """A page of the reference; a table may stand below its title."""
    return "\n" + (REFERENCE / f"{page}.md").read_text(encoding="utf-8")


def test_keys_are_those_of_the_models() -> None:
    text = text_of("configuration")
    assert with_tables(text) == text, "run make generate"


def test_every_key_has_a_row() -> None:
    text = text_of("configuration")
    assert tables(text) == [
        "FileKeys",
        "UpstreamKeys",
        "RouteKeys",
        "PolicyKeys",
        "ThrottleKeys",
        "IdempotencyKeys",
        "DeadLetterKeys",
        "HandOffKeys",
    ]
    documented = set(re.findall(r"^\| `(?:[\w\[\]]+\.)*(\w+)`", text, re.MULTILINE))
    keys = {key for section in SECTIONS.values() for key in section.keys}
    # Mappings that have a row for each of their keys.
    assert keys - documented == {
        *("limits", "tls", "request", "response", "deliveries"),
    }


def test_answers() -> None:
    table = rows(text_of("answers"), "# Answers that Holdfast makes itself")
    shown = [(int(status), *code(reason), *links(reason)) for status, reason, _ in table]
    assert shown == [
        (Refusal(reason, "").status, reason.value, f"problem-types.md#{reason}")
        for reason in RefusalReason
    ]


def test_every_problem_type_has_a_section_that_says_what_to_do() -> None:
    sections = (
        text_of("problem-types").partition("\n## Problems of the admin")[0].split("\n## ")[1:]
    )
    shown = [tuple(section.split("\n\n", 1)) for section in sections]
    assert [name for name, _ in shown] == [reason.value for reason in RefusalReason]
    for name, section in shown:
        assert section.startswith(f"{Refusal(RefusalReason(name), '').status}"), name
        words = section.replace("\n", " ")
        assert "**May have run:**" in words, name
        assert "**Caller:**" in words, name


def test_problems_of_the_admin_listener() -> None:
    table = rows(text_of("problem-types"), "## Problems of the admin listener")
    shown = {(int(status), reason) for status, reasons, _ in table for reason in code(reasons)}
    source = "".join(path.read_text() for path in (ROOT / "proxy" / "admin").glob("*.py"))
    written = re.findall(r'problem\(\s*(\d+),\s*"(\w+)"', source)
    found = {(int(status), reason) for status, reason in written}
    found |= {(status, name.value) for name, (status, _) in _OBSTACLES.items()}
    assert shown == found | {(status, name.value) for name, (status, _) in _REFUSALS.items()}


_ENDS_BY_ITSELF = {RefusalReason.KEY_IN_FLIGHT, RefusalReason.UNDER_WAY}


def test_only_429_503_and_what_is_under_way_promise_that_waiting_helps() -> None:
    for reason in RefusalReason:
        refusal = Refusal(reason, "")
        helps = refusal.status in {429, 503} or reason in _ENDS_BY_ITSELF
        assert (refusal.retry_after is not None) == helps


@pytest.mark.parametrize("page", ["reference/answers.md", "explanation/repeats.md"])
def test_kinds(page: str) -> None:
    table = rows((DOCS / page).read_text(encoding="utf-8"), "## How attempts end")
    assert [(code(kind)[0], acted) for kind, _, acted, _ in table] == [
        (kind.value, "yes" if kind.may_have_run else "no") for kind in FailureKind
    ]
    for *_, gets in table:
        for reason in code(gets):
            assert gets == f"{Refusal(RefusalReason(reason), '').status} `{reason}`"


def test_reasons() -> None:
    text = (DOCS / "how-to" / "not-retried.md").read_text(encoding="utf-8")
    table = rows(text, "## The reasons")
    assert [code(reason)[0] for reason, *_ in table] == [why.value for why in VerdictReason]


async def test_metrics() -> None:
    exposed = await scrape()
    families = {
        f"{family.name}_total" if family.type == "counter" else family.name: (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for family in text_string_to_metric_families(exposed)
        if family.name.startswith("holdfast_")
    }
    table = rows(text_of("metrics"), "# Metrics")
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
    found = re.findall(rf"`{label}` \(([^)]+)\)", text_of("metrics"))
    assert values in [set(words.split(", ")) for words in found]


def test_access_log() -> None:
    shown = {field for row in rows(text_of("access-log"), "## Fields") for field in code(row[0])}
    (line,) = (json.loads(block) for block in blocks(text_of("access-log"), "json"))
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
        "delivery",
    }
    assert shown == (line.keys() - {"attempts"}) | seldom | fields


def test_admin_endpoints() -> None:
    operations = cast("Operations", None)  # nothing is asked
    site = AdminSite(operations, Listen("127.0.0.1", 9901)).application()
    table = rows(text_of("admin-api"), "# Admin API")
    shown = [(*code(endpoint)[0].split(), token) for endpoint, token, _ in table]
    assert {(method, path) for method, path, _ in shown} == {
        (route.method, str(route.resource and route.resource.canonical))
        for route in site.router.routes()
        if route.method != "HEAD"
    }
    open_to_all = {path for _, path, token in shown if token == "no"}
    assert open_to_all == {"/healthz", "/readyz", "/metrics"}


def test_commands_and_their_options() -> None:
    text = text_of("command-line")
    assert with_commands(text) == text, "run make generate"
    sections = dict(section.split("\n\n", 1) for section in text.split("\n## ")[1:])
    for name, known in commands_of(main):
        section = sections.pop(f"holdfast {name}")
        options = [param for param in known.params if isinstance(param, click.Option)]
        cells = [code(line.split(" | ")[0]) for line in section.splitlines() if line[:3] == "| `"]
        shown = {option.split()[0] for cell in cells for option in cell}
        assert shown == {opt for p in options for opt in (*p.opts, *p.secondary_opts)}
        assert "\n```sh\nholdfast " in section, "an example"
    # The table of variables is compared in tests/cli/test_environment.py.
    assert sections.keys() == {"Description", "Environment variables"}


def test_removed_fields_are_those_that_end_here() -> None:
    removed = {
        name.lower().encode()
        for name in code(rows(text_of("header-fields"), "# Header fields")[0][1])
    }
    assert removed - {b"expect", b"x_forwarded_for", b"holdfast-timeout"} == HOP_BY_HOP


def test_the_picture_has_the_stages_of_the_page_in_the_order_of_the_pipeline() -> None:
    folder = DOCS / "explanation"
    picture = (folder / "request-life.svg").read_text(encoding="utf-8")
    text = (folder / "request-life.md").read_text(encoding="utf-8")
    stages = re.findall(r'class="stage">(\d\. [^<]+)<', picture)
    assert stages == re.findall(r"^## (\d\. .+)$", text, re.MULTILINE)
    # A request meets them from the last to the first, and has been matched to its route before.
    numbered = re.findall(
        r"^    # \d\. ([A-Z][a-z]+(?: letters|-off)?)", source_of(build), re.MULTILINE
    )
    met = [name for name in reversed(numbered) if name != "Fallback"]
    first = met.index("Idempotency")  # before it there is the part for refusals of any stage
    assert [stage.partition(". ")[2] for stage in stages] == ["Route", *met[first:]]
