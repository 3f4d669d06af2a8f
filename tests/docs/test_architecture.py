"""docs/architecture.md: its journeys are those of real requests, and every package has its row."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from proxy.app.lifecycle import App
from proxy.config import load
from tests.support import RunningProxy, ScriptedUpstream, answer, one_route, response, running

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

Step = tuple[str, str]
"""A file and a function in it."""


def journey(name: str) -> list[Step]:
    """The steps of the journey that is marked with *name*."""
    after = TEXT.partition(f"<!-- journey: {name} -->\n")[2]
    lines = after.partition("\n\n")[0].splitlines()
    steps = [re.match(r"\d+\. `(proxy/[\w/]+\.py)` `([\w.]+)`: ", line) for line in lines]
    assert all(steps), f"a line of {name} names no file and function"
    return [(step[1], step[2]) for step in steps if step is not None]


@contextmanager
def tracing() -> Iterator[list[Step]]:
    """All functions of ours that are called, in their order."""
    called: list[Step] = []
    package = f"{ROOT}/proxy/"

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package):
            called.append((code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname))

    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)


def assert_in_order(steps: list[Step], called: list[Step]) -> None:
    """Each step comes after the one before it."""
    calls = iter(called)
    for step in steps:
        assert step in calls, f"{step} is not called, or earlier than the page says"


async def get(proxy: RunningProxy) -> None:
    assert (await proxy.get("/")).status == 200


async def pay(proxy: RunningProxy) -> None:
    async with proxy.client() as client:
        got = await client.request("POST", "/", "Idempotency-Key: one", body=b"pay")
        assert got.status == 200


Ask = Callable[[RunningProxy], Awaitable[None]]


@pytest.mark.parametrize(
    ("name", "route", "statuses", "asked"),
    [
        pytest.param("bare GET", "", [], [get], id="bare GET"),
        pytest.param(
            "retried GET",
            "retry: {attempts: 2, backoff: {base: 1ms}}\nthrottle: 100/s",
            [503],
            [get],
            id="retried GET",
        ),
        pytest.param("keyed POST", "idempotency: true", [], [pay], id="keyed POST"),
        pytest.param("duplicate", "idempotency: true", [], [pay, pay], id="duplicate"),
    ],
)
async def test_journeys(name: str, route: str, statuses: list[int], asked: list[Ask]) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        upstream.script(*(answer(response(status)) for status in statuses))
        *before, last = asked
        for ask in before:
            await ask(proxy)
        with tracing() as called:
            await last(proxy)
            await proxy.logged()
    assert_in_order(journey(name), called)


async def test_journey_of_a_key(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.yaml"
    file.write_text(
        "listen: 127.0.0.1:0\nadmin: false\nupstreams: {a: 'http://127.0.0.1:9'}\n"
        "routes:\n  - {match: /**, upstream: a, retry: {attempts: 5}}\n"
    )
    with tracing() as called:
        app = App(lambda: load([file], {}))
    await app.stop_at_once()
    await asyncio.sleep(0)
    assert_in_order(journey("YAML key"), called)


def test_every_package_has_its_row() -> None:
    rows = set(re.findall(r"^\| `(proxy/\w+/)` \|", TEXT, re.MULTILINE))
    packages = {f"proxy/{init.parent.name}/" for init in (ROOT / "proxy").glob("*/__init__.py")}
    assert rows == packages


def test_the_life_of_a_request_names_files_that_exist() -> None:
    text = (ROOT / "proxy" / "__init__.py").read_text(encoding="utf-8")
    named = re.findall(r"``([\w/]+\.(?:py|md))``", text)
    assert len(named) > 20
    for name in named:
        assert (ROOT / "proxy" / name).exists() or (ROOT / name).exists(), name


def test_the_glossary_is_in_order_and_has_no_word_twice() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| (?!term|-)(.+?) \| .+ \| `proxy/.+` \|$", text, re.MULTILINE)
    assert len(words) > 60
    assert words == sorted(set(words), key=str.casefold)
