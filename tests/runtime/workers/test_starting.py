"""What prevents the start is said in one line, and leaves nobody behind."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from proxy.stores.dead_letters import FILE
from tests.runtime.workers.worker_pools import children_of
from tests.support import ScriptedUpstream, one_route, subprocess_proxy
from tests.support.proxies import ROOT


async def attempt(folder: Path, config: str, *arguments: str) -> tuple[int | None, str]:
    """The exit status of ``holdfast run`` and what it says."""
    (folder / "holdfast.yaml").write_text(f"admin: false\n{config}")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "run", "-c", str(folder / "holdfast.yaml"), *arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, logged = await process.communicate()
    return process.returncode, logged.decode()


async def test_a_worker_that_cannot_serve_prevents_the_start(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / FILE).mkdir(parents=True)
    top = f"listen: 127.0.0.1:0\nstate_dir: {state}"
    config = one_route("http://127.0.0.1:9", "dead_letter: true", top=top)
    status, logged = await attempt(tmp_path, config, "--workers", "2")
    assert status == 1
    message = json.loads(logged.splitlines()[-1])["message"]
    assert message.startswith(f"cannot start: {state}/")
    assert "Traceback" not in logged


async def test_an_address_that_is_taken_prevents_listening(tmp_path: Path) -> None:
    listening = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        config = one_route("http://127.0.0.1:9", top=f"listen: 127.0.0.1:{port}\nworkers: 2")
        status, logged = await attempt(tmp_path, config)
    finally:
        listening.close()
    assert status == 1
    assert json.loads(logged)["message"] == (
        f"cannot listen on 127.0.0.1:{port}: another process listens there, stop it or write "
        "another port"
    )


@pytest.mark.parametrize("workers", ["0", "many"])
async def test_a_bad_number_is_said_before_anything_starts(tmp_path: Path, workers: str) -> None:
    status, logged = await attempt(tmp_path, one_route("http://127.0.0.1:9"), "--workers", workers)
    assert status == 1
    assert json.loads(logged)["message"].startswith("--workers: ")


async def test_one_worker_is_this_process_itself() -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream), None, "--workers", "1") as proxy,
    ):
        assert "workers" not in json.loads((await proxy.admin("GET", "/status")).body)
        assert children_of(proxy.process.pid) == []
