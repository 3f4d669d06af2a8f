"""A start that cannot be: one line that says why, and no traceback."""

import asyncio
import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

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
    async with asyncio.timeout(2 * PATIENCE):
        said, _ = await process.communicate()
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


def last_line(errors: str) -> str:
    assert "Traceback" not in errors
    return errors.splitlines()[-1]


async def test_the_parser_in_python_is_not_good_enough(config: Path) -> None:
    status, errors = await command("run", "-c", str(config), environ={"AIOHTTP_NO_EXTENSIONS": "1"})
    assert status != 0
    assert len(errors.splitlines()) == 1
    assert "AIOHTTP_NO_EXTENSIONS" in last_line(errors)


@pytest.mark.parametrize("listener", ["listen", "admin"])
async def test_a_port_that_is_taken(config: Path, listener: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        rewrite(config, f"{listener}: 127.0.0.1:0", f"{listener}: {address}")
        status, errors = await command("run", "-c", str(config))
    assert status != 0
    assert "cannot listen" in last_line(errors)
    assert "in use" in last_line(errors)
    assert "listening on" not in errors


async def test_a_bad_file_is_reported_as_check_does(config: Path) -> None:
    rewrite(config, "match: /**", "match: nowhere\n    tiemout: 5")
    (run_status, run_errors), (check_status, check_errors) = await asyncio.gather(
        command("run", "-c", str(config)), command("check", "-c", str(config))
    )
    assert (run_status, check_status) == (1, 1)
    faults = [line for line in check_errors.splitlines() if re.match(r".*:\d+:\d+: ", line)]
    assert run_errors.splitlines() == faults
    assert len(faults) == 2


async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    status, errors = await command("run", "-c", str(tmp_path / "nowhere.yaml"))
    assert status == 1
    assert len(errors.splitlines()) == 1
    assert "nowhere.yaml" in last_line(errors)


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
