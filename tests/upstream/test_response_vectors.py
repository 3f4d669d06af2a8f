"""What upstreams may send, and what the client gets: vectors, and the parser's known gaps.

Each response is sent whole and byte by byte. A client never sees anything but
canonical HTTP (its reader takes nothing else), and a connection about which there
is any doubt carries no second request.
"""

from typing import Any

import pytest

from tests.support import (
    Behaviour,
    End,
    Response,
    ScriptedUpstream,
    answer,
    answer_and_close,
    answer_and_hang,
    eventually,
    one_route,
    running,
)
from tests.vectors.load import cases

whole_and_in_pieces = pytest.mark.parametrize(
    "in_pieces",
    [pytest.param(False, id="sent whole"), pytest.param(True, id="sent byte by byte")],
)

# Their upstream ends the connection; all others keep it, so that nobody can lean on that.
ENDS_THE_CONNECTION = {"rs-04", "rs-05", "rs-13", "rs-17"}
# Afterwards the connection is in order, and is used again. Not so where a body was announced
# that must not come: it may come later (rs-07, rs-08).
LEAVES_THE_CONNECTION_USABLE = {"rs-10", "rs-19"}


def behaviour(raw: bytes, *, in_pieces: bool, close: bool) -> Behaviour:
    pieces = [raw[i : i + 1] for i in range(len(raw))] if in_pieces else [raw]
    return (answer_and_close if close else answer)(*pieces)


def judge(expectation: str, response: Response) -> None:
    if expectation in {"502", "502_or_unfold"}:
        assert response.status == 502
        assert response.reason_word in {"protocol", "reset"}
        return
    if expectation == "502_or_abort":
        assert not response.complete
        return
    assert response.complete
    if expectation in {"forward_no_body", "forward_no_body_keep_length"}:
        assert response.body == b""
        assert response.get("Content-Length") in {"5", "500"}
    elif expectation == "forward_200":
        assert (response.status, response.interim) == (200, [])
    elif expectation == "forward_close_delimited":
        assert (response.framing, response.body) == ("chunked", b"hello")
    elif expectation == "forward_first_drop_rest":
        assert response.body == b"hello"
    elif expectation == "forward_same_status":
        assert (response.status, response.reason) == (299, "Odd")
    elif expectation == "forward_205_empty_or_502":
        assert (response.status, response.body) == (205, b"")
    else:
        raise AssertionError(f"no judge for {expectation}")


@whole_and_in_pieces
@pytest.mark.parametrize("case", cases("response_parsing"))
async def test_vector(case: dict[str, Any], *, in_pieces: bool) -> None:
    raw = case["raw"].encode("latin-1")
    close = case["id"] in ENDS_THE_CONNECTION
    method = case.get("method", "GET")
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(behaviour(raw, in_pieces=in_pieces, close=close))
        async with proxy.client() as client:
            response = await client.request(method, "/")
            judge(case["expect"], response)
            if not response.complete:
                assert await client.ended() is End.RESET
                return
            if case["id"] not in LEAVES_THE_CONNECTION_USABLE:
                await eventually(lambda: not upstream.open_connections, what="closing it")
            # Whatever came, the client's connection goes on and the next answer is its own.
            assert (await client.get("/next")).body == b"ok"
        reused = [request.connection for request in upstream.requests] == [1, 1]
        assert reused == (case["id"] in LEAVES_THE_CONNECTION_USABLE)


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKS = b"5\r\nhello\r\n0\r\n\r\n"

BROKEN = [
    pytest.param(raw, id=sentence)
    for sentence, raw in {
        "coding gzip": HEAD + b"Transfer-Encoding: gzip\r\n\r\nhello",
        "coding identity": HEAD + b"Transfer-Encoding: identity\r\n\r\nhello",
        "coding xchunked": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
        "coding chunked, gzip": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + CHUNKS,
        "coding gzip, chunked": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
        "an empty coding": HEAD + b"Transfer-Encoding: \r\n\r\n" + CHUNKS,
        "two codings": HEAD + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n" + CHUNKS,
        "a coding in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
        "a coding and a length": HEAD
        + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
        + CHUNKS,
        "a length and a coding": HEAD
        + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        + CHUNKS,
        "version 0.9": b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
        "version 2.0": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "version 1.2": b"HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n",
        "two equal lengths": HEAD + b"Content-Length: 5\r\n" * 2 + b"\r\nhello",
        "a list of lengths": HEAD + b"Content-Length: 5, 5\r\n\r\nhello",
        "an empty length": HEAD + b"Content-Length: \r\n\r\n",
        "a signed length": HEAD + b"Content-Length: +5\r\n\r\nhello",
        "a length beyond all bounds": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
        "a blank before the colon": HEAD + b"Content-Length : 5\r\n\r\nhello",
        "a line without a colon": HEAD + b"nonsense\r\nContent-Length: 0\r\n\r\n",
        "an empty field name": HEAD + b": x\r\nContent-Length: 0\r\n\r\n",
        "NUL in a field": HEAD + b"X-A: a\0b\r\nContent-Length: 0\r\n\r\n",
        "a bare CR in a field": HEAD + b"X-A: a\rb\r\nContent-Length: 0\r\n\r\n",
        "a bare LF in a field": HEAD + b"X-A: a\nX-B: b\r\nContent-Length: 0\r\n\r\n",
        "a control character in a field": HEAD + b"X-A: a\x01b\r\nContent-Length: 0\r\n\r\n",
        "status 99": b"HTTP/1.1 99 Low\r\nContent-Length: 0\r\n\r\n",
        "status 1000": b"HTTP/1.1 1000 High\r\nContent-Length: 0\r\n\r\n",
        "a switch that nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\n"
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "a switch to nothing": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "a field of 300 KB": HEAD + b"X-A: " + b"a" * 300_000 + b"\r\nContent-Length: 0\r\n\r\n",
        "5000 fields": HEAD + b"X-A: a\r\n" * 5000 + b"Content-Length: 0\r\n\r\n",
        "interim responses without end": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50,
    }.items()
]


@whole_and_in_pieces
@pytest.mark.parametrize("raw", BROKEN)
async def test_response_that_could_be_read_in_two_ways_is_refused(
    raw: bytes, *, in_pieces: bool
) -> None:
    size = 1 if len(raw) < 1000 else 50_000
    pieces = [raw[i : i + size] for i in range(0, len(raw), size)] if in_pieces else [raw]
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer_and_hang(*pieces))
        response = await proxy.get()
        assert (response.status, response.reason_word) == (502, "protocol")
        await eventually(lambda: not upstream.open_connections, what="closing the connection")
        assert (await proxy.logged())[0]["attempts"][0]["outcome"] == "protocol"


BAD_CHUNKS = [
    pytest.param(chunks, id=sentence)
    for sentence, chunks in {
        "a size with 0x": b"0x5\r\nhello\r\n0\r\n\r\n",
        "a signed size": b"+5\r\nhello\r\n0\r\n\r\n",
        "a size that is no number": b"zz\r\nhello\r\n0\r\n\r\n",
        "a size beyond all bounds": b"fffffffffffffffff\r\nhello\r\n",
        "no CRLF behind the data": b"5\r\nhelloX\r\n0\r\n\r\n",
        "a bare LF behind the size": b"5\nhello\r\n0\r\n\r\n",
        "a bare LF behind the data": b"5\r\nhello\n0\r\n\r\n",
        "a length among the trailers": b"5\r\nhello\r\n0\r\nContent-Length: 7\r\n\r\n",
    }.items()
]


@pytest.mark.parametrize("chunks", BAD_CHUNKS)
async def test_bad_chunk_cuts_the_response(chunks: bytes) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer_and_hang(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", chunks))
        async with proxy.client() as client:
            response = await client.get()
            assert not response.complete
            assert await client.ended() is End.RESET
        await eventually(lambda: not upstream.open_connections, what="closing the connection")
        assert (await proxy.logged())[0]["attempts"][0]["outcome"] == "truncated"


FINE = [
    pytest.param(raw, method, status, body, reused, id=sentence)
    for sentence, method, raw, status, body, reused in [
        (
            "trailers are not merged into the head",
            "GET",
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Late: 1\r\n\r\n",
            200,
            b"hello",
            True,
        ),
        (
            "chunk extensions are not passed on",
            "GET",
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
            200,
            b"hello",
            True,
        ),
        (
            "HEAD has no body, length or not",
            "HEAD",
            HEAD + b"Content-Length: 9\r\n\r\n",
            200,
            b"",
            False,
        ),
        (
            "HEAD has no body, chunked or not",
            "HEAD",
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
            200,
            b"",
            False,
        ),
        (
            "204 loses its length",
            "GET",
            b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
            204,
            b"",
            False,
        ),
        (
            "204 loses its coding",
            "GET",
            b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
            204,
            b"",
            False,
        ),
        (
            "a body behind a 304 is not the next response",
            "GET",
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello",
            304,
            b"",
            False,
        ),
        (
            "a body behind the answer to HEAD is not the next response",
            "HEAD",
            HEAD + b"Content-Length: 5\r\n\r\nhello",
            200,
            b"",
            False,
        ),
        (
            "a second response in the same segment is thrown away",
            "GET",
            HEAD + b"Content-Length: 2\r\n\r\nok" + HEAD + b"Content-Length: 4\r\n\r\nevil",
            200,
            b"ok",
            False,
        ),
        (
            "a second response behind chunks is thrown away",
            "GET",
            HEAD
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + CHUNKS
            + HEAD
            + b"Content-Length: 4\r\n\r\nevil",
            200,
            b"hello",
            False,
        ),
        (
            "garbage behind a response is thrown away",
            "GET",
            HEAD + b"Content-Length: 2\r\n\r\nok\x00\xffgarbage",
            200,
            b"ok",
            False,
        ),
        (
            "interim responses are passed over, their fields with them",
            "GET",
            b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n"
            b"HTTP/1.1 199 Odd\r\nX-Early: 2\r\n\r\n" + HEAD + b"Content-Length: 2\r\n\r\nok",
            200,
            b"ok",
            True,
        ),
        (
            "status 999 passes",
            "GET",
            b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
            999,
            b"",
            True,
        ),
        (
            "no reason phrase",
            "GET",
            b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
            200,
            b"ok",
            True,
        ),
        (
            "blanks around a value mean nothing",
            "GET",
            HEAD + b"X-A:\t a \t \r\nContent-Length:2 \r\n\r\nok",
            200,
            b"ok",
            True,
        ),
        (
            "HTTP/1.0 with a length, and its connection is not used again",
            "GET",
            b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok",
            200,
            b"ok",
            False,
        ),
        (
            "a connection that the upstream says it will close is not used again",
            "GET",
            HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nok",
            200,
            b"ok",
            False,
        ),
    ]
]


@pytest.mark.parametrize(("raw", "method", "status", "body", "reused"), FINE)
async def test_relayed(raw: bytes, method: str, status: int, body: bytes, *, reused: bool) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer(raw))
        async with proxy.client() as client:
            response = await client.request(method, "/")
            assert (response.status, response.body, response.complete) == (status, body, True)
            assert not {"x-late", "x-early"} & response.names
            # What was behind it is gone: the next answer is the next answer.
            assert (await client.get("/next")).body == b"ok"
        connections = [request.connection for request in upstream.requests]
        assert connections == ([1, 1] if reused else [1, 2])


async def test_bytes_on_an_idle_connection_end_it() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            assert (await client.get()).status == 200
            upstream.connections[0].wire.write(HEAD + b"Content-Length: 4\r\n\r\nevil")
            await eventually(lambda: not upstream.open_connections, what="closing the connection")
            assert (await client.get()).body == b"ok"
        assert [request.connection for request in upstream.requests] == [1, 2]
