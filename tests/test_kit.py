"""The kit for wire tests, tried on itself: it must see what is there, and what is wrong."""

import signal
from pathlib import Path

import pytest

from tests.support import (
    Certificates,
    End,
    ScriptedUpstream,
    answer,
    both_loops,
    ok,
    one_route,
    request,
    running,
    subprocess_proxy,
)
from tests.support.tools import tool


@both_loops
async def test_a_request_goes_through_and_leaves_nothing_behind() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer(ok(b"hello", "X-Colour: red")))
        async with proxy.client() as client:
            response = await client.get("/path?q=1")
        assert (response.status, response.body) == (200, b"hello")
        assert response.get("x-colour") == "red"
        assert upstream.requests[0].target == "/path?q=1"
        assert (await proxy.logged())[0]["path"] == "/path"
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_requests_total", route="all", code="200") == 1


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(*(answer(ok(b"%d" % n)) for n in range(3)))
        async with proxy.client() as client:
            await client.send(b"".join(request("GET", f"/{n}") for n in range(3)))
            responses = await client.responses(["GET"] * 3)
        assert [response.body for response in responses] == [b"0", b"1", b"2"]


async def test_upstream_may_speak_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    async with (
        ScriptedUpstream(tls=certificates.for_server()) as upstream,
        running(one_route(upstream, options=f"tls: {{ca: {certificates.ca}}}")) as proxy,
    ):
        assert (await proxy.get()).body == b"ok"


async def test_clients_may_speak_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    listen = f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=listen)) as proxy,
        proxy.client(tls=certificates.for_client()) as client,
    ):
        assert (await client.get()).body == b"ok"
        assert upstream.requests[0].get("X-Forwarded-Proto") == "https"


async def test_process_serves_and_drains() -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream)) as proxy,
    ):
        async with proxy.client() as client:
            assert (await client.get()).body == b"ok"
            proxy.signal(signal.SIGTERM)
            assert await client.ended() is End.CLOSED
        assert await proxy.exit_status() == 0


# Programs from outside.


def test_a_test_whose_program_is_missing_is_skipped_and_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"apt-get install .* systemd"):
        tool("systemd-analyze")


def test_in_ci_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="systemd-analyze is missing"):
        tool("systemd-analyze")
