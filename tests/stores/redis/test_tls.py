"""The store by TLS, with a password: whom we trust, and what happens if we do not."""

from pathlib import Path

import pytest

from proxy.policy.settings import UpstreamTls
from tests.stores.running_stores import Callers, calls_out, per_second, running_store
from tests.support import Certificates, both_loops
from tests.support.redis_server import SERVERS, redis_server
from tests.support.relay import relay


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@both_loops
async def test_a_trusted_server_with_a_password(certificates: Certificates) -> None:
    async with (
        redis_server(SERVERS[0], "--requirepass", "secret") as server,
        relay(server.port, tls=certificates.for_server()) as wire,
    ):
        tls = UpstreamTls(ca=str(certificates.ca))
        settings = server.settings(port=wire.port, tls=tls, password="secret")
        async with running_store(settings) as store:
            assert store.state == "up"
            line = Callers(store, per_second(100), callers=2)
            await calls_out(line, 10)
            line.stop()
            await server.has_listeners(1, password="secret")


@pytest.mark.parametrize(
    ("tls", "is_up"),
    [
        pytest.param(UpstreamTls(), False, id="nobody vouches for it"),
        pytest.param(UpstreamTls(verify=False), True, id="nobody is asked to vouch for it"),
        pytest.param(UpstreamTls(ca="{ca}"), False, id="it has the name of another"),
        pytest.param(
            UpstreamTls(ca="{ca}", server_name="redis.example"), True, id="that name is expected"
        ),
        pytest.param(UpstreamTls(ca="/nowhere/ca.pem"), False, id="the authority's file is gone"),
    ],
)
async def test_who_is_trusted(
    tls: UpstreamTls,
    is_up: bool,  # noqa: FBT001 - a column of the table
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if tls.ca == "{ca}":
        tls = UpstreamTls(ca=str(certificates.ca), server_name=tls.server_name)
    async with (
        redis_server() as server,
        relay(server.port, tls=certificates.for_server("redis.example")) as wire,
        running_store(server.settings(port=wire.port, tls=tls)) as store,
    ):
        assert store.state == ("up" if is_up else "down")
        assert ("is down" in caplog.text) != is_up


async def test_a_server_that_wants_to_know_who_we_are(certificates: Certificates) -> None:
    context = certificates.for_server(asks_for_certificate=True)
    cert, key = certificates.issue("proxy.example")
    ours = UpstreamTls(ca=str(certificates.ca), cert=str(cert), key=str(key))
    nameless = UpstreamTls(ca=str(certificates.ca))
    async with redis_server() as server, relay(server.port, tls=context) as wire:
        async with running_store(server.settings(port=wire.port, tls=ours)) as store:
            assert store.state == "up"
        async with running_store(server.settings(port=wire.port, tls=nameless)) as store:
            assert store.state == "down"


async def test_a_server_that_has_no_tls(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        redis_server() as server,
        running_store(server.settings(tls=UpstreamTls(), timeout=0.2)) as store,
    ):
        assert store.state == "down"
    assert "is down" in caplog.text


async def test_a_server_that_has_nothing_else(certificates: Certificates) -> None:
    async with (
        redis_server() as server,
        relay(server.port, tls=certificates.for_server()) as wire,
        running_store(server.settings(port=wire.port)) as store,
    ):
        assert store.state == "down"
