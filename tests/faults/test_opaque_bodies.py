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


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_the_client_s_business(status: int) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        elsewhere = "http://169.254.169.254/latest/meta-data/"
        upstream.script(answer(response(status, b"", f"Location: {elsewhere}")))
        received = await proxy.get()
        assert (received.status, received.get("Location")) == (status, elsewhere)
        assert len(upstream.requests) == 1
        assert outcomes(await last_logged(proxy)) == ["3xx"]
