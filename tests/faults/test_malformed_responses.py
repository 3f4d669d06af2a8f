"""Responses that break HTTP: 502 ``protocol``, nothing of them passed on, connection closed."""

import asyncio

import pytest

from tests.support import (
    ScriptedUpstream,
    Visit,
    answer_and_hang,
    both_loops,
    eventually,
    one_route,
    running,
)
from tests.support.records import last_logged, outcomes

OK = b"HTTP/1.1 200 OK\r\n"
BODY = b"Content-Length: 2\r\n\r\nok"


@both_loops
@pytest.mark.parametrize(
    "malformed",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS bytes"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="another protocol"),
        pytest.param(b"\r\n\r\n\r\nhello\r\n\r\n", id="no status line"),
        pytest.param(b"HTTP/1.1 two hundred\r\n" + BODY, id="a status in words"),
        pytest.param(b"HTTP/1.1 20\r\n" + BODY, id="a status of two digits"),
        pytest.param(b"HTTP/1.1 099 Low\r\n" + BODY, id="a status below 100"),
        pytest.param(b"HTTP/2.0 200 OK\r\n" + BODY, id="another version"),
        pytest.param(b"HTTP/0.9 200 OK\r\n" + BODY, id="an ancient version"),
        pytest.param(b"http/1.1 200 OK\r\n" + BODY, id="the version in lower case"),
        pytest.param(OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok", id="two lengths"),
        pytest.param(OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", id="one twice"),
        pytest.param(OK + b"Content-Length: 2, 2\r\n\r\nok", id="a list of lengths"),
        pytest.param(OK + b"Content-Length: -2\r\n\r\nok", id="a negative length"),
        pytest.param(OK + b"Content-Length: +2\r\n\r\nok", id="a length with a sign"),
        pytest.param(OK + b"Content-Length: 0x2\r\n\r\nok", id="a length in hex"),
        pytest.param(OK + b"Content-Length: \r\n\r\nok", id="an empty length"),
        pytest.param(OK + b"Content-Length: 2 2\r\n\r\nok", id="a length with a space in it"),
        pytest.param(
            OK + b"Content-Length: 18446744073709551618\r\n\r\nok", id="a length beyond 64 bits"
        ),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n" + BODY, id="a length besides chunked"),
        pytest.param(
            OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            id="chunked besides a length",
        ),
        pytest.param(OK + b"Transfer-Encoding: gzip\r\n\r\nok", id="an unknown coding"),
        pytest.param(
            OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            id="one coding over another",
        ),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            id="chunked twice",
        ),
        pytest.param(OK + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", id="a look-alike"),
        pytest.param(
            b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            id="chunks in HTTP/1.0",
        ),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n", id="a bad chunk"),
        pytest.param(OK + b"X: a\x00b\r\n" + BODY, id="NUL in a value"),
        pytest.param(OK + b"X: a\rb\r\n" + BODY, id="CR in a value"),
        pytest.param(OK + b"X: a\r\r\n" + BODY, id="CR at a value's end"),
        pytest.param(OK + b"X\x00Y: a\r\n" + BODY, id="NUL in a name"),
        pytest.param(OK + b"X Y: a\r\n" + BODY, id="a space in a name"),
        pytest.param(OK + b"X : a\r\n" + BODY, id="a space behind a name"),
        pytest.param(OK + b": a\r\n" + BODY, id="no name"),
        pytest.param(OK + b"no colon\r\n" + BODY, id="no colon"),
        pytest.param(OK + b"X: a\r\n folded\r\n" + BODY, id="a folded field"),
        pytest.param(OK + b" X: a\r\n" + BODY, id="a space before the first field"),
        pytest.param(b"HTTP/1.1 200 OK\r" + BODY, id="CR in the reason"),
        pytest.param(b"HTTP/1.1 103 Hints\r\n\r\n" * 2000 + OK + BODY, id="a flood of 1xx"),
        pytest.param(
            b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nraw",
            id="a 101 that nobody asked for",
        ),
        pytest.param(b"HTTP/1.1 101 Switching\r\n\r\n", id="a 101 to nothing"),
        pytest.param(OK + b"X: " + b"a" * 512 * 1024 + b"\r\n" + BODY, id="a field of 512 KiB"),
        pytest.param(OK + b"X-Field: a\r\n" * 5000 + BODY, id="5000 fields"),
        pytest.param(OK + b"a" * 512 * 1024, id="a field name without end"),
        pytest.param(b"HTTP/1.1 200 " + b"a" * 512 * 1024, id="a reason without end"),
        pytest.param(b"a" * 512 * 1024, id="half a megabyte of nothing"),
    ],
)
async def test_client_gets_502_and_the_connection_is_closed(malformed: bytes) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer_and_hang(malformed))
        response = await client.get()
        assert (response.status, response.reason_word) == (502, "protocol")
        record = await last_logged(proxy)
        assert outcomes(record) == ["protocol"]
        assert record["attempts"][0]["received"]
        assert proxy.open_upstream_connections == 0
        # The client's own connection is as good as before.
        assert (await client.get()).body == b"ok"
        assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    ("start", "more"),
    [
        pytest.param(b"", b"HTTP/1.1 103 Hints\r\n\r\n" * 1000, id="interim responses"),
        pytest.param(OK, b"X-Field: value\r\n" * 1000, id="fields"),
        pytest.param(OK + b"X: ", b"a" * 65536, id="one field"),
        pytest.param(b"HTTP/1.1 200 ", b"a" * 65536, id="a reason"),
        pytest.param(b"", b"\r\n" * 10000, id="empty lines"),
    ],
)
async def test_a_head_without_end_is_not_taken_in(start: bytes, more: bytes) -> None:
    most = 100 * 1024 * 1024
    sent = 0

    async def pour(visit: Visit) -> None:
        nonlocal sent
        await visit.send(start)
        while visit.wire.is_open and sent < most:
            await visit.send(more)
            await asyncio.sleep(0)
            sent += len(more)

    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(pour)
        assert (await proxy.get()).reason_word == "protocol"
        assert outcomes(await last_logged(proxy)) == ["protocol"]
        await eventually(lambda: upstream.open_connections == [])
        # What the kernel's buffers hold, and no more.
        assert sent < most / 4


@pytest.mark.parametrize("reason", [b"O\x00K", b"O\x7fK", b"O\x1b[31mK"])
async def test_a_reason_with_control_characters_is_not_passed_on(reason: bytes) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer_and_hang(b"HTTP/1.1 200 " + reason + b"\r\n" + BODY))
        response = await proxy.get()
        assert (response.status, response.reason) in {(200, "OK"), (502, "Bad Gateway")}


async def test_a_few_interim_responses_are_read_and_not_passed_on() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
        upstream.script(answer_and_hang(b"HTTP/1.1 100 Continue\r\n\r\n", hints * 5 + OK + BODY))
        async with proxy.client() as client:
            response = await client.get()
        assert (response.status, response.body, response.interim) == (200, b"ok", [])
        assert response.get("Link") is None
        assert outcomes(await last_logged(proxy)) == ["2xx"]


async def test_hundreds_of_fields_and_a_large_head_are_fine() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        fields = b"".join(b"X-%d: %b\r\n" % (n, b"v" * 40) for n in range(900))
        upstream.script(answer_and_hang(OK + fields + BODY))
        async with proxy.client() as client:
            response = await client.get()
        assert response.body == b"ok"
        assert response.get("X-899") == "v" * 40
