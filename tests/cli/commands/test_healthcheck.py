"""``holdfast healthcheck`` against a real proxy: output and exit codes."""

import asyncio
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.cli import main
from tests.support import (
    RawClient,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    hang_up,
    one_route,
    request,
    running,
)
from tests.support.upstream import response

NOWHERE = "http://127.0.0.1:9"


NEXT = "; start Holdfast, or name its admin listener with --admin"


async def healthcheck(admin: str | None, environ: str | None = None) -> tuple[int, str]:
    """Return the exit code and the last line of the output."""
    arguments = ["healthcheck", *(() if admin is None else ("--admin", admin))]
    result = await asyncio.to_thread(
        CliRunner().invoke, main, arguments, env={"HOLDFAST_ADMIN": environ}
    )
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("admin", "url"),
    [
        pytest.param("127.0.0.1:0", "http://{}", id="a URL"),
        pytest.param("127.0.0.1:0", "http://{}/", id="a URL with a slash"),
        pytest.param("127.0.0.1:0", "{}", id="an address without a scheme"),
        pytest.param("[::1]:0", "http://{}", id="IPv6"),
        pytest.param("unix:SOCKET", "{}", id="a unix socket"),
    ],
)
async def test_ready(tmp_path: Path, admin: str, url: str) -> None:
    admin = admin.replace("SOCKET", str(tmp_path / "admin.sock"))
    async with running(one_route(NOWHERE, top=f"admin: '{admin}'")) as proxy:
        assert await healthcheck(url.format(proxy.app.admin_bound[0])) == (0, "ready")


async def test_the_environment_names_the_listener_too() -> None:
    async with running(one_route(NOWHERE)) as proxy:
        url = f"http://127.0.0.1:{proxy.admin_port}"
        assert await healthcheck(None, environ=url) == (0, "ready")
        assert await healthcheck(url, environ="http://127.0.0.1:1") == (0, "ready")


async def drained(proxy: RunningProxy, client: RawClient, go_on: asyncio.Event) -> None:
    """Let the proxy drain with a request under way, and ask meanwhile."""
    draining = asyncio.create_task(proxy.app.drain())
    await eventually(proxy.app.operations.not_ready)
    url = f"http://127.0.0.1:{proxy.admin_port}"
    assert await healthcheck(url) == (1, "Error: not ready: draining")
    go_on.set()
    assert (await client.response()).status == 200
    await draining


async def test_not_ready_while_it_drains() -> None:
    go_on = asyncio.Event()

    async def wait(visit: Visit) -> None:
        await go_on.wait()
        await answer(response(200))(visit)

    async with (
        ScriptedUpstream(wait) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("GET", "/"))
        await upstream.seen()
        await drained(proxy, client, go_on)


async def test_nobody_listens() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        said = f"Error: no answer from {url}: Connection refused{NEXT}"
        assert await healthcheck(url) == (1, said)


async def test_no_unix_socket(tmp_path: Path) -> None:
    url = f"unix:{tmp_path / 'nowhere.sock'}"
    said = f"Error: no answer from {url}: No such file or directory{NEXT}"
    assert await healthcheck(url) == (1, said)


async def test_somebody_else_listens() -> None:
    async with ScriptedUpstream(answer(response(404, b"[]"))) as stranger:
        assert await healthcheck(stranger.url) == (1, "Error: not ready: 404")
        stranger.usual = answer(response(503, b'{"reason": "\\u001b[2Jtired"}'))
        assert await healthcheck(stranger.url) == (1, "Error: not ready: ?[2Jtired")
        stranger.usual = answer(response(503, b"[" * 100_000))
        assert await healthcheck(stranger.url) == (1, "Error: not ready: 503")
        stranger.usual = answer(b"SSH-2.0 hello\r\n\r\n")
        said = f"Error: no answer from {stranger.url}: it does not speak HTTP{NEXT}"
        assert await healthcheck(stranger.url) == (1, said)
        stranger.usual = hang_up
        closed = "Remote end closed connection without response"
        said = f"Error: no answer from {stranger.url}: {closed}{NEXT}"
        assert await healthcheck(stranger.url) == (1, said)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("ftp://127.0.0.1:9901", id="another scheme"),
        pytest.param("https://127.0.0.1:9901", id="TLS, which the listener does not speak"),
        pytest.param("http://127.0.0.1:http", id="a port that is no number"),
        pytest.param("http://127.0.0.1:99999", id="a port beyond all ports"),
        pytest.param("http://[::1:9901", id="a bracket left open"),
        pytest.param("http://a..b", id="a name that no DNS could hold"),
        pytest.param("http://a b", id="a name with a space"),
        pytest.param("http://127.0.0.1:9901/readyz", id="a path"),
        pytest.param("http://", id="no host"),
        pytest.param("", id="nothing"),
    ],
)
async def test_no_url(url: str) -> None:
    status, text = await healthcheck(url)
    assert status == 2
    assert text == "Error: Invalid value for --admin: write http://HOST:PORT or unix:PATH"
