"""Reloading: everything at once, or nothing at all, and nobody notices."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.admin.process import Reloaded
from proxy.app.lifecycle import App
from proxy.config import Loaded, load
from proxy.observe.metrics.families import ADDRESSES
from proxy.policy.settings import RouteSettings, Settings
from tests.support import (
    Certificates,
    RawClient,
    RunningProxy,
    ScriptedUpstream,
    eventually,
    one_route,
    request,
    running,
    virtual_time,
)

UPLOAD_TIMEOUT = 0.25
"""Of the route that uploads take; their clients dawdle for longer than that."""

MIXED = f"""\
upstreams: {{a: URL}}
routes:
  - {{name: uploads, match: POST /**, upstream: a, timeout: {int(UPLOAD_TIMEOUT * 1000)}ms}}
  - {{name: rest, match: /**, upstream: a, headers: {{response: {{set: {{X-Version: v0}}}}}}}}
"""


async def dawdling_upload(client: RawClient, pause: float) -> int:
    """The status of an upload whose client stops for *pause* seconds in the middle."""
    await client.send(request("POST", "/", "Content-Length: 10") + b"first")
    await asyncio.sleep(pause)
    await client.send(b"later")
    return (await client.response("POST")).status


async def reload(proxy: RunningProxy) -> int:
    return (await proxy.admin("POST", "/-/reload")).status


@virtual_time
async def test_a_slow_upload_does_not_spoil_the_next_reload() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "timeout: 20ms")) as proxy,
        proxy.client() as client,
    ):
        assert await dawdling_upload(client, 0.05) == 200
        assert await reload(proxy) == 200
        assert (await client.get()).status == 200


@virtual_time
async def test_a_timeout_that_no_route_has_any_more_holds_for_requests_under_way() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "timeout: 150ms")) as proxy,
        proxy.client() as client,
    ):
        upstream.script(lambda visit: visit.until_the_peer_leaves())
        await client.send(request("GET", "/"))
        await upstream.seen()
        proxy.config.write_text(proxy.config.read_text().replace("150ms", "10s"))
        assert await reload(proxy) == 200
        assert await reload(proxy) == 200
        assert (await client.response()).status == 504


async def test_twenty_reloads_under_gets_and_slow_uploads_fail_no_request() -> None:
    async with (
        ScriptedUpstream() as upstream,
        ScriptedUpstream() as other,
        running(MIXED.replace("URL", upstream.url)) as proxy,
    ):
        good = proxy.config.read_text()
        gets: list[int] = []
        uploads: list[int] = []
        over = asyncio.Event()

        async def get() -> None:
            async with proxy.client() as client:
                while not over.is_set():
                    gets.append((await client.get()).status)

        async def upload() -> None:
            async with proxy.client() as client:
                while not over.is_set():
                    uploads.append(await dawdling_upload(client, UPLOAD_TIMEOUT * 1.2))

        clients = [asyncio.create_task(work()) for work in (get, get, upload, upload, upload)]
        results = []
        for n in range(20):
            await eventually(lambda n=n: len(uploads) > n // 4)  # type: ignore[misc]  # mypy cannot infer a lambda's default
            text = good.replace(upstream.url, (upstream, other)[n // 2 % 2].url)
            text = text.replace("v0", f"v{n}")
            proxy.config.write_text(text if n % 2 else text + "nonsense: true\n")
            results.append(await reload(proxy))
        over.set()
        await asyncio.gather(*clients)
        proxy.complaints.clear()
        assert results == [422, 200] * 10
        assert set(gets) == {200}
        assert set(uploads) == {200}
        assert upstream.requests
        assert other.requests


class TestRefused:
    """A reload that fails after the file was found good: a fault of ours, or of the disk."""

    @staticmethod
    def with_route_to_nowhere(settings: Settings) -> Settings:
        """Settings that no file can give: building what is served ends in an error."""
        match, upstream = settings.routes[0].match, settings.upstreams[0]
        routes = (RouteSettings("new", match, upstream.name), RouteSettings("x", match, "nowhere"))
        return replace(settings, upstreams=(replace(upstream, keepalive=1.0),), routes=routes)

    @staticmethod
    def raising(_: Settings) -> Settings:
        raise MemoryError

    @pytest.mark.parametrize(
        "spoil",
        [
            pytest.param(with_route_to_nowhere, id="while it is built"),
            pytest.param(raising, id="while it is read"),
        ],
    )
    async def test_it_has_touched_nothing(
        self,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        spoil: Callable[[Settings], Settings],
    ) -> None:
        folders = [tmp_path / "old", tmp_path / "new"]
        for folder in folders:
            folder.mkdir()
        old, new = (Certificates(folder) for folder in folders)
        cert, key = old.issue()
        new_cert, new_key = new.issue()
        is_spoilt = False
        config = tmp_path / "holdfast.yaml"

        def read() -> Loaded:
            loaded = load([config], {})
            return replace(loaded, settings=spoil(loaded.settings)) if is_spoilt else loaded

        top = (
            f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}\n"
            "admin: false\naccess_log: none"
        )
        async with ScriptedUpstream() as upstream:
            config.write_text(one_route(upstream, top=top))
            async with started(read) as app:
                port = int(app.bound[0].rpartition(":")[2])
                assert await served(port, old.for_client())
                before = parts_of(app)

                is_spoilt = True
                cert.write_bytes(new_cert.read_bytes())
                key.write_bytes(new_key.read_bytes())
                assert await app.reload() == Reloaded([REFUSED])
                assert caplog.records[0].exc_info
                assert await served(port, old.for_client()), "the old certificate"
                assert parts_of(app) == before
                assert len(upstream.connections) == 1, "the pool is the same"
                metrics, _ = await app.operations.metrics("")
                assert b'route="new"' not in metrics

                is_spoilt = False
                assert (await app.reload()).in_force
                assert await served(port, new.for_client()), "the new certificate"


REFUSED = "the configuration could not be applied, see the log"


@asynccontextmanager
async def started(load_it: Callable[[], Loaded]) -> AsyncIterator[App]:
    app = App(load_it)
    await app.start()
    try:
        yield app
    finally:
        await app.stop_at_once()


async def served(port: int, tls: ssl.SSLContext) -> bool:
    async with RawClient(port, tls=tls) as client:
        return (await client.get()).status == 200


def parts_of(app: App) -> object:
    """What a reload may replace."""
    return app.settings, app.operations.config(), app.snapshot()[ADDRESSES]
