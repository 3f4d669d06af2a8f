"""The vectors of ``hop_by_hop``: which fields end here, and which must not be taken away."""

from typing import Any

import pytest

from tests.support import ScriptedUpstream, answer, answer_and_close, one_route, request, running
from tests.vectors.load import cases

Fields = list[tuple[str, str]]

PASSED_ON = cases(
    "hop_by_hop",
    lambda case: (
        case["direction"] == "request" and not {"expect_status", "expect_local"} & case.keys()
    ),
)
RESPONSES = cases("hop_by_hop", lambda case: case["direction"] == "response")


def lines(fields: list[list[str]]) -> list[str]:
    return [f"{name}: {value}" for name, value in fields]


def of_interest(case: dict[str, Any], headers: Fields) -> Fields:
    """The fields that the case is about, in their order."""
    names = {name.lower() for name, _ in case["received"] + case["forwarded"]}
    return [(name, value) for name, value in headers if name.lower() in names]


def expected(case: dict[str, Any]) -> Fields:
    # Over real sockets the peer is ourselves.
    peer = case.get("peer", "127.0.0.1")
    return [(name, value.replace(peer, "127.0.0.1")) for name, value in case["forwarded"]]


@pytest.mark.parametrize("case", PASSED_ON)
async def test_request(case: dict[str, Any]) -> None:
    received = dict(case["received"])
    body = b"x" * int(received.get("Content-Length", 0))
    top = "trusted_proxies: [127.0.0.1]" if case.get("trusted_peer") else ""
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=top)) as proxy,
        proxy.client() as client,
    ):
        method = case.get("method", "POST" if body else "GET")
        await client.send(request(method, "/", *lines(case["received"])))
        if "Expect" in received:
            assert (await client.interim()).status == 100
        await client.send(body)
        assert (await client.response(method)).status == 200
        (seen,) = upstream.requests
        assert sorted(of_interest(case, seen.headers)) == sorted(expected(case))
        assert seen.body == body


@pytest.mark.parametrize("case", RESPONSES)
async def test_response(case: dict[str, Any]) -> None:
    received = dict(case["received"])
    body = b"x" * int(received.get("Content-Length", 0))
    fields = "".join(f"{line}\r\n" for line in lines(case["received"]))
    raw = f"HTTP/1.1 200 OK\r\n{fields}".encode()
    if "Content-Length" not in received:
        raw += b"Content-Length: 0\r\n"
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        behave = answer_and_close if "close" in received.get("Connection", "") else answer
        upstream.script(behave(raw + b"\r\n" + body))
        response = await proxy.get()
        assert sorted(of_interest(case, response.headers)) == sorted(expected(case))
        assert response.body == body


async def test_own_name_in_via_is_a_loop() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        response = await proxy.get("/", "Via: 1.1 holdfast")
        assert (response.status, response.reason_word) == (508, "loop")
        assert upstream.received == 0


async def test_options_without_forwards_left_is_answered_here() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            response = await client.request("OPTIONS", "/", "Max-Forwards: 0")
            assert response.status == 204
            assert "GET" in (response.get("Allow") or "")
            assert (await client.request("OPTIONS", "*")).status == 204
        assert upstream.received == 0


async def test_fields_of_one_name_keep_their_number_and_order() -> None:
    cookies = ["Set-Cookie: a=1", "Set-Cookie: b=2", "Set-Cookie: c=3"]
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        fields = "".join(f"{line}\r\n" for line in cookies)
        upstream.script(answer(f"HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n".encode()))
        response = await proxy.get("/", "X-A: 1", "x-a: 2", "X-A: 3")
        assert response.all("Set-Cookie") == ["a=1", "b=2", "c=3"]
        assert upstream.requests[0].all("X-A") == ["1", "2", "3"]


async def test_response_without_a_date_gets_one() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        assert (await proxy.get()).get("Date")
        upstream.script(answer(b"HTTP/1.1 200 OK\r\nDate: then\r\nContent-Length: 0\r\n\r\n"))
        assert (await proxy.get()).get("Date") == "then"


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        pytest.param("X-Request-Id: Ab.9_-", "Ab.9_-", id="one that is fit is kept"),
        pytest.param("X-Request-Id: a b", None, id="one with a blank is replaced"),
        pytest.param("X-Request-Id: " + "a" * 129, None, id="one that is too long is replaced"),
        pytest.param("X-A: 1", None, id="where there is none one is made"),
    ],
)
async def test_request_id(sent: str, arrives: str | None) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        response = await proxy.get("/", sent)
        there = upstream.requests[0].get("X-Request-Id")
        assert there == response.get("X-Request-Id") == (await proxy.logged())[0]["request_id"]
        if arrives is None:
            assert there
            assert there not in sent
        else:
            assert there == arrives
