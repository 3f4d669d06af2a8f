"""``holdfast run --upstream URL``: without any file, everything goes there under the defaults."""

import asyncio
import json
import os
import signal
import sys

import pytest
from click.testing import CliRunner

from proxy.cli import main
from tests.support import ScriptedUpstream, answer, eventually, response
from tests.support.proxies import ROOT, subprocess_proxy

ADDRESSES = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_everything_goes_to_the_upstream(workers: str) -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(
            None, None, "--upstream", upstream.url, *ADDRESSES, "--workers", workers
        ) as proxy,
    ):
        assert (await proxy.get("/any/path?a=b")).status == 200
        assert upstream.requests[-1].target == "/any/path?a=b"
        # Under the defaults: nothing is sent again.
        upstream.script(answer(response(503)))
        assert (await proxy.get("/")).status == 503
        assert len(upstream.requests) == 2
        # A reload has nothing to read, and says so.
        told = json.loads((await proxy.admin("POST", "/-/reload")).body)
        assert told == {"result": "reloaded", "files": [], "changes": [], "warnings": []}
        said = CliRunner().invoke(
            main, ["reload", "--admin", f"http://127.0.0.1:{proxy.admin_port}"]
        )
        assert (said.exit_code, said.stdout) == (
            0,
            "nothing changed: it runs without a file, restart it with another --upstream\n",
        )
        proxy.signal(signal.SIGHUP)
        text = "configuration reloaded: nothing changed, there is no file to read"
        await eventually(lambda: proxy.errors.count(text) == 3, what="three reloads")
        proxy.signal(signal.SIGTERM)
        assert await proxy.exit_status() == 0


@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        pytest.param(
            ["--upstream", "nowhere"],
            {"HOLDFAST_RUN_CONFIG": "a.yaml"},
            '--upstream: "nowhere" has no scheme, write http://nowhere or https://nowhere',
            id="an upstream",
        ),
        pytest.param(
            ["none.yaml"],
            {"HOLDFAST_RUN_UPSTREAM": "http://127.0.0.1:1"},
            "none.yaml: cannot be read (no such file), correct the path",
            id="a file",
        ),
    ],
)
async def test_what_is_typed_wins_over_the_environment(
    arguments: list[str], environ: dict[str, str], said: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "run", *arguments),
        cwd=ROOT,
        env={**os.environ, **environ},
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert (process.returncode, json.loads(err)["message"]) == (1, said)


def test_both_from_the_environment() -> None:
    environ = {"HOLDFAST_RUN_UPSTREAM": "http://127.0.0.1:1", "HOLDFAST_RUN_CONFIG": "a.yaml"}
    result = CliRunner().invoke(main, ["run"], env=environ)
    assert result.exit_code == 2
    assert "--upstream is for a run without a file, write the URL under upstreams" in result.stderr
