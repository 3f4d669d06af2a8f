"""The body breaks off after its head was relayed: the client must be able to tell.

It gets a reset, never a proper end, and nothing is repeated.
"""

import pytest

from tests.support import (
    Behaviour,
    End,
    ScriptedUpstream,
    answer_and_close,
    answer_and_hang,
    answer_and_reset,
    both_loops,
    chunked,
    one_route,
    running,
)
from tests.support.records import last_logged, outcomes

FIXED = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\n"


@both_loops
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(answer_and_reset(FIXED + b"part"), id="RST inside a counted body"),
        pytest.param(answer_and_close(FIXED + b"part"), id="FIN inside a counted body"),
        pytest.param(answer_and_close(FIXED, b"part"), id="FIN inside a body that came later"),
        pytest.param(answer_and_reset(chunked(b"part", last=False)), id="RST between chunks"),
        pytest.param(answer_and_close(chunked(b"part", last=False)), id="FIN between chunks"),
        pytest.param(answer_and_close(chunked(b"part", last=False) + b"5\r\nab"), id="FIN in one"),
        pytest.param(answer_and_reset(UNTIL_CLOSE, b"part"), id="RST where FIN means the end"),
        pytest.param(answer_and_close(chunked(b"part", last=False), b"zz\r\n"), id="bad chunk"),
        pytest.param(
            answer_and_hang(chunked(b"part", last=False), b"4\r\npartXX"), id="chunk too long"
        ),
    ],
)
async def test_client_sees_the_cut(fault: Behaviour) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(fault)
        async with proxy.client() as client:
            response = await client.get()
            assert response.status == 200
            assert not response.complete
            assert b"part" in response.body
            assert await client.ended() is End.RESET
        record = await last_logged(proxy)
        assert outcomes(record) == ["truncated"]
        assert record["code"] == 200
        assert record["attempts"][0]["status"] == 200
        assert len(upstream.requests) == 1
        assert proxy.open_upstream_connections == 0


async def test_an_http_1_0_client_sees_the_cut_of_a_body_without_length() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer_and_reset(UNTIL_CLOSE, b"part"))
        async with proxy.client() as client:
            await client.send(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n")
            response = await client.response()
            assert (response.framing, response.complete) == ("close", False)
            assert await client.ended() is End.RESET
        assert outcomes(await last_logged(proxy)) == ["truncated"]


async def test_a_body_that_ends_with_its_connection_is_complete() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer_and_close(UNTIL_CLOSE, b"all ", b"of it"))
        response = await proxy.get()
        assert (response.complete, response.body) == (True, b"all of it")
        assert outcomes(await last_logged(proxy)) == ["2xx"]
        assert proxy.open_upstream_connections == 0


async def test_pipelined_requests_after_a_cut_are_not_sent() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer_and_close(FIXED + b"part"))
        async with proxy.client() as client:
            await client.send(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % 1 * 3)
            assert not (await client.response()).complete
            assert await client.ended() is End.RESET
        await last_logged(proxy)
        assert len(upstream.requests) == 1
