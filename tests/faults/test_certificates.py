"""TLS to upstreams: whom we trust, who we are, and never without it."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import (
    Certificates,
    ScriptedUpstream,
    both_loops,
    one_route,
    running,
)
from tests.support.records import last_logged, outcomes
from tests.support.witness import Stopwatch


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def another_authority(certificates: Certificates) -> ssl.SSLContext:
    folder = certificates.ca.parent / "other"
    folder.mkdir()
    return Certificates(folder).for_server()


@both_loops
@pytest.mark.parametrize(
    "server",
    [
        pytest.param(Certificates.expired, id="expired"),
        pytest.param(lambda c: c.for_server("elsewhere.example"), id="for another name"),
        pytest.param(another_authority, id="from another authority"),
    ],
)
async def test_an_untrusted_upstream_is_502_and_gets_nothing(
    certificates: Certificates, server: Callable[[Certificates], ssl.SSLContext]
) -> None:
    async with ScriptedUpstream(tls=server(certificates)) as upstream:
        options = f"tls: {{ca: {certificates.ca}}}"
        async with running(one_route(upstream, options=options)) as proxy:
            response = await proxy.get()
            assert (response.status, response.reason_word) == (502, "certificate")
            assert response.get("Proxy-Status") == "holdfast; error=tls_certificate_error"
            record = await last_logged(proxy)
            assert outcomes(record) == ["certificate"]
            assert not record["attempts"][0]["sent"]
            assert proxy.open_upstream_connections == 0
        assert upstream.requests == []


async def test_a_private_authority_is_not_trusted_unasked(certificates: Certificates) -> None:
    async with (
        ScriptedUpstream(tls=certificates.for_server()) as upstream,
        running(one_route(upstream)) as proxy,
    ):
        assert (await proxy.get()).reason_word == "certificate"


@pytest.mark.parametrize(
    ("names", "options"),
    [
        pytest.param((), "{ca: CA}", id="the right authority"),
        pytest.param(
            ("inside.example",), "{ca: CA, server_name: inside.example}", id="another server_name"
        ),
        pytest.param(("elsewhere.example",), "{verify: false}", id="verify: false"),
    ],
)
async def test_a_trusted_upstream_is_used(
    certificates: Certificates, names: tuple[str, ...], options: str
) -> None:
    async with ScriptedUpstream(tls=certificates.for_server(*names)) as upstream:
        tls = f"tls: {options.replace('CA', str(certificates.ca))}"
        async with running(one_route(upstream, options=tls)) as proxy, proxy.client() as client:
            assert [(await client.get()).status for _ in range(3)] == [200] * 3
            assert outcomes(await last_logged(proxy, 3)) == ["2xx"]
        assert len(upstream.connections) == 1


async def test_a_certificate_of_our_own_is_shown(certificates: Certificates) -> None:
    server = certificates.for_server(asks_for_certificate=True)
    cert, key = certificates.issue("client.example")
    tls = f"tls: {{ca: {certificates.ca}, cert: {cert}, key: {key}}}"
    async with ScriptedUpstream(tls=server) as upstream:
        async with running(one_route(upstream, options=tls)) as proxy:
            assert (await proxy.get()).status == 200
        wire = upstream.connections[0].wire
        assert wire.received > 0


async def test_without_the_certificate_that_it_wants_we_get_no_further(
    certificates: Certificates,
) -> None:
    server = certificates.for_server(asks_for_certificate=True)
    async with ScriptedUpstream(tls=server) as upstream:
        options = f"tls: {{ca: {certificates.ca}}}"
        async with running(one_route(upstream, options=options)) as proxy:
            response = await proxy.get()
            assert response.status == 502
            # TLS 1.3 says so only after the handshake, when the request is on its way.
            assert outcomes(await last_logged(proxy)) in (["connect"], ["reset"])
        assert upstream.requests == []


async def test_a_plain_server_on_a_tls_port_is_502_and_never_spoken_to_in_the_clear() -> None:
    async with ScriptedUpstream() as upstream:
        url = upstream.url.replace("http:", "https:")
        async with running(one_route(url, options="connect_timeout: 500ms")) as proxy:
            response = await proxy.get("/secret")
            assert (response.status, response.reason_word) == (502, "connect")
            assert outcomes(await last_logged(proxy)) == ["connect"]
        # What came was a TLS greeting, which is no request in anybody's eyes.
        assert upstream.requests == []
        upstream.violations.clear()


async def test_a_tls_server_on_a_plain_port_is_502(certificates: Certificates) -> None:
    async with ScriptedUpstream(tls=certificates.for_server()) as upstream:
        url = upstream.url.replace("https:", "http:")
        async with running(one_route(url)) as proxy:
            response = await proxy.get()
            assert response.status == 502
            assert outcomes(await last_logged(proxy)) in (["protocol"], ["reset"])


async def test_a_handshake_that_stalls_is_bounded_by_connect_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        async with running(one_route(url, options="connect_timeout: 60ms")) as proxy:
            watch = Stopwatch()
            response = await proxy.get()
            assert watch.seconds < 1
            assert (response.status, response.reason_word) == (502, "connect")
            assert outcomes(await last_logged(proxy)) == ["connect"]
            assert proxy.open_upstream_connections == 0
