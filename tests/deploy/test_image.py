"""The file that the image serves while none is mounted, with the real program."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from click.testing import CliRunner

from proxy.cli import main
from tests.deploy.deployed import FOLDER, options_of_run
from tests.support import ProxyProcess, eventually, request, subprocess_proxy
from tests.test_repo import instructions

FILE = FOLDER / "image" / "holdfast.yaml"
MOUNTED = "/etc/holdfast/holdfast.yaml"
WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


@asynccontextmanager
async def unconfigured(*arguments: str) -> AsyncIterator[ProxyProcess]:
    """The image's program with the image's file, on free ports."""
    text = FILE.read_text().replace("0.0.0.0:8080", "127.0.0.1:0")
    async with subprocess_proxy(text, None, *arguments) as proxy:
        yield proxy


def test_the_image_has_it_where_its_command_looks() -> None:
    assert ("COPY", f"{FILE.relative_to(FOLDER.parent.parent)} {MOUNTED}") in instructions()
    command = json.loads(dict(instructions())["CMD"])
    assert options_of_run(command)["files"] == (MOUNTED,)
    assert "listen: 0.0.0.0:8080" in FILE.read_text()
    assert ("EXPOSE", "8080") in instructions()


@pytest.mark.parametrize("arguments", [(), ("--workers", "2")], ids=["one process", "workers"])
async def test_it_answers_what_to_mount_and_is_never_ready(arguments: tuple[str, ...]) -> None:
    async with unconfigured(*arguments) as proxy, proxy.client() as client:
        for method, path in (("GET", "/"), ("POST", "/v1/charges?a=b"), ("DELETE", "/healthz")):
            await client.send(request(method, path, body=b"x" if method == "POST" else None))
            answer = await client.response(method)
            assert answer.status == 503
            assert MOUNTED.encode() in answer.body
            assert answer.get("Content-Type") == "text/plain; charset=utf-8"
        ready = await proxy.admin("GET", "/readyz")
        assert (ready.status, json.loads(ready.body)["reason"]) == (503, "switched_off")
        # Alive: nothing would be gained by a restart.
        assert (await proxy.admin("GET", "/healthz")).status == 200
        ask = ["healthcheck", "--admin", f"http://127.0.0.1:{proxy.admin_port}"]
        asked = await asyncio.to_thread(CliRunner().invoke, main, ask)
        assert (asked.exit_code, asked.output) == (1, "Error: not ready: switched_off\n")
        await eventually(lambda: "ready: warning: this instance never becomes" in proxy.errors)


async def test_a_websocket_is_told_as_well_and_the_exceptions_are_those_of_its_comment() -> None:
    async with unconfigured() as proxy:
        for method, target, fields, status in (
            ("GET", "/chat", WEBSOCKET, 503),
            ("OPTIONS", "/", (), 503),
            ("OPTIONS", "*", (), 204),
            ("TRACE", "/", (), 405),
            ("CONNECT", "api.example:443", (), 405),
        ):
            async with proxy.client() as client:
                await client.send(request(method, target, *fields))
                answer = await client.response(method)
            assert answer.status == status, method
            assert (MOUNTED.encode() in answer.body) is (status == 503)


async def test_a_reload_can_make_it_ready_and_take_that_back() -> None:
    async with unconfigured() as proxy:
        text = proxy.config.read_text()
        for now, status in (("ready: true", 200), ("ready: false", 503)):
            proxy.config.write_text(text.replace("ready: false", now))
            assert (await proxy.admin("POST", "/-/reload")).status == 200
            assert (await proxy.admin("GET", "/readyz")).status == status
