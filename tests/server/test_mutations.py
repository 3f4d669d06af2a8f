"""Every control byte at every place around the two headers that frame a body.

Refusing is right, and so is accepting what can only be read in one way. What may
not happen is that an upstream gets a request which is not in canonical form, or a
body that is not the one sent, or a second request out of the first one's body.
"""

import pytest

from tests.support import ScriptedUpstream, one_route, running

CONTROLS = [b"\x00", b"\x01", b"\x08", b"\t", b"\n", b"\x0b", b"\x0c", b"\r", b"\x1f", b" ",
            b"\x7f", b"\x85", b"\xa0"]  # fmt: skip

# `?` is where the byte goes.
POSITIONS = {
    "before the name": b"\r\n?NAME: VALUE\r\n",
    "inside the name": b"\r\nNA?ME: VALUE\r\n",
    "behind the name": b"\r\nNAME?: VALUE\r\n",
    "behind the colon": b"\r\nNAME:?VALUE\r\n",
    "behind the blank": b"\r\nNAME: ?VALUE\r\n",
    "inside the value": b"\r\nNAME: VAL?UE\r\n",
    "behind the value": b"\r\nNAME: VALUE?\r\n",
    "inside the line's end": b"\r\nNAME: VALUE\r?\n",
    "in place of the line's end": b"\r\nNAME: VALUE?X-A: a\r\n",
    "in place of the end before": b"?NAME: VALUE\r\n",
}

EVIL = b"GET /evil HTTP/1.1\r\nHost: a.example\r\n\r\n"
# The parts around the middle of the name and of the value, and what follows the head.
HEADERS = {
    "Content-Length": (b"Content", b"-Length", b"3", b"9", EVIL),
    "Transfer-Encoding": (
        b"Transfer",
        b"-Encoding",
        b"chun",
        b"ked",
        b"27\r\n" + EVIL + b"\r\n0\r\n\r\n",
    ),
}


def mutated(header: str, pattern: bytes, control: bytes) -> bytes:
    name_start, name_end, value_start, value_end, body = HEADERS[header]
    line = (
        pattern.replace(b"NA?ME", name_start + b"?" + name_end)
        .replace(b"NAME", name_start + name_end)
        .replace(b"VAL?UE", value_start + b"?" + value_end)
        .replace(b"VALUE", value_start + value_end)
        .replace(b"?", control)
    )
    return b"POST / HTTP/1.1\r\nHost: a.example\r\nX-First: 1" + line + b"\r\n" + body


def test_unmutated_the_body_is_a_request() -> None:
    assert len(EVIL) == 39
    assert b"%x\r\n" % len(EVIL) == HEADERS["Transfer-Encoding"][4][:4]


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("header", HEADERS)
async def test_nothing_reaches_the_upstream_that_is_not_canonical(
    header: str, position: str
) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        for control in CONTROLS:
            before = len(upstream.requests)
            async with proxy.client() as client:
                await client.send(mutated(header, POSITIONS[position], control))
                response = await client.response("POST")
                seen = upstream.requests[before:]
                if response.status != 200:
                    assert response.problem["status"] in {400, 501}, control
                    assert not any(request.complete for request in seen)
                elif header.lower() in (seen[0].get("X-First") or "").lower():
                    # No longer a header but a part of another's value, for us as for
                    # everybody: what follows is a request of its own, or nonsense.
                    assert (seen[0].target, seen[0].body) == ("/", b"")
                    await client.response()
                else:
                    (request,) = seen
                    assert (request.target, request.body) == ("/", EVIL), control
        assert upstream.violations == []
