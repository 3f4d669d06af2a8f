"""Bodies are bytes: nothing is unpacked, followed or changed on the way."""

import gzip
import zlib

import pytest

from tests.support import ScriptedUpstream, answer, ok, one_route, response, running
from tests.support.records import last_logged, outcomes

BOMB = gzip.compress(bytes(64 * 1024 * 1024), 9)
"""64 MiB in 64 KiB."""

ENCODED = [
    pytest.param("gzip", gzip.compress(b"hello " * 100), id="gzip"),
    pytest.param("deflate", zlib.compress(b"hello " * 100), id="deflate"),
    pytest.param("br", b"\x0b\x02\x80hello\x03", id="brotli"),
    pytest.param("zstd", b"\x28\xb5\x2f\xfd rubbish", id="zstd"),
    pytest.param("gzip", b"this is no gzip", id="a lie"),
    pytest.param("gzip", BOMB, id="a bomb"),
    pytest.param("gzip, gzip", gzip.compress(BOMB), id="a bomb within"),
]


@pytest.mark.parametrize(("encoding", "body"), ENCODED)
async def test_a_compressed_request_arrives_as_it_was_sent(encoding: str, body: bytes) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            field = f"Content-Encoding: {encoding}"
            assert (await client.request("POST", "/", field, body=body)).status == 200
        received = await upstream.seen()
        assert received.body == body
        assert received.get("Content-Encoding") == encoding


@pytest.mark.parametrize(("encoding", "body"), ENCODED)
async def test_a_compressed_response_arrives_as_it_was_sent(encoding: str, body: bytes) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer(ok(body, f"Content-Encoding: {encoding}", "Vary: Accept-Encoding")))
        async with proxy.client() as client:
            received = await client.get("/", "Accept-Encoding: identity")
        assert received.body == body
        assert received.get("Content-Encoding") == encoding
        assert upstream.requests[0].get("Accept-Encoding") == "identity"


async def test_a_response_is_not_compressed_though_the_client_would_unpack_it() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer(ok(b"hello " * 1000)))
        async with proxy.client() as client:
            received = await client.get("/", "Accept-Encoding: gzip")
        assert received.body == b"hello " * 1000
        assert received.get("Content-Encoding") is None


async def test_a_trace_goes_on_with_every_attempt() -> None:
    fields = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "congo=t61rcWkgMzE",
        "b3": "0",
    }
    async with ScriptedUpstream() as upstream:
        route = "retry: {attempts: 2, backoff: {base: 1ms}}"
        async with running(one_route(upstream, route)) as proxy:
            upstream.script(answer(response(503)))
            await proxy.get("/", *(f"{name}: {value}" for name, value in fields.items()))
        assert len(upstream.requests) == 2
        for request in upstream.requests:
            assert {name: request.all(name) for name in fields} == {
                name: [value] for name, value in fields.items()
            }


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        ScriptedUpstream() as upstream,
        ScriptedUpstream() as corporate,
    ):
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, corporate.url)
            monkeypatch.setenv(name.upper(), corporate.url)
        async with running(one_route(upstream)) as proxy:
            assert (await proxy.get()).status == 200
        assert (len(upstream.requests), len(corporate.requests)) == (1, 0)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_the_client_s_business(status: int) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        elsewhere = "http://169.254.169.254/latest/meta-data/"
        upstream.script(answer(response(status, b"", f"Location: {elsewhere}")))
        received = await proxy.get()
        assert (received.status, received.get("Location")) == (status, elsewhere)
        assert len(upstream.requests) == 1
        assert outcomes(await last_logged(proxy)) == ["3xx"]
