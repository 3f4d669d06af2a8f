"""``holdfast status`` as a person sees it: real screens of 24 rows, keys, and the way back."""

import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.terminal import HOLDFAST, WITHOUT_RICH
from tests.cli.tmux import LEFT, Terminal, terminal
from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    ok,
    response,
    running,
    subprocess_proxy,
)

ROUTES = 12
CODES = re.compile(r"\x1b\[([0-9;]*)m")
THEME_COLOURS = {"", "0", "1", "4", "24", "31", "32", "33", "39", "49"}
"""Bold, underlined, red, green and yellow of the terminal's own palette, and back: they are
readable on light and on dark, as the person chose them."""


async def handle(visit: Visit) -> None:
    await visit.send(response(503) if visit.request.target == "/7" else ok())


@asynccontextmanager
async def busy_proxy() -> AsyncIterator[RunningProxy]:
    """A proxy with many routes, of which number 7 fails and number 3 is refused."""
    async with ScriptedUpstream(handle) as upstream:
        routes = "".join(
            f"  - {{name: route-{number}, match: /{number}, upstream: api"
            f"{', throttle: {rate: 1/m, burst: 1, max_wait: 0s}' if number == 3 else ''}}}\n"
            for number in range(ROUTES)
        )
        async with running(f"upstreams: {{api: '{upstream.url}'}}\nroutes:\n{routes}") as proxy:
            for number in (1, 3, 3, 7, 7):
                await proxy.get(f"/{number}")
            yield proxy


def command(proxy: RunningProxy, *arguments: str, program: tuple[str, ...] = HOLDFAST) -> list[str]:
    return [*program, "status", *arguments, "--admin", f"http://127.0.0.1:{proxy.admin_port}"]


def is_shown(screen: str) -> bool:
    """Whether all of a page is there: its last line says what else there is."""
    return bool(re.search(r"^(\d+ more rows|all rows shown)", screen, re.MULTILINE))


async def gives_back(shown: Terminal, status: int) -> None:
    """Assert that the command ends with that status, and that keys are echoed again."""
    left = await shown.until(lambda screen: re.search(r"^ echo$", screen, re.MULTILINE))
    assert f"{LEFT} {status}\n" in left
    assert "\n icanon\n" in left
    assert "Trouble" not in left, "the screen is as it was before"
    assert "Traceback" not in left


@pytest.mark.parametrize(
    ("columns", "theme"), [(60, "15;0"), (80, "15;0"), (80, "0;15"), (120, "0;15")]
)
async def test_what_is_important_is_seen_at_once(tmp_path: Path, columns: int, theme: str) -> None:
    async with (
        busy_proxy() as proxy,
        terminal(tmp_path, command(proxy, "--watch"), columns, COLORFGBG=theme) as shown,
    ):
        screen = await shown.until(is_shown)
        lines = screen.splitlines()
        assert len(lines) == 24
        assert max(map(len, lines)) <= columns
        assert re.match(r"\d\d:\d\d:\d\d \S+  http://127.0.0.1:\d+, every second", lines[0])
        text = " ".join(screen.split())
        assert re.search(r"!! route route-7 2 of 2 requests failed in the last \d+ s: 503 x2", text)
        assert re.search(r"! route route-3 1 of 2 requests was refused", text)
        # Routes in trouble come first, with their rates of now.
        first, second = [line for line in lines if re.match(r"route-\d", line)][:2]
        assert re.match(r"route-7 +\d+\.\d+ +100\.0% +0\.0% ", first)
        assert re.match(r"route-3 +\d+\.\d+ +0\.0% +50\.0% ", second)
        assert re.search(r"^\d+ more rows: scroll \| q: quit \| s: sorted by trouble", lines[-1])
        coloured = await shown.screen(with_codes=True)
        codes = {part for found in CODES.findall(coloured) for part in found.split(";")}
        assert {"31", "33"} <= codes <= THEME_COLOURS
        await shown.press("End")
        last = await shown.until(lambda screen: "reloads: 0 good" in screen)
        assert re.search(r"^\d+ rows above", last.splitlines()[-1])
        await shown.press("q")
        await gives_back(shown, 0)


async def test_keys_scroll_and_sort_and_a_changed_size_is_seen(tmp_path: Path) -> None:
    async with busy_proxy() as proxy, terminal(tmp_path, command(proxy, "--watch")) as shown:
        top = await shown.until(is_shown)
        second = top.splitlines()[1]
        assert second.startswith("holdfast ")
        for down, up in (("Down", "Up"), ("j", "k"), ("NPage", "PPage"), ("G", "g")):
            await shown.press(down)
            await shown.until(lambda screen: "\nholdfast " not in screen)
            await shown.press(up)
            await shown.until(lambda screen: "\nholdfast " in screen)
        await shown.press("s")
        by_name = await shown.until(lambda screen: "s: sorted by name" in screen)
        names = re.findall(r"^(route-\d+) ", by_name, re.MULTILINE)
        assert names[:3] == ["route-0", "route-1", "route-10"]
        await proxy.get("/1")
        await shown.until(lambda screen: "since the last look: +1 request" in screen)
        await shown.resize(100, 12)
        # The terminal has the new size first, with lines that were drawn for the old one.
        small = await shown.until(
            lambda screen: is_shown(screen) and max(map(len, screen.splitlines())) > 80
        )
        assert len(small.splitlines()) == 12
        await shown.press("C-c")
        await gives_back(shown, 0)


async def test_a_signal_and_a_proxy_that_is_gone_for_a_while(tmp_path: Path) -> None:
    config = "upstreams: {u: 'http://127.0.0.1:9'}\nroutes: [{match: /**, upstream: u}]"
    async with subprocess_proxy(config) as proxy:
        url = f"http://127.0.0.1:{proxy.admin_port}"
        watch = [*HOLDFAST, "status", "--watch", "--admin", url]
        async with terminal(tmp_path, watch) as shown:
            await shown.until(is_shown)
            os.kill(proxy.process.pid, signal.SIGSTOP)  # it accepts, and does not answer
            old = r"numbers of \d\d:\d\d:\d\d \S+, \d+s ago: no answer"
            gone = await shown.until(lambda screen: re.search(old, screen))
            assert "\nRoutes " in gone, "the last numbers are still there"
            os.kill(proxy.process.pid, signal.SIGCONT)
            await shown.until(lambda screen: ", every second" in screen)
            proxy.process.kill()
            await shown.until(lambda screen: "Connection refused" in screen)
            os.kill(await shown.pid_of_command(), signal.SIGTERM)
            await gives_back(shown, 128 + signal.SIGTERM)


@pytest.mark.parametrize(
    ("program", "environ", "pipe"),
    [
        pytest.param(HOLDFAST, {"NO_COLOR": "1"}, "", id="NO_COLOR"),
        pytest.param(WITHOUT_RICH, {}, "", id="rich is missing"),
        pytest.param(HOLDFAST, {}, "| cat", id="piped"),
    ],
)
async def test_without_colours(
    tmp_path: Path, program: tuple[str, ...], environ: dict[str, str], pipe: str
) -> None:
    async with busy_proxy() as proxy:
        arguments = command(proxy, "--route", "route-7", program=program)
        whole = ["sh", "-c", f'"$@" {pipe}', "-", *arguments]
        async with terminal(tmp_path, whole, 80, **environ) as shown:
            screen = await shown.until(lambda screen: LEFT in screen, with_codes=True)
    assert not CODES.findall(screen)
    assert re.search(r"^!! +route route-7  2 of 2 requests failed", screen, re.MULTILINE)
    assert re.search(r"^route-7 +\d+\.\d+ +100\.0%", screen, re.MULTILINE)
    assert f"{LEFT} 0" in screen


async def test_a_screen_obeys_no_name(tmp_path: Path) -> None:
    """What answers may be anyone, and have names made for terminals."""
    evil = "a\x1b[2J\x1b]0;owned\x07\u202eb\r\n"
    told = {
        "version": evil,
        "state": evil,
        "store": {"url": evil, "state": evil},
        "routes": {evil: {"requests": {"2xx": 1}, "verdicts": {evil: 3}, "upstreams": [evil]}},
        "addresses": {evil: [{"address": evil, "breaker": evil}]},
        "trouble": [
            {"level": "bad", "about": evil, "name": evil, "reason": evil, "text": f"{evil} is bad"}
        ],
        "last_minute": {"seconds": 60, "routes": {evil: {"requests": {"2xx": 1}}}},
    }
    reply = answer(response(200, json.dumps(told).encode(), "Connection: close"))
    async with ScriptedUpstream(reply) as listener:
        watch = [*HOLDFAST, "status", "--watch", "--admin", listener.url]
        async with terminal(tmp_path, watch) as shown:
            screen = await shown.until(is_shown)
            assert screen.count("a?[2J?]0;owned??b") >= 5
            assert screen.splitlines()[0].endswith("every second"), "nothing was cleared"
            await shown.press("q")
            await gives_back(shown, 0)
