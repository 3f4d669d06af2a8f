"""``holdfast upstream`` as a process, and what it refuses."""

import asyncio
import re
import signal
import socket
import sys

import pytest
from click.testing import CliRunner

from proxy.cli import main
from tests.support import RawClient
from tests.support.proxies import ROOT


async def test_it_serves_until_a_signal() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "upstream", "--listen", "127.0.0.1:0"),
        *("--errors", "1", "--status", "502"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        found = re.fullmatch(
            r"The upstream listens on http://127\.0\.0\.1:(\d+)/, which lists its paths\.\n", line
        )
        assert found, line
        async with RawClient(int(found[1])) as client:
            assert (await client.get("/v1/charges")).status == 502
            assert (await client.get("/")).status == 200, "the page that lists what it can do"
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--listen", "9001"), 2, "'9001' is no address, write 127.0.0.1:9001 (say)"),
        (("--listen", "127.0.0.1:70000"), 2, "is no address, write 127.0.0.1:9000 (say)"),
        (("--errors", "20%"), 2, "'20%' is not a valid share, write 0.2 for every fifth."),
        (("--delay", "5"), 2, "write 50ms or 2s (say), at most 60s"),
        (("--delay", "61s"), 2, "write 50ms or 2s (say), at most 60s"),
        (("--errors", "1.5"), 2, "1.5 is not in the range 0<=x<=1"),
        (("--errors", "0.6", "--resets", "0.5"), 2, "together are more than 1"),
        (("--status", "200"), 2, "200 is not in the range 400<=x<=599"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], status: int, said: str) -> None:
    result = CliRunner().invoke(main, ["upstream", *arguments])
    assert result.exit_code == status
    assert said in result.stderr


def test_a_port_in_use_is_told_as_run_tells_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(main, ["upstream", "--listen", address])
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: cannot listen on {address}: another process listens there, stop it or write "
        "another port (--listen)\n"
    )
