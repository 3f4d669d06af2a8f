"""Hostile upstreams: the client gets a sound response, a 502, or a cut; the next one its own.

The judge is h11: it reads the upstream's bytes as a client would. If the proxy passes a
response on as complete, it has the status and the body that h11 finds in these bytes.
"""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field

import h11
import pytest
from hypothesis import given, strategies as st

from tests.fuzz.mutations import in_segments, spoiled
from tests.fuzz.stage import Stage, stage
from tests.support import (
    Behaviour,
    End,
    Response,
    ScriptedUpstream,
    Visit,
    WireEnded,
    ok,
    request,
)
from tests.support.depth import FUZZ

# Well-formed responses.

_fields = st.sampled_from(
    [
        "X-Plain: value",
        "Connection: close",
        "Connection: x-plain",
        "Keep-Alive: timeout=5",
        "Set-Cookie: a=b",
        "Via: 1.0 other",
        "Upgrade: websocket",
        "Trailer: X-Trailer",
        "X-Empty:",
        "X-Latin: \xe9",
    ]
)
_bodies = st.sampled_from(
    [b"", b"abc", b"0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"y" * 3000]
)


@st.composite
def _responses(draw: st.DrawFn) -> bytes:
    status = draw(
        st.sampled_from([200, 200, 200, 204, 205, 301, 304, 404, 500, 599, 999, 100, 103, 101])
    )
    version = draw(st.sampled_from(["1.1", "1.1", "1.1", "1.0"]))
    lines = [f"HTTP/{version} {status} Some Reason", *draw(st.lists(_fields, max_size=3))]
    body = b""
    framing = draw(st.sampled_from(["none", "length", "length", "chunked", "close"]))
    if framing == "length":
        body = draw(_bodies)
        lines.append(f"Content-Length: {len(body)}")
    elif framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
        for chunk in draw(st.lists(_bodies.filter(bool), max_size=3)):
            body += b"%x\r\n%b\r\n" % (len(chunk), chunk)
        body += b"0\r\n" + draw(st.sampled_from([b"", b"", b"X-Trailer: t\r\n"])) + b"\r\n"
    elif framing == "close":
        body = draw(_bodies)
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


_streams = st.one_of(
    spoiled(_responses()),
    st.lists(spoiled(_responses()), min_size=2, max_size=3).map(b"".join),
    st.binary(max_size=120),
    st.binary(max_size=60).map(lambda data: b"HTTP/1.1 200 OK\r\n" + data),
)
_endings = st.sampled_from(["close", "close", "keep", "reset"])


# The judge.


@dataclass(slots=True)
class Judged:
    """A response as h11 reads it."""

    status: int = 0
    body: bytes = b""
    complete: bool = False


def _judge(method: str, data: bytes, *, closed: bool) -> Judged:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method=method, target="/", headers=[("Host", "a.example")]))
    connection.send(h11.EndOfMessage())
    found = Judged()
    try:
        connection.receive_data(data)
        if closed:
            connection.receive_data(b"")
        while not found.complete:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                found.status = event.status_code
            elif isinstance(event, h11.Data):
                found.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                found.complete = True
            elif not isinstance(event, h11.InformationalResponse):
                break
    except h11.ProtocolError:
        pass
    return found


_bad_reason = re.compile(
    rb"^(HTTP/1\.[01] [0-9]{3})[^\r\n]*[\x00-\x08\x0b\x0c\x0e-\x1f\x7f][^\r\n]*", re.MULTILINE
)


# The case.


@dataclass(slots=True)
class Case:
    """What the client asks, what the upstream says to it, and how it leaves."""

    method: str
    segments: list[bytes]
    ending: str
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the upstream has said all of it."""


_cases = st.builds(
    Case, st.sampled_from(["GET", "GET", "POST", "HEAD"]), in_segments(_streams), _endings
)


def _behave_as(case: Case) -> Behaviour:
    async def behave(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(*case.segments)
        if case.ending == "close":
            visit.wire.close()
        elif case.ending == "reset":
            visit.wire.reset()
        case.done.set()

    return behave


async def _numbered(visit: Visit) -> None:
    await visit.read_body()
    await visit.send(ok(visit.request.target.encode()))


def _judge_response(response: Response, case: Case) -> None:
    """A relayed response says what the upstream said."""
    data = b"".join(case.segments)
    if not data:
        # A kept connection that ends without a word is replaced (GET and HEAD).
        assert (response.status, case.method != "POST") == (200, True)
        return
    judged = _judge(case.method, data, closed=case.ending == "close")
    if not judged.status:
        # h11 minds what is in the reason phrase. We replace a bad one by our own.
        data = _bad_reason.sub(rb"\1 ", data)
        judged = _judge(case.method, data, closed=case.ending == "close")
    assert response.status == judged.status
    if not response.complete:
        assert judged.body.startswith(response.body)
        return
    if response.status == 205:
        assert response.body == b""  # whatever else the upstream sends
        return
    assert judged.complete, "complete for the client, but not for its upstream's reader"
    assert response.body == judged.body


async def _check(it: Stage, case: Case) -> None:
    it.upstream.script(_behave_as(case))
    body = b"body" if case.method == "POST" else None
    async with it.proxy.client() as client:
        await client.send(request(case.method, "/first", body=body))
        first = None
        with suppress(WireEnded):
            first = await client.response(case.method)
        if first is not None:
            if "proxy-status" in first.names:
                assert first.status in (502, 504)
                assert first.complete
                if case.method != "HEAD":
                    assert first.problem
            else:
                _judge_response(first, case)
        if first is None or not first.complete:
            # A clean end could be taken for the proper one.
            assert await client.ended() is End.RESET
        elif first.get("Connection") != "close":
            # What comes later than the next request can only be taken for its response.
            await case.done.wait()
            await asyncio.sleep(0.001)
            second = await client.get("/patient/second")
            assert (second.status, second.body) == (200, b"/patient/second")
            third = await client.request("POST", "/patient/third", body=b"3")
            assert (third.status, third.body) == (200, b"/patient/third")
        assert not client.wire.unread
    last = await it.proxy.get("/patient/last")
    assert (last.status, last.body) == (200, b"/patient/last")


@pytest.mark.timeout(3600)
def test_clients_get_what_the_upstream_said_or_hear_that_it_failed() -> None:
    with stage(ScriptedUpstream(_numbered)) as it:

        @FUZZ
        @given(_cases)
        def property_(case: Case) -> None:
            it.run(lambda stage: _check(stage, case))

        property_()
