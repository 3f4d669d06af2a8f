"""A new configuration under load: in force at once, or nothing changes at all."""

import asyncio
import json
import signal
import ssl
from pathlib import Path

import pytest

from proxy.config import ConfigError, load
from tests.support import (
    Certificates,
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    hang,
    ok,
    one_route,
    request,
    running,
    subprocess_proxy,
    virtual_time,
)
from tests.support.names import Names
from tests.support.records import outcomes
from tests.support.waiting import PATIENCE

MARKED = "headers: {response: {set: {X-Version: one}}}"


async def reload(proxy: RunningProxy, old: str, new: str) -> Response:
    """Write *new* for *old* in the file, and ask for a reload."""
    text = proxy.config.read_text()
    assert old in text
    proxy.config.write_text(text.replace(old, new))
    return await proxy.admin("POST", "/-/reload")


def faults_of(path: Path) -> list[str]:
    """What ``check`` says about the file."""
    try:
        load([path], {})
    except ConfigError as error:
        return [str(fault) for fault in error.report.diagnostics]
    return []


async def test_a_reload_is_in_force_for_the_next_request_on_an_open_connection() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, MARKED)) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get()).get("X-Version") == "one"
        answer_to_reload = await reload(proxy, "X-Version: one", "X-Version: two")
        assert answer_to_reload.status == 200
        assert json.loads(answer_to_reload.body)["result"] == "reloaded"
        assert (await client.get()).get("X-Version") == "two"
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_config_reloads_total", result="success") == 1


async def test_a_bad_file_changes_nothing_and_is_reported_as_check_does() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, MARKED)) as proxy,
        proxy.client() as client,
    ):
        before = (await proxy.metrics()).total(
            "holdfast_config_last_reload_success_timestamp_seconds"
        )
        response = await reload(proxy, "match: /**", "match: nowhere\n    tiemout: 5")
        assert response.status == 422
        faults = json.loads(response.body)["faults"]
        assert faults == faults_of(proxy.config)
        assert len(faults) == 2
        assert [f"reload refused: {fault}" for fault in faults] == proxy.complaints
        proxy.complaints.clear()
        assert (await client.get()).get("X-Version") == "one"
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_config_reloads_total", result="failure") == 1
        assert metrics.total("holdfast_config_reloads_total", result="success") == 0
        assert metrics.total("holdfast_config_last_reload_success_timestamp_seconds") == before


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        pytest.param("listen: 127.0.0.1:0", "listen: '[::1]:0'", "listen", id="listen"),
        pytest.param("admin: 127.0.0.1:0", "admin: false", "admin", id="admin"),
    ],
)
async def test_what_needs_a_restart_is_refused_and_says_so(old: str, new: str, key: str) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, MARKED)) as proxy:
        proxy.config.write_text(proxy.config.read_text().replace("X-Version: one", "X-V: two"))
        response = await reload(proxy, old, new)
        assert response.status == 422
        [fault] = json.loads(response.body)["faults"]
        assert fault.startswith(f"{key}: ")
        assert "restart" in fault
        proxy.complaints.clear()
        # Not by halves: the rest of the file is not in force either.
        assert (await proxy.get()).get("X-Version") == "one"


async def test_a_file_that_vanished_changes_nothing() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        proxy.config.unlink()
        assert (await proxy.admin("POST", "/-/reload")).status == 422
        proxy.complaints.clear()
        assert (await proxy.get()).status == 200


async def test_files_named_in_values_are_read_again() -> None:
    config = one_route("URL", "headers: {request: {set: {X-Secret: '${file:token}'}}}")
    async with ScriptedUpstream() as upstream:
        config = config.replace("URL", upstream.url)
        async with running(config, {"token": "one\n"}) as proxy:
            await proxy.get()
            (proxy.config.parent / "token").write_text("two\n")
            await proxy.get()
            assert (await proxy.admin("POST", "/-/reload")).status == 200
            await proxy.get()
        assert [r.get("X-Secret") for r in upstream.requests] == ["one", "one", "two"]


async def test_certificates_of_listeners_are_read_again(tmp_path: Path) -> None:
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder in folders:
        folder.mkdir()
    old, new = (Certificates(folder) for folder in folders)
    cert, key = old.issue()
    listen = f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, top=listen)) as proxy:
        async with proxy.client(tls=old.for_client()) as client:
            assert (await client.get()).status == 200
            new_cert, new_key = new.issue()
            cert.write_bytes(new_cert.read_bytes())
            key.write_bytes(new_key.read_bytes())
            assert (await proxy.admin("POST", "/-/reload")).status == 200
            # The connection that is open stays; new ones get the new certificate.
            assert (await client.get()).status == 200
        async with proxy.client(tls=new.for_client()) as client:
            assert (await client.get()).status == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await proxy.client(tls=old.for_client()).__aenter__()


async def test_a_certificate_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    listen = f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, MARKED, top=listen)) as proxy,
    ):
        cert.write_text("no certificate")
        response = await reload(proxy, "X-Version: one", "X-Version: two")
        assert response.status == 422
        [fault] = json.loads(response.body)["faults"]
        assert "cert" in fault
        proxy.complaints.clear()
        async with proxy.client(tls=certificates.for_client()) as client:
            assert (await client.get()).get("X-Version") == "one"


async def test_certificates_for_upstreams_are_read_again(tmp_path: Path) -> None:
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder in folders:
        folder.mkdir()
    old, new = (Certificates(folder) for folder in folders)
    async with ScriptedUpstream(tls=new.for_server()) as upstream:
        options = f"tls: {{ca: {old.ca}}}"
        async with running(one_route(upstream, options=options)) as proxy:
            assert (await proxy.get()).reason_word == "certificate"
            old.ca.write_bytes(new.ca.read_bytes())
            assert (await proxy.admin("POST", "/-/reload")).status == 200
            assert (await proxy.get()).status == 200


async def test_an_upstream_that_did_not_change_keeps_its_connections() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, MARKED)) as proxy:
        await proxy.get()
        await reload(proxy, "X-Version: one", "X-Version: two")
        assert proxy.idle_upstream_connections == 1
        await proxy.get()
        assert len(upstream.connections) == 1


async def test_an_upstream_that_changed_or_went_gives_its_connections_up() -> None:
    async with (
        ScriptedUpstream() as old,
        ScriptedUpstream() as new,
        running(one_route(old)) as proxy,
    ):
        await proxy.get()
        await reload(proxy, old.url, new.url)
        await eventually(lambda: old.open_connections == [])
        await proxy.get()
        assert (len(old.requests), len(new.requests)) == (1, 1)


async def test_requests_under_way_end_under_the_policy_they_began_with() -> None:
    go_on = asyncio.Event()

    async def wait(visit: Visit) -> None:
        await go_on.wait()
        await visit.send(ok(b"from the old one"))

    async with (
        ScriptedUpstream(wait) as old,
        ScriptedUpstream() as new,
        running(one_route(old, MARKED + "\ntimeout: 10s")) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("GET", "/"))
        await old.seen()
        text = proxy.config.read_text()
        text = text.replace(old.url, new.url).replace("timeout: 10s", "timeout: 1ms")
        proxy.config.write_text(text.replace("X-Version: one", "X-Version: two"))
        assert (await proxy.admin("POST", "/-/reload")).status == 200
        await asyncio.sleep(0.02)
        go_on.set()
        response = await client.response()
        assert (response.status, response.body) == (200, b"from the old one")
        assert response.get("X-Version") == "one"
        await eventually(lambda: old.open_connections == [])


@virtual_time
async def test_a_timeout_that_the_reload_dropped_still_ends_what_began_under_it() -> None:
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, "timeout: 150ms")) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("GET", "/"))
        await upstream.seen()
        await reload(proxy, "timeout: 150ms", "timeout: 1h")
        assert (await client.response()).reason_word == "timeout"


async def test_a_request_that_waits_for_a_name_does_not_notice() -> None:
    names = Names(slow=["127.0.0.1"])
    names.fall_silent()
    async with ScriptedUpstream() as upstream:
        config = one_route(f"http://slow:{upstream.port}", options="connect_timeout: 3s")
        async with running(config) as proxy, proxy.client() as client:
            await client.send(request("GET", "/"))
            await eventually(lambda: names.asked)
            await reload(proxy, "connect_timeout: 3s", "connect_timeout: 4s")
            names.speak()
            assert (await client.response()).status == 200


async def test_whom_to_trust_is_settled_when_a_request_comes() -> None:
    names = Names(slow=["127.0.0.1"])
    names.fall_silent()
    trusting, wary = "trusted_proxies: [127.0.0.1]", "trusted_proxies: []"
    claim = "X-Forwarded-For: 203.0.113.9"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(f"http://slow:{upstream.port}", top=trusting)) as proxy,
        proxy.client() as early,
        proxy.client() as late,
    ):
        await early.send(request("GET", "/early", claim))
        await eventually(lambda: names.asked)
        assert (await reload(proxy, trusting, wary)).status == 200
        names.speak()
        assert (await early.response()).status == 200
        assert (await late.get("/late", claim)).status == 200
        told = {r.target: r.get("X-Forwarded-For") for r in upstream.requests}
        assert told == {"/early": "203.0.113.9, 127.0.0.1", "/late": "127.0.0.1"}


async def test_a_request_that_waits_for_a_connection_does_not_notice() -> None:
    go_on = asyncio.Event()

    async def wait(visit: Visit) -> None:
        await go_on.wait()
        await answer(ok())(visit)

    async with (
        ScriptedUpstream(wait) as upstream,
        running(one_route(upstream, options="max_connections: 1")) as proxy,
        proxy.client() as first,
        proxy.client() as second,
    ):
        await first.send(request("GET", "/first"))
        await upstream.seen()
        await second.send(request("GET", "/second"))
        await eventually(lambda: proxy.client_connections == 2)
        await reload(proxy, "max_connections: 1", "max_connections: 2")
        go_on.set()
        assert (await first.response()).status == 200
        assert (await second.response()).status == 200
        await eventually(lambda: upstream.open_connections == [])


async def test_twenty_reloads_under_load_half_of_them_bad_fail_no_request() -> None:
    async with (
        ScriptedUpstream() as upstream,
        ScriptedUpstream() as other,
        running(one_route(upstream, MARKED)) as proxy,
    ):
        good = proxy.config.read_text()
        statuses: list[int] = []
        over = asyncio.Event()

        async def load_it() -> None:
            async with proxy.client() as client:
                while not over.is_set():
                    statuses.append((await client.get()).status)

        clients = [asyncio.create_task(load_it()) for _ in range(8)]
        results = []
        for n in range(20):
            url = (upstream, other)[n // 2 % 2].url
            text = good.replace(upstream.url, url).replace("one", f"v{n}")
            proxy.config.write_text(text if n % 2 else text + "nonsense: true\n")
            results.append((await proxy.admin("POST", "/-/reload")).status)
        over.set()
        await asyncio.gather(*clients)
        proxy.complaints.clear()
        assert results == [422, 200] * 10
        assert set(statuses) == {200}
        assert len(statuses) > 100
        assert upstream.requests
        assert other.requests
        log = await proxy.logged(len(statuses))
        assert {tuple(outcomes(record)) for record in log} == {("2xx",)}


async def test_sighup_and_watched_files() -> None:
    async with ScriptedUpstream() as upstream:
        config = one_route(upstream, MARKED)
        async with subprocess_proxy(config, None, "--watch") as proxy:

            async def version() -> str | None:
                return (await proxy.get()).get("X-Version")

            async def reloaded(times: int, result: str = "success") -> None:
                async with asyncio.timeout(PATIENCE):
                    seen = 0.0
                    while seen < times:
                        metrics = await proxy.metrics()
                        seen = metrics.total("holdfast_config_reloads_total", result=result)

            text = proxy.config.read_text()
            proxy.signal(signal.SIGHUP)
            await reloaded(1)
            assert await version() == "one"

            proxy.config.write_text(text.replace("one", "two"))
            await reloaded(2)
            assert await version() == "two"

            # As a ConfigMap does it: the name stays, what it points to is swapped.
            folder = proxy.config.parent
            (folder / "data").write_text(text.replace("one", "three"))
            (folder / "link").symlink_to("data")
            (folder / "link").replace(proxy.config)
            await reloaded(3)
            assert await version() == "three"

            (folder / "data2").write_text("routes: what?")
            (folder / "link").symlink_to("data2")
            (folder / "link").replace(proxy.config)
            await reloaded(1, "failure")
            assert await version() == "three"
            assert "reload refused: " in proxy.errors
