"""The vectors of ``path_handling`` over the wire: the bytes that came are the bytes that go on."""

from typing import Any

import pytest

from tests.support import ScriptedUpstream, running
from tests.vectors.load import cases, group

ROUTE = group("path_handling")["route"]


def config(upstream: ScriptedUpstream) -> str:
    return f"""
upstreams:
  api: {upstream.url}{ROUTE["upstream_base"]}
routes:
  - match: {ROUTE["prefix"]}/**
    upstream: api
    strip_prefix: {ROUTE["prefix"]}
"""


@pytest.mark.parametrize("case", cases("path_handling"))
async def test_target(case: dict[str, Any]) -> None:
    async with ScriptedUpstream() as upstream, running(config(upstream)) as proxy:
        response = await proxy.get(case["target"])
        if case["expect"] == "reject":
            assert (response.status, response.reason_word) == (400, "bad_request")
        elif case["expect"] == "no_match":
            assert (response.status, response.reason_word) == (404, "no_route")
        else:
            assert response.status == 200
            assert upstream.requests[0].target == case["expect"]["upstream_target"]
        assert len(upstream.requests) == isinstance(case["expect"], dict)


async def test_authority_of_the_target_replaces_host_but_never_the_upstream() -> None:
    async with ScriptedUpstream() as upstream, running(config(upstream)) as proxy:
        assert (await proxy.get("http://b.example/api/x", "Host: a.example")).status == 200
        (request,) = upstream.requests
        assert request.get("Host") == f"127.0.0.1:{upstream.port}"
        assert request.get("X-Forwarded-Host") == "b.example"


async def test_host_is_preserved_where_the_file_says_so() -> None:
    async with ScriptedUpstream() as upstream:
        text = f"""
upstreams:
  api: {{urls: [{upstream.url}], host: preserve}}
routes:
  - {{match: /**, upstream: api}}
"""
        async with running(text) as proxy:
            await proxy.get("/", "Host: b.example:81")
        assert upstream.requests[0].get("Host") == "b.example:81"


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("/api/x?q=100%&r=..\\x", id="a query may hold what it likes"),
        pytest.param("/api//x//y", id="empty segments"),
        pytest.param("/api/x;v=1", id="path parameters"),
        pytest.param("/api/" + "x" * 8000, id="8000 bytes"),
    ],
)
async def test_odd_target_passes_as_it_came(target: str) -> None:
    async with ScriptedUpstream() as upstream, running(config(upstream)) as proxy:
        assert (await proxy.get(target)).status == 200
        assert upstream.requests[0].target == target.replace("/api", "/v1")


async def test_bytes_beyond_ascii_must_be_encoded() -> None:
    async with ScriptedUpstream() as upstream, running(config(upstream)) as proxy:
        assert (await proxy.get("/api/caf\xc3\xa9")).reason_word == "bad_request"
        assert upstream.received == 0
