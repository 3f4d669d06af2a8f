"""D2: the command line of the event engine, which shows failures by category."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.cli.terminal import ESCAPE, HOLDFAST, WITHOUT_RICH, Ended, on_terminal
from tests.designs.design import Design
from tests.support import RunningProxy, ScriptedUpstream, Visit, answer, ok, response

DESIGN = Design("retry-strategies.yaml")
GREEN, YELLOW, RED = "\x1b[32m", "\x1b[33m", "\x1b[31m"


async def handle(visit: Visit) -> None:
    """Payments work, e-mails are down, reports are refused for good."""
    status = {"/emails/1": 503, "/reports/1": 422}.get(visit.request.target)
    await visit.send(ok() if status is None else response(status))


@asynccontextmanager
async def stage() -> AsyncIterator[RunningProxy]:
    """The design, after one event of each kind."""
    async with ScriptedUpstream(handle) as handlers:
        overlay = f"""
            upstreams: {{handlers: {{urls: ["{handlers.url}"]}}}}
            defaults: {{retry: {{backoff: {{base: 1ms}}}}}}
            policies: {{linear: {{retry: {{backoff: {{increment: 1ms}}}}}}}}
        """
        async with DESIGN.running(overlay) as proxy:
            for path, status in (("/payments/1", 200), ("/emails/1", 503), ("/reports/1", 422)):
                assert (await proxy.get(path)).status == status
            yield proxy


async def status(
    admin: int | str, *arguments: str, command: Sequence[str] = HOLDFAST, **environ: str
) -> Ended:
    """``holdfast status`` on a terminal."""
    url = admin if isinstance(admin, str) else f"http://127.0.0.1:{admin}"
    ended = await on_terminal([*command, "status", "--admin", url, *arguments], environ)
    assert ended.status == 0, ended.text
    return ended


def row(text: str, title: str, name: str) -> list[str]:
    """The cells of one row below a title."""
    below = text.partition(f"\n{title}")[2].partition("\n\n")[0]
    [found] = [line for line in below.splitlines() if line.startswith(f"{name} ")]
    return found.removeprefix(name).split()


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        pytest.param(HOLDFAST, ["--plain"], id="--plain"),
        pytest.param(WITHOUT_RICH, [], id="rich is missing"),
    ],
)
async def test_plain_output_has_no_escape_codes(
    command: tuple[str, ...], arguments: list[str]
) -> None:
    async with stage() as proxy:
        shown = await status(proxy.admin_port, *arguments, command=command)
    assert ESCAPE not in shown.text
    assert "\nFailed attempts" in shown.text


async def test_status_shows_what_failed_with_a_breakdown_by_category() -> None:
    async with stage() as proxy:
        text = (await status(proxy.admin_port, "--plain")).text
    # Requests and failed requests in all.
    assert row(text, "Routes", "/payments/**")[-2:] == ["1", "0.0%"]
    assert row(text, "Routes", "/emails/**")[-2:] == ["1", "100.0%"]
    # Retries and how many of those worked: of the last minute, then in all.
    retries = row(text, "Retries", "/emails/**")
    assert (retries[:2], retries[3:5]) == (["5", "0.0%"], ["5", "0.0%"])
    # Transient, which are candidates for a retry; permanent; twice; and which they were.
    assert row(text, "Failed attempts", "/emails/**") == ["6", "0", "6", "0", "503", "x6"]
    assert row(text, "Failed attempts", "/reports/**") == ["0", "1", "0", "1", "422", "x1"]
    assert "/payments/**" not in text.partition("\nFailed attempts")[2].partition("\n\n")[0]


async def test_success_is_green_errors_are_red_and_warnings_yellow() -> None:
    async with stage() as proxy:
        text = (await status(proxy.admin_port)).text

    def coloured(title: str, name: str, cell: str) -> bool:
        below = text.partition(f"[1m{title}")[2].partition("\n\n")[0]
        [found] = re.findall(rf"^{re.escape(name)} .*$", below, re.MULTILINE)
        return cell in found

    assert coloured("Routes", "/payments/**", f"{GREEN}0.0%")
    assert coloured("Routes", "/emails/**", f"{RED}100.0%")
    assert coloured("Failed attempts", "/emails/**", f"{YELLOW}6"), "transient"
    assert coloured("Failed attempts", "/reports/**", f"{RED}1"), "permanent"


async def test_status_shows_dead_letters_and_how_many_can_be_replayed() -> None:
    async with stage() as proxy:
        told = json.loads((await proxy.admin("GET", "/status")).body)
    told["routes"]["/emails/**"]["dead_letters"] = {"waiting": 3, "replayable": 2}
    async with ScriptedUpstream(answer(response(200, json.dumps(told).encode()))) as listener:
        text = (await status(listener.url, "--plain")).text
    assert row(text, "Dead letters", "/emails/**") == ["3", "2"]
