"""What we take, others read in the same way: boundaries, start line, fields and body.

A proxy that reads a message otherwise than those before and behind it can be made to pass on
half of one and half of another. So random streams, by number, go through a running proxy, and
what comes out at its other side is compared with what h11 and llhttp find in the same bytes.
They may be laxer than we are. Where we take what one of them refuses, or reads otherwise, it is
in the list below with the reason, or a fault.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from tests.fuzz.readers import (
    Fields,
    Read,
    requests_by_h11,
    requests_by_llhttp,
    response_by_h11,
    response_by_llhttp,
)
from tests.fuzz.streams import in_pieces, random_requests, random_response
from tests.support import (
    End,
    Request,
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    WireEnded,
    ok,
    request,
    running_together,
)
from tests.support.messages import NotCanonical

LANES = 16
"""Proxies with an upstream each, so that nothing of one stream is taken for another's."""
RESET_CONTENT = 205
SOON = 0.06
"""Seconds of the deadlines that end what a stream leaves open."""


def counts(few: int, many: int) -> pytest.MarkDecorator:
    deep = [pytest.mark.deep, pytest.mark.timeout(300)]
    return pytest.mark.parametrize("count", [few, pytest.param(many, marks=deep)])


@dataclass(slots=True)
class Lane:
    """A proxy and its upstream."""

    proxy: RunningProxy
    upstream: ScriptedUpstream


HASTY = f"limits: {{header_timeout: {SOON}s, keepalive: {SOON}s}}"
"""Ends the connection of a client that has sent its stream."""


def _config(upstream: ScriptedUpstream, limits: str) -> str:
    """Short deadlines for what a stream may leave open, and none for ``/after``."""
    return f"""
access_log: none
{limits}
upstreams: {{scripted: {upstream.url}}}
routes:
  - {{match: /after, upstream: scripted}}
  - {{match: /**, upstream: scripted, timeout: {4 * SOON}s, idle_timeout: {SOON}s}}
"""


@asynccontextmanager
async def lanes(limits: str = "") -> AsyncIterator[list[Lane]]:
    async with AsyncExitStack() as stack:
        upstreams = [
            await stack.enter_async_context(ScriptedUpstream(_numbered)) for _ in range(LANES)
        ]
        configs = [_config(upstream, limits) for upstream in upstreams]
        proxies = await stack.enter_async_context(running_together(*configs))
        yield [Lane(*pair) for pair in zip(proxies, upstreams, strict=True)]


async def _numbered(visit: Visit) -> None:
    await visit.read_body()
    await visit.send(ok(b"fine", f"X-Number: {visit.number}"))


# Fields: what we write ourselves, or take for ourselves, is not compared.

_OURS = {
    *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
    *("upgrade", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization"),
    *("http2-settings", "content-length", "host", "expect", "via", "x-request-id", "forwarded"),
    *("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "content_length", "date"),
    *("transfer_encoding", "holdfast-attempts", "proxy-status"),
}
_PROTECTED = {"authorization", "content-type", "cookie", "idempotency-key"}


def _passed_on(fields: Fields) -> Fields:
    """Those that a proxy must pass on as they are."""
    options = {
        option.strip(" \t").lower()
        for name, value in fields
        if name == "connection"
        for option in value.split(",")
    }
    return [
        (name, value)
        for name, value in fields
        if name not in _OURS and (name not in options or name in _PROTECTED)
    ]


def _lower(fields: Fields) -> Fields:
    return [(name.lower(), value) for name, value in fields]


# Requests.


def _is_the_same(seen: Request, read: Read) -> bool:
    target = re.sub(r"\Ahttps?://[^/?#]*", "", read.target, flags=re.IGNORECASE)
    return (
        seen.method == read.method
        and seen.target == (target if target[:1] == "/" else f"/{target}")
        and _passed_on(_lower(seen.headers)) == _passed_on(read.fields)
        and (
            (seen.body == read.body and read.complete)
            if seen.complete
            else read.body.startswith(seen.body)
        )
    )


# Trailers are dropped, so it does no harm that our parser takes this one and others do not.
_empty_coding_as_trailer = re.compile(
    rb"\r\nTransfer-Encoding:[ \t]*\r\n\r\n", re.IGNORECASE
).search


def _request_faults(seen: list[Request], data: bytes) -> Iterator[str]:
    """What reached the upstream is some of what the others read, in this order."""
    if _empty_coding_as_trailer(data):
        return
    for name, read in (("h11", requests_by_h11(data)), ("llhttp", requests_by_llhttp(data))):
        rest = iter(read)
        for each in seen:
            if not any(_is_the_same(each, other) for other in rest):
                yield f"{name} does not read {each.raw_head + each.body!r}, but {read}"
                break


async def _play_requests(lane: Lane, number: int) -> list[str]:
    chance = Random(f"requests {number}")
    data = random_requests(chance)
    lane.upstream.requests.clear()
    lane.upstream.violations.clear()
    lane.proxy.complaints.clear()
    async with lane.proxy.client() as client:
        await client.send(*in_pieces(chance, data))
        await client.ended()
        faults = list(_request_faults(list(lane.upstream.requests), data))
    faults += lane.upstream.violations + lane.proxy.complaints
    return [f"stream {number}: {fault}\n    in {data!r}" for fault in faults]


# Responses.


@dataclass(slots=True, eq=False)
class Said:
    """What an upstream says to one request, and how it leaves."""

    number: int
    method: str
    pieces: list[bytes]
    closes: bool
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once all of it was said."""
    connection: int = 0
    """Which of the upstream's connections it was said on."""

    async def __call__(self, visit: Visit) -> None:
        await visit.read_body()
        self.connection = visit.request.connection
        for piece in self.pieces:
            visit.wire.write(piece)
            # The proxy shares our loop: it reads what is there before we go on.
            await asyncio.sleep(0)
        if self.closes:
            visit.wire.close()
        self.done.set()

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


def _random_answer(number: int) -> Said:
    chance = Random(f"responses {number}")
    method = chance.choice(("GET", "GET", "GET", "POST", "HEAD"))
    pieces = in_pieces(chance, random_response(chance, method))
    return Said(number, method, pieces, closes=chance.random() < 0.3)


def _response_faults(response: Response, said: Said) -> Iterator[str]:
    """What the client got is what the others read, up to where it broke off."""
    for name, read in _readings(said, closed=said.closes).items():
        if response.status != read.status:
            yield f"{name} reads {read.status}, relayed as {response.status}"
            return
        if _passed_on(_lower(response.headers)) != _passed_on(read.fields):
            yield f"{name} reads {read.fields}, relayed as {response.headers}"
        if response.status == RESET_CONTENT:
            if response.body:
                yield "a 205 has a body"
        elif not read.body.startswith(response.body):
            yield f"{name} reads {read.body!r}, relayed as {response.body!r}"
        elif response.complete and not (read.complete and read.body == response.body):
            yield f"{name} reads {read.body!r} (complete: {read.complete}), relayed as all of it"


_reason = re.compile(rb"^(HTTP/1\.[01] [0-9]{3})(?: [^\r\n]*)?(?=\r\n)", re.MULTILINE)


_interim = re.compile(rb"\A(?:HTTP/1\.[01] 1(?!01)\d\d \r\n(?:[^\r\n]+\r\n)*\r\n)+")


def _readings(said: Said, *, closed: bool) -> dict[str, Read]:
    """What the others find in it."""
    loop = asyncio.get_running_loop()
    h11 = response_by_h11(said.method, said.data, closed=closed)
    if not h11.status:
        # It minds what is in a reason phrase, and how long an interim response says it is. We
        # replace what is bad by our own, and relay no interim ones: they never have a body.
        data = _interim.sub(b"", _reason.sub(rb"\1 ", said.data))
        h11 = response_by_h11(said.method, data, closed=closed)
    llhttp = response_by_llhttp(said.method, said.data, closed=closed, loop=loop)
    return {"h11": h11, "llhttp": llhttp}


async def _play_response(lane: Lane, said: Said) -> list[str]:
    lane.upstream.script(said)
    faults = await _first_faults(lane, said)
    if not lane.upstream.has_played(said):
        return []  # no connection to it could be made in time
    await said.done.wait()
    # What the upstream said too much has arrived by now: it shares our loop.
    await asyncio.sleep(0.001)
    after = await lane.proxy.get("/after")
    if (after.status, after.body) != (200, b"fine"):
        faults.append(f"then {after.status} {after.body!r}")
    if lane.upstream.requests[-1].connection == said.connection:
        faults += [
            f"its connection was used again, though {name} finds {read}"
            for name, read in _readings(said, closed=False).items()
            if not read.clean and not _ends_in_empty_lines(said)
        ]
    return faults


async def _first_faults(lane: Lane, said: Said) -> list[str]:
    """What is wrong with what the client got."""
    body = b"body" if said.method == "POST" else None
    response = None
    async with lane.proxy.client() as client:
        await client.send(request(said.method, "/first", body=body))
        try:
            response = await client.response(said.method)
        except WireEnded:
            pass
        except NotCanonical as violation:
            return [f"not canonical: {violation}"]
        broke_off = response is None or not response.complete
        if broke_off and await client.ended() is not End.RESET:
            return ["broke off as if it were over"]
    if response is None or "proxy-status" in response.names:
        return []
    if response.get("Holdfast-Attempts"):
        return []  # a kept connection that ended without a word was replaced
    return list(_response_faults(response, said))


def _ends_in_empty_lines(said: Said) -> bool:
    """Whether only empty lines are too much: llhttp skips them, and nothing can be in them."""
    data = said.data
    while data[-1:] in (b"\r", b"\n"):
        data = data[:-1]
        again = replace(said, pieces=[data])
        if all(read.clean for read in _readings(again, closed=False).values()):
            return True
    return False


# The show.


@counts(700, 30_000)
async def test_requests_are_what_others_read_in_the_same_bytes(count: int) -> None:
    faults: list[str] = []
    seen = 0

    async def play(lane: Lane, numbers: range) -> None:
        nonlocal seen
        for number in numbers:
            faults.extend(await _play_requests(lane, number))
            seen += len(lane.upstream.requests)

    async with lanes(HASTY) as every, asyncio.TaskGroup() as group:
        for at, lane in enumerate(every):
            group.create_task(play(lane, range(at, count, LANES)))
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:10])
    assert seen > 0.5 * count, "nearly nothing was let through"


@counts(500, 6_000)
async def test_responses_are_what_others_read_in_the_same_bytes(count: int) -> None:
    faults: list[str] = []

    async def play(lane: Lane, numbers: range) -> None:
        for number in numbers:
            said = _random_answer(number)
            lane.upstream.requests.clear()
            lane.proxy.complaints.clear()
            found = await _play_response(lane, said)
            found += lane.upstream.violations + lane.proxy.complaints
            lane.upstream.violations.clear()
            faults.extend(f"stream {number}: {fault}\n    in {said}" for fault in found)

    async with lanes() as every, asyncio.TaskGroup() as group:
        for at, lane in enumerate(every):
            group.create_task(play(lane, range(at, count, LANES)))
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:10])
