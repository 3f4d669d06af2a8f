"""Clients that speak HTTP/2 or TLS on a plain port are told so, in answer and log."""

import asyncio
import ssl

import pytest

from tests.support import ScriptedUpstream, one_route, running, virtual_time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def client_hello() -> bytes:
    """The first bytes of a real TLS client."""
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="a")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


CASES = [
    pytest.param(PREFACE, 505, "version", "http2_preface", id="HTTP/2"),
    pytest.param(client_hello(), 400, "bad_request", "tls_on_plain_port", id="TLS"),
    pytest.param(
        b"\x16\x03\x01\x00\n\x1b[31m", 400, "bad_request", "tls_on_plain_port", id="like TLS"
    ),
    pytest.param(b"\x1b[31m\x00\xff\r\n\r\n", 400, "bad_request", None, id="garbage"),
    pytest.param(b"PRI / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_request", None, id="PRI alone"),
]


@virtual_time
@pytest.mark.parametrize("piecewise", [False, True], ids=["at once", "byte by byte"])
@pytest.mark.parametrize(("start", "status", "reason", "cause"), CASES)
async def test_what_it_is_told(
    capfd: pytest.CaptureFixture[str],
    start: bytes,
    status: int,
    reason: str,
    cause: str | None,
    *,
    piecewise: bool,
) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            for piece in (
                [start[i : i + 1] for i in range(min(len(start), 20))] if piecewise else [start]
            ):
                await client.send(piece)
                await asyncio.sleep(0)
            answer = await client.response()
        assert answer.status == status
        assert answer.problem["type"] == f"urn:holdfast:problem:{reason}"
        assert answer.problem.get("cause") == cause
        record = (await proxy.logged())[0]
        assert (record["code"], record["refusal"], record.get("cause")) == (status, reason, cause)
        assert upstream.received == 0
    said = capfd.readouterr()
    assert "\x1b" not in said.out + said.err


async def test_a_tls_client_reports_what_people_know_as_this_mistake() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        context = ssl.create_default_context()
        with pytest.raises(ssl.SSLError) as failure:
            await asyncio.open_connection("127.0.0.1", proxy.port, ssl=context)
        assert failure.value.reason == "WRONG_VERSION_NUMBER"
