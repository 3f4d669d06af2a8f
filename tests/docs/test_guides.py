"""How-to pages have the same parts, show the files that are shipped, and name keys that exist."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.config import ConfigError, load
from proxy.config.diagnostics.other_products import SYNONYMS
from proxy.policy.attempt import FailureKind
from tests.docs.generated.key_tables import SECTIONS
from tests.docs.kit.blocks import code, rows
from tests.docs.kit.pages import ROOT, blocks_of, name_of

HOW_TO = ROOT / "docs" / "how-to"
EXAMPLES = ROOT / "config" / "examples"
MOVING = sorted(HOW_TO.glob("from-*.md"))
TASKS = [
    HOW_TO / f"{name}.md"
    for name in (
        "dead-letters",
        "held-key",
        "kubernetes",
        "llm-api",
        "not-retried",
        "payments",
        "quotas",
        "redis-down",
        "several-instances",
    )
]
SHOWN = {"llm-api": "llm-api", "payments": "payments", "quotas": "github"}
"""Pages → the example that they show."""

# A row of a table with three columns.
_ROW = re.compile(
    r"^\| (?P<theirs>.+?) \| (?P<ours>.*?) ?\| (?P<difference>.*?) ?\|$", re.MULTILINE
)
_KEY = re.compile(r"(?P<path>[a-z_]+(?:\.[a-z_]+)*)(?:: (?P<value>.+))?")
_NAME = re.compile(r"[A-Za-z_]+")


def headings(page: Path) -> list[str]:
    return re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", TASKS, ids=name_of)
def test_a_task_has_a_goal_a_file_commands_pitfalls_and_links(page: Path) -> None:
    assert re.match(r"# .+\n\nGoal: ", page.read_text(encoding="utf-8"))
    blocks = blocks_of(page)
    assert [block for block in blocks if block.language == "yaml" and not block.words]
    assert [block for block in blocks if block.language == "console"]
    assert headings(page)[-1] == "Read on"
    assert "What can go wrong" in headings(page)


@pytest.mark.parametrize("page", MOVING, ids=name_of)
def test_moving_over_has_both_files_tables_and_what_does_not_map(page: Path) -> None:
    assert re.match(r"# Moving over from .+\n\nGoal: ", page.read_text(encoding="utf-8"))
    assert headings(page) == [
        "Before and after",
        "Check it",
        "Their words and ours",
        "What has no counterpart",
        "What is safer here",
        "Read on",
    ]
    blocks = blocks_of(page)
    assert [block for block in blocks if block.file == "holdfast.yaml"]
    assert [block for block in blocks if block.language == "console"]


def test_all_products_are_there() -> None:
    assert [page.stem.removeprefix("from-") for page in MOVING] == [
        "envoy",
        "litellm",
        "nginx",
        "polly",
        "tenacity",
        "traefik",
    ]


@pytest.mark.parametrize(("page", "example"), SHOWN.items())
def test_a_page_shows_the_example_as_it_is(page: str, example: str) -> None:
    (shown,) = (
        block for block in blocks_of(HOW_TO / f"{page}.md") if block.file == f"{example}.yaml"
    )
    lines = (EXAMPLES / f"{example}.yaml").read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert shown.text.splitlines() == [f"# {example}.yaml", *lines[start:]]


def test_all_files_for_payments_ask_for_a_key_wherever_money_moves(tmp_path: Path) -> None:
    pages = (ROOT / "README.md", HOW_TO / "payments.md")
    blocks = [block for page in pages for block in blocks_of(page) if block.language == "yaml"]
    files = [block for block in blocks if "payments:" in block.text]
    assert len(files) == 3
    taken = set()
    for block in files:
        path = tmp_path / "payments.yaml"
        path.write_text(block.text, encoding="utf-8")
        pay = load([path], {}).settings.routes[0]
        assert pay.idempotency is not None
        assert pay.idempotency.required
        assert pay.dead_letter is not None
        taken.add((pay.name, pay.match))
    [(_, match)] = taken
    assert {*match.paths} == {"/v1/charges", "/v1/refunds", "/v1/payouts"}


# Their words and ours.


def translations(page: Path) -> list[tuple[list[str], list[str]]]:
    """What is marked as code in the first and the second column, row by row."""
    text = page.read_text(encoding="utf-8").partition("\n## Their words and ours\n")[2]
    rows = _ROW.finditer(text.replace("\\|", " "))
    return [(code(row["theirs"]), code(row["ours"])) for row in rows]


def keys_in(words: str) -> list[str]:
    """The keys that a piece of YAML such as ``throttle.key: client_ip`` names."""
    found = _KEY.fullmatch(words)
    if found is None:
        return []
    inner = re.findall(r"[{,] ?([a-z_]+):", found["value"] or "")
    return [*found["path"].split("."), *inner]


@pytest.mark.parametrize("page", MOVING, ids=name_of)
def test_our_words_are_keys(page: Path) -> None:
    known = {key for section in SECTIONS.values() for key in section.keys}
    named = {key for _, ours in translations(page) for words in ours for key in keys_in(words)}
    assert len(named) > 10
    # Values that stand beside their key: ``balance`` is ``round_robin`` or ``first``.
    assert named <= known | {"exponential", "full"}


HOMES = (
    "routes: [{match: /**, upstream: api, retry: {%s}}]",
    "routes: [{match: /**, upstream: api, %s}]",
    "routes: [{upstream: api, %s}]",
    "upstreams: {api: {urls: [http://127.0.0.1:9000], %s}}",
    "%s",
)
"""Where a key may stand."""
BASE = """
upstreams: {api: http://127.0.0.1:9000}
defaults: {timeout: 1h, throttle: {rate: 1/s}}
routes: [{match: /**, upstream: api}]
"""


def is_accepted(words: str, folder: Path) -> bool:
    """Whether *words*, such as ``throttle.key: client_ip``, load somewhere in a file."""
    path, _, value = words.partition(": ")
    *outer, key = path.split(".")
    inner = f"{key}: {value}"
    for name in reversed(outer):
        inner = f"{name}: {{{inner}}}"
    base, part = folder / "base.yaml", folder / "part.yaml"
    base.write_text(BASE, encoding="utf-8")
    for home in HOMES:
        part.write_text(home % inner, encoding="utf-8")
        with suppress(ConfigError):
            load([base, part], {})
            return True
    return False


@pytest.mark.parametrize("page", MOVING, ids=name_of)
def test_our_values_are_accepted(page: Path, tmp_path: Path) -> None:
    written = [words for _, ours in translations(page) for words in ours if ": " in words]
    tried = [words for words in written if not re.search("…|NAME", words)]
    assert [words for words in tried if not is_accepted(words, tmp_path)] == []


def test_a_value_that_is_not_accepted_is_found(tmp_path: Path) -> None:
    assert is_accepted("backoff: {strategy: linear, base: 1s, increment: 2s}", tmp_path)
    assert is_accepted("throttle.key: client_ip", tmp_path)
    assert not is_accepted("throttle.key: ip", tmp_path)
    assert not is_accepted("backoff.base: 200", tmp_path)


@pytest.mark.parametrize("page", MOVING, ids=name_of)
def test_check_suggests_what_the_page_does(page: Path) -> None:
    for theirs, ours in translations(page):
        said = " ".join(ours)
        for word in (name for words in theirs for name in _NAME.findall(words)[-1:]):
            suggested = [path.rpartition(".")[2] for path in SYNONYMS.get(word, ())]
            if suggested and ours:
                assert any(name in said for name in suggested), (word, suggested, said)


def test_a_key_that_does_not_exist_is_found() -> None:
    assert keys_in("throttle.key: client_ip") == ["throttle", "key"]
    assert keys_in("backoff: {strategy: linear, base: 1s}") == ["backoff", "strategy", "base"]
    assert keys_in("holdfast check") == keys_in("/readyz") == keys_in("Holdfast-Timeout") == []


# What is repeated.


def test_what_is_repeated_goes_by_the_kinds_of_failures(tmp_path: Path) -> None:
    page = ROOT / "docs" / "explanation" / "repeats.md"
    kinds = {kind.value: kind for kind in FailureKind}
    nameable = {name for name in kinds if is_accepted(f"on: [{name}]", tmp_path)}
    seen = set()
    table = rows(page.read_text(encoding="utf-8"), "## What is repeated")
    for after, may_have_run, repeated in table:
        for name in {*code(after)} & {*kinds}:
            seen.add(name)
            assert (repeated != "never") == (name in nameable)
            if repeated != "never":
                assert may_have_run == ("yes" if kinds[name].may_have_run else "no")
    # Both end after the head was relayed, or without a verdict.
    assert {*kinds} - seen == {"truncated", "cancelled"}
