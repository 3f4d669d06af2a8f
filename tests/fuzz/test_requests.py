"""Hostile clients: whatever they send, the upstream sees sound requests, and no other ones.

The judge is h11, a parser of another family: it reads the same bytes and says which
requests are in them. What reaches the upstream must be some of these, in their order, with
their bodies.
"""

import re
from dataclasses import dataclass

import h11
import pytest
from hypothesis import given, strategies as st

from tests.fuzz.mutations import in_segments, spoiled
from tests.fuzz.stage import SOON, Stage, stage
from tests.support import (
    PATIENCE,
    End,
    Request,
    Response,
    ScriptedUpstream,
    Visit,
    Wire,
    WireEnded,
    ok,
)
from tests.support.depth import FUZZ
from tests.support.messages import read_response

# Well-formed requests.

_targets = st.sampled_from(
    ["/", "/a", "/a/b?c=d", "/%41%2f", "/a//b;c", "http://a.example/abs?x", "*", "/../x", "/\xe9"]
)
_fields = st.sampled_from(
    [
        "X-Plain: value",
        "Accept: a, b",
        "Expect: 100-continue",
        "Connection: close",
        "Connection: x-plain",
        "Upgrade: h2c",
        "TE: trailers",
        "Authorization: Basic eA==",
        "X-Empty:",
        "Via: 1.1 other",
        "X-Forwarded-For: 10.0.0.1",
        "Content-Encoding: gzip",
        "X-Long: " + "v" * 300,
    ]
)
_bodies = st.sampled_from(
    [
        b"",
        b"abc",
        b"0\r\n\r\n",
        b"GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"x" * 2000,
    ]
)


@st.composite
def _requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from(["GET", "GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE"]))
    version = draw(st.sampled_from(["1.1", "1.1", "1.1", "1.0"]))
    lines = [f"{method} {draw(_targets)} HTTP/{version}", "Host: a.example"]
    lines += draw(st.lists(_fields, max_size=3))
    body = b""
    framing = draw(st.sampled_from(["none", "none", "length", "chunked"]))
    if framing == "length":
        body = draw(_bodies)
        lines.append(f"Content-Length: {len(body)}")
    elif framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
        for chunk in draw(st.lists(_bodies.filter(bool), max_size=3)):
            extension = draw(st.sampled_from([b"", b"", b";x", b';x="y"']))
            body += b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk)
        body += b"0\r\n" + draw(st.sampled_from([b"", b"", b"X-Trailer: t\r\n"])) + b"\r\n"
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


_pipelines = st.lists(spoiled(_requests()), min_size=1, max_size=3).map(b"".join)
_LAST = b"GET /last HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
_streams = st.one_of(
    # Most end in a sound request that closes: they need no deadline to come to an end.
    _pipelines.map(lambda data: data + _LAST),
    _pipelines,
    st.binary(max_size=200),
    st.binary(max_size=60).map(lambda data: _LAST[:20] + data + _LAST),
)


# The judge.


@dataclass(slots=True)
class Judged:
    """A request as h11 reads it."""

    method: str
    target: str
    body: bytes = b""
    complete: bool = False


def _judge(data: bytes) -> list[Judged]:
    found: list[Judged] = []
    while True:
        # RFC 9112 2.2: empty lines before a request are ignored. h11 refuses them.
        data = data.lstrip(b"\r\n")
        connection = h11.Connection(h11.SERVER)
        try:
            connection.receive_data(data)
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Request):
                    found.append(Judged(event.method.decode(), event.target.decode("latin-1")))
                elif isinstance(event, h11.Data):
                    found[-1].body += event.data
                else:
                    return found
        except h11.ProtocolError:
            return found
        found[-1].complete = True
        if connection.their_state is h11.MUST_CLOSE:
            return found
        data, _ = connection.trailing_data


def _is_what_was_sent(seen: Request, judged: Judged) -> bool:
    target = re.sub(r"\Ahttps?://[^/?]*", "", judged.target, flags=re.IGNORECASE)
    return (
        seen.method == judged.method
        and seen.target == (target if target[:1] == "/" else f"/{target}")
        and (seen.body == judged.body if seen.complete else judged.body.startswith(seen.body))
    )


def _assert_some_of(seen: list[Request], judged: list[Judged]) -> None:
    rest = iter(judged)
    for request in seen:
        assert any(_is_what_was_sent(request, each) for each in rest), (
            f"{request.raw_head + request.body!r} is not among {judged}"
        )


# What the client gets.


async def _responses(wire: Wire, sent: bytes, judged: list[Judged]) -> list[Response]:
    """Everything that came, read as strictly as can be."""
    methods = [request.method for request in judged]
    found: list[Response] = []
    while wire.unread:
        method = methods[len(found)] if len(found) < len(methods) else "GET"
        try:
            response = await read_response(wire, method)
        except WireEnded:
            assert wire.end is End.RESET, "a clean end inside a head"
            break
        found.append(response)
        if not response.complete:
            # What h11 refuses may still be a HEAD to us, whose answer has no body.
            refused_head = b"HEAD " in sent and len(found) > len(methods) and not response.body
            assert wire.end is End.RESET or refused_head, "a body that breaks off as if over"
            break
        if response.get("Connection") == "close":
            if method == "HEAD" and response.status >= 400:
                wire.unread.clear()  # to the parser's error it was no HEAD
            assert not wire.unread, "bytes behind the last response"
    return found


async def _check(it: Stage, segments: list[bytes]) -> None:
    sent = b"".join(segments)
    judged = _judge(sent)
    async with it.proxy.client() as client:
        await client.send(*segments)
        await client.ended(within=PATIENCE)
        responses = await _responses(client.wire, sent, judged)
    seen = it.upstream.requests
    _assert_some_of(seen, judged)
    # One answer more than there are requests says what was wrong with the rest.
    assert len(responses) <= len(judged) + 1
    relayed = [response for response in responses if response.get("X-Number")]
    assert [response.get("X-Number") for response in relayed] == [
        str(number) for number, _ in enumerate(relayed, 1)
    ]
    assert len(relayed) <= len(seen)


@pytest.mark.timeout(3600)
def test_nothing_but_what_was_asked_for_reaches_the_upstream() -> None:
    async def usual(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(ok(b"ok", f"X-Number: {visit.number}"))

    limits = f"{{header_timeout: {SOON}s, keepalive: {SOON}s}}"
    with stage(ScriptedUpstream(usual), limits) as it:

        @FUZZ
        @given(in_segments(_streams))
        def property_(segments: list[bytes]) -> None:
            it.run(lambda stage: _check(stage, segments))

        property_()
