"""A signal at any moment of the start: no traceback, no worker, and no socket is left behind.

The process interrupts itself at a chosen event of the interpreter (PEP 578), so that no test
depends on time.
"""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from tests.support import one_route
from tests.support.proxies import ROOT
from tests.support.waiting import PATIENCE

PROGRAM = """
import os, signal, sys

number, wanted, left = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
sys.argv[1:] = sys.argv[4:]
began = False

def look(event, arguments):
    global began, left
    # The entry point's first act is to take care of Ctrl-C.
    began = began or signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    if began and event == wanted and left > 0:
        left -= 1
        if not left:
            os.kill(os.getpid(), number)

sys.addaudithook(look)
from proxy.__main__ import main
main()
"""

QUIET = {0, -signal.SIGINT, -signal.SIGTERM}


def sockets_in(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.is_socket()]


async def interrupted(
    folder: Path, number: int, event: str, times: int, *arguments: str
) -> tuple[int, str]:
    """The exit status of a start that is interrupted, and what it says.

    A worker that outlived it would keep its stderr open, and nobody would see the end of that.
    """
    config = folder / "holdfast.yaml"
    config.write_text(
        one_route(
            "http://127.0.0.1:9",
            "idempotency: true\ndead_letter: true",
            top=f"listen: unix:{folder}/listen\nadmin: unix:{folder}/admin\n"
            f"state_dir: {folder}\nstore: sqlite:{folder}/keys.db\ndrain_timeout: 1s",
        )
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(int(number)), event, str(times)),
        *("run", "-c", str(config), *arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(2 * PATIENCE):
            _, said = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    assert process.returncode is not None
    return process.returncode, said.decode()


@pytest.mark.parametrize(
    ("event", "times"),
    [
        pytest.param("import", 1, id="the first import"),
        pytest.param("import", 60, id="imports of the command line"),
        pytest.param("import", 400, id="imports of the server"),
        pytest.param("open", 200, id="files"),
        pytest.param("socket.__new__", 2, id="a socket"),
        pytest.param("sqlite3.connect", 1, id="the store opens"),
        pytest.param("sqlite3.connect", 2, id="dead letters open"),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_one_process(tmp_path: Path, number: int, event: str, times: int) -> None:
    status, said = await interrupted(tmp_path, number, event, times)
    assert status in QUIET, said
    assert "Traceback" not in said
    assert "Error" not in said
    assert sockets_in(tmp_path) == []


@pytest.mark.parametrize(
    ("event", "times"),
    [
        pytest.param("subprocess.Popen", 1, id="before the first worker"),
        pytest.param("subprocess.Popen", 2, id="between two workers"),
    ],
)
async def test_with_workers(tmp_path: Path, event: str, times: int) -> None:
    status, said = await interrupted(tmp_path, signal.SIGINT, event, times, "--workers", "2")
    assert status == 0, said
    assert "told to stop before the start was over" in said
    assert "Traceback" not in said
    assert sockets_in(tmp_path) == []
