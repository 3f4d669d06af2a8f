"""A start that cannot be: one line that says why, and no traceback."""

import asyncio
import json
import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from proxy.stores.dead_letters.file import FILE
from tests.support import ScriptedUpstream, one_route, subprocess_proxy
from tests.support.proxies import ROOT
from tests.support.waiting import PATIENCE


async def command(*arguments: str, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit status of the command, and all that it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", *arguments),
        cwd=ROOT,
        env=dict(os.environ) | dict(environ or {}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(2 * PATIENCE):
            said, _ = await process.communicate()
    except TimeoutError:  # it has started, after all
        process.kill()
        raise
    assert process.returncode is not None
    return process.returncode, said.decode()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "holdfast.yaml"
    text = one_route("http://127.0.0.1:9", top="listen: 127.0.0.1:0\nadmin: 127.0.0.1:0")
    path.write_text(text)
    return path


def rewrite(config: Path, old: str, new: str) -> None:
    config.write_text(config.read_text().replace(old, new))


def append(config: Path, text: str) -> None:
    config.write_text(config.read_text() + text)


def messages(errors: str, level: str = "error") -> list[str]:
    """What the log says at *level*; each line is one of the log's own, in JSON."""
    records = [json.loads(line) for line in errors.splitlines()]
    return [record["message"] for record in records if record["level"] == level]


async def test_the_parser_in_python_is_not_good_enough(config: Path) -> None:
    status, errors = await command("run", "-c", str(config), environ={"AIOHTTP_NO_EXTENSIONS": "1"})
    assert status == 1
    (message,) = messages(errors)
    assert "AIOHTTP_NO_EXTENSIONS" in message


@pytest.mark.parametrize("listener", ["listen", "admin"])
async def test_a_port_that_is_taken(config: Path, listener: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        rewrite(config, f"{listener}: 127.0.0.1:0", f"{listener}: {address}")
        status, errors = await command("run", "-c", str(config))
    assert status == 1
    assert messages(errors) == [
        f"cannot listen on {address}: another process listens there, stop it or write another port"
    ]
    assert "listening on" not in errors


async def test_a_bad_file_is_reported_as_check_does(config: Path) -> None:
    rewrite(config, "match: /**", "match: nowhere\n    tiemout: 5")
    append(config, "policies: {unused: {}}\n")
    (run_status, run_errors), (check_status, check_errors) = await asyncio.gather(
        command("run", "-c", str(config)), command("check", "-c", str(config))
    )
    assert (run_status, check_status) == (1, 1)
    found = [line for line in check_errors.splitlines() if re.match(r".*:\d+:\d+: ", line)]
    faults = [line for line in found if ": warning: " not in line]
    assert len(faults) == 2
    assert len(found) == 3
    assert messages(run_errors) == faults
    assert messages(run_errors, "warning") == [line for line in found if line not in faults]


async def test_a_person_at_a_terminal_reads_what_check_prints(config: Path) -> None:
    rewrite(config, "match: /**", "match: nowhere")
    ours, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "run", "-c", str(config)), cwd=ROOT, stderr=theirs
    )
    os.close(theirs)
    async with asyncio.timeout(2 * PATIENCE):
        assert await process.wait() == 1
    with open(ours, "rb", buffering=0) as terminal:  # noqa: ASYNC230, PTH123 - a descriptor
        said = terminal.read(4096) or b""
    assert re.fullmatch(rb"\S+holdfast\.yaml:\d+:\d+: [^\r\n]+ write /nowhere\r\n", said), said


async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "nowhere.yaml"
    status, errors = await command("run", "-c", str(file))
    assert status == 1
    assert messages(errors) == [f"{file}: cannot be read (no such file), correct the path"]


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_state_dir_that_cannot_be_used(config: Path, workers: str) -> None:
    state = config.parent / "state"
    state.mkdir()
    (state / FILE).mkdir()
    rewrite(config, "upstreams:", f"state_dir: {state}\nupstreams:")
    append(config, "    dead_letter: true\n")
    status, errors = await command("run", "-c", str(config), "--workers", workers)
    assert status == 1
    (message,) = messages(errors)
    assert message.startswith("cannot start: ")
    assert str(state) in message
    assert "Traceback" not in errors


async def test_port_0_is_any_free_port_and_options_win_over_the_file() -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(
            one_route(upstream, top="listen: 127.0.0.1:1\nadmin: 127.0.0.1:2"),
            None,
            *("--listen", "127.0.0.1:0", "--listen", "[::1]:0", "--admin", "127.0.0.1:0"),
        ) as proxy,
    ):
        assert len(proxy.bound) == 2
        assert proxy.port > 2
        assert (await proxy.get()).status == 200
        assert (await proxy.admin("GET", "/readyz")).status == 200
