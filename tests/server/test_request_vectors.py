"""The vectors of ``request_parsing``, sent to a running proxy as they stand.

Each goes out whole and in pieces of a byte. What is refused gets exactly one
answer, and no upstream runs it; what is accepted arrives there in canonical form.
"""

from typing import Any

import pytest

from tests.support import End, ScriptedUpstream, one_route, running
from tests.vectors.load import cases

ACCEPTED = cases("request_parsing", lambda case: case["expect"] == "accept")
REJECTED = cases("request_parsing", lambda case: case["expect"] == "reject")

whole_and_in_pieces = pytest.mark.parametrize(
    "by_the_byte",
    [pytest.param(False, id="sent whole"), pytest.param(True, id="sent byte by byte")],
)

# What the upstream must have read, where it is not a request without a body.
BODIES = {"sm-17": b"abcdefg", "sm-31": b"hello", "sm-32": b"hello", "sm-73": b"hello"}
TARGETS = {"sm-74": ["/", "/x"]}


def raw_bytes(case: dict[str, Any]) -> bytes:
    raw: str = case["raw"]
    wanted = case.get("generate", {})
    if "header_bytes" in wanted:
        raw = raw.replace("(repeat to exceed max_field_size)", "x" * wanted["header_bytes"])
    if "target_bytes" in wanted:
        raw = raw.replace("(path repeated to exceed the limit)", "x" * wanted["target_bytes"])
    return raw.encode("latin-1")


def pieces(raw: bytes, *, by_the_byte: bool) -> int:
    """The size of the pieces; for what is large a kilobyte will do."""
    if not by_the_byte:
        return len(raw)
    return 1 if len(raw) < 5000 else 1024


@whole_and_in_pieces
@pytest.mark.parametrize("case", ACCEPTED)
async def test_accepted(case: dict[str, Any], *, by_the_byte: bool) -> None:
    raw = raw_bytes(case)
    targets = TARGETS.get(case["id"], ["/"])
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send_by_the_byte(raw, pieces(raw, by_the_byte=by_the_byte))
        responses = await client.responses([raw.split(None, 1)[0].decode()] * len(targets))
        assert [response.status for response in responses] == [200] * len(targets)
        assert [request.target for request in upstream.requests] == targets
        assert upstream.requests[0].body == BODIES.get(case["id"], b"")
        assert all(request.complete for request in upstream.requests)


@whole_and_in_pieces
@pytest.mark.parametrize("case", REJECTED)
async def test_rejected(case: dict[str, Any], *, by_the_byte: bool) -> None:
    raw = raw_bytes(case)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send_by_the_byte(raw, pieces(raw, by_the_byte=by_the_byte))
        response = await client.response()
        assert response.status == case["status"]
        assert response.problem["status"] == case["status"]
        if case.get("close"):
            assert response.get("Connection") == "close"
        if response.get("Connection") == "close":
            assert await client.ended() is End.CLOSED
        assert not client.wire.unread, "one answer and no more"
        if not by_the_byte:
            assert upstream.received == 0
        # A body that turns out to be malformed after its head was passed on is cut off:
        # the upstream never has a whole request.
        assert not any(request.complete for request in upstream.requests)
