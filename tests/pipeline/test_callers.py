"""Callers who say who they are in two ways: none gets another's route, keys or responses."""

import pytest

from tests.support import ScriptedUpstream, request, running, virtual_time
from tests.support.keys import KEY, is_replayed, keyed, post

pytestmark = virtual_time


# Routes by a header's value.

BY_TENANT = """
upstreams:
  paid: %(paid)s
  free: %(free)s
routes:
  - {name: paid, match: {path: /**, headers: {X-Plan: paid}}, upstream: paid}
  - {name: some, match: {path: /**, headers: {X-Team: "red-*"}}, upstream: paid}
  - {name: rest, match: /**, upstream: free}
"""


@pytest.mark.parametrize(
    ("fields", "status", "upstream"),
    [
        pytest.param(["X-Plan: paid"], 200, "paid", id="once"),
        pytest.param(["X-Plan: free", "X-Plan: paid"], 400, "", id="the last of two"),
        pytest.param(["X-Plan: paid", "x-plan: free"], 400, "", id="the first of two"),
        pytest.param(["X-Plan: paid", "X-Plan: paid"], 400, "", id="twice the same"),
        pytest.param(["X-Plan: free", "X-Plan: none"], 200, "free", id="neither is the one"),
        pytest.param(["X-Other: a", "X-Other: b"], 200, "free", id="fields that nobody goes by"),
        pytest.param(["X-Team: a", "X-Team: red-1"], 200, "paid", id="a beginning, on any line"),
    ],
)
async def test_a_repeated_field_finds_no_route_that_wants_one_value_of_it(
    fields: list[str], status: int, upstream: str
) -> None:
    async with ScriptedUpstream() as paid, ScriptedUpstream() as free:
        config = BY_TENANT % {"paid": paid.url, "free": free.url}
        async with running(config) as proxy:
            got = await proxy.get("/", *fields)
            assert got.status == status
            if status == 400:
                assert got.reason_word == "bad_request"
                assert "X-Plan" in got.problem["detail"]
            reached = {"paid": len(paid.requests), "free": len(free.requests)}
            assert reached == {"paid": int(upstream == "paid"), "free": int(upstream == "free")}


# Whose key it is.


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(["X-Api-Key: a", "X-Api-Key: b"], id="two values"),
        pytest.param(["X-Api-Key: a", "x-api-key: a"], id="the same twice"),
        pytest.param(["X-Api-Key: a", "X-Api-Key: "], id="one of them empty"),
    ],
)
async def test_two_callers_of_one_key_get_400(fields: list[str]) -> None:
    async with keyed() as (upstream, proxy):
        refused = await post(proxy, *fields)
        assert (refused.status, refused.reason_word) == (400, "bad_request")
        assert "X-Api-Key" in refused.problem["detail"]
        assert not upstream.requests
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_idempotency_total", result="invalid") == 1
        # Without a key nobody asks whose it is.
        async with proxy.client() as client:
            assert (await client.request("POST", "/", *fields, body=b"a")).status == 200


async def test_a_credential_is_the_same_however_its_scheme_is_spelled() -> None:
    async with keyed() as (upstream, proxy):
        first = await post(proxy, "Authorization: Bearer a")
        assert (first.status, is_replayed(first)) == (200, False)
        for spelling in ("bearer a", "BEARER a", "Bearer   a", "bearer \t a"):
            assert is_replayed(await post(proxy, f"Authorization: {spelling}")), spelling
        assert not is_replayed(await post(proxy, "Authorization: Bearer A"))
        assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        pytest.param(["Authorization: Bearer a"], 200, id="a value"),
        pytest.param(["Authorization: ", "X-Api-Key: a"], 200, id="one of two has a value"),
        pytest.param(["Authorization: "], 400, id="an empty one"),
        pytest.param(["Authorization: \t ", "X-Api-Key:"], 400, id="blanks"),
        pytest.param([], 400, id="none"),
    ],
)
async def test_an_empty_value_says_nothing_of_a_caller(fields: list[str], status: int) -> None:
    async with keyed("{scope_required: true}") as (upstream, proxy):
        got = await post(proxy, *fields)
        assert got.status == status
        if status == 400:
            assert got.problem["detail"] == "Say who you are: send Authorization or X-Api-Key."
        assert len(upstream.requests) == int(status == 200)


async def test_callers_that_send_nothing_and_an_empty_value_share_their_keys() -> None:
    async with keyed() as (upstream, proxy):
        assert not is_replayed(await post(proxy))
        assert is_replayed(await post(proxy, "Authorization: "))
        assert len(upstream.requests) == 1


# Virtual hosts.


def order(host: str) -> bytes:
    """Place the same order at one of the shops."""
    return request("POST", "/orders", f"Host: {host}", KEY, body=b"order")


TWO_UPSTREAMS = """
upstreams:
  scripted: {urls: [%(url)s], host: %(host)s}
  other: {urls: [%(url)s], host: %(other)s}
routes:
  - {match: /**, upstream: scripted, idempotency: true, fallback: {upstream: other}}
"""


@pytest.mark.parametrize(
    ("host", "other"),
    [
        pytest.param("preserve", "upstream", id="the upstream sees it"),
        pytest.param("upstream", "preserve", id="the fallback does"),
    ],
)
async def test_a_key_of_one_virtual_host_is_another_request_on_the_next(
    host: str, other: str
) -> None:
    async with ScriptedUpstream() as upstream:
        config = TWO_UPSTREAMS % {"url": upstream.url, "host": host, "other": other}
        async with running(config) as proxy, proxy.client() as client:
            got = []
            for shop in ("a.shops.example", "b.shops.example", "A.Shops.Example"):
                await client.send(order(shop))
                got.append(await client.response("POST"))
            assert [one.status for one in got] == [200, 422, 200]
            assert got[1].reason_word == "key_mismatch"
            assert is_replayed(got[2])
            assert len(upstream.requests) == 1


async def test_where_the_upstream_does_not_see_the_host_it_does_not_count() -> None:
    async with keyed() as (upstream, proxy), proxy.client() as client:
        for shop in ("a.shops.example", "b.shops.example"):
            await client.send(order(shop))
            assert (await client.response("POST")).status == 200
        assert len(upstream.requests) == 1
