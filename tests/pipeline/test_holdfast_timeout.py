"""``Holdfast-Timeout``: a caller may grant less time than the route does, never more."""

import pytest

from tests.support import (
    ScriptedUpstream,
    answer,
    hang,
    now,
    one_route,
    response,
    running,
    virtual_time,
)
from tests.support.records import last_logged

pytestmark = virtual_time


ROUTES = {"a plain route": "", "a route that retries": "retry: true"}


@pytest.fixture(params=ROUTES.values(), ids=[*ROUTES])
def route(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("configured", "fields"),
    [
        pytest.param("30s", ["Holdfast-Timeout: 100ms"], id="less than the route's counts"),
        pytest.param("none", ["Holdfast-Timeout: 0.1s"], id="so does any where it has none"),
        pytest.param("100ms", ["Holdfast-Timeout: 1h"], id="more than the route's does not"),
    ],
)
async def test_it_can_only_shorten_the_time(route: str, configured: str, fields: list[str]) -> None:
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, f"timeout: {configured}\n{route}")) as proxy,
    ):
        began = now()
        got = await proxy.get("/", *fields)
        assert 0.095 <= now() - began < 2
        assert (got.status, got.reason_word) == (504, "timeout")
        assert len(upstream.requests) == 1


async def test_it_bounds_all_attempts_and_waits_together() -> None:
    route = "retry: {attempts: 100, backoff: {strategy: constant, base: 20ms, jitter: none}}"
    async with (
        ScriptedUpstream(answer(response(503))) as upstream,
        running(one_route(upstream, route, options="budget: false")) as proxy,
    ):
        began = now()
        got = await proxy.get("/", "Holdfast-Timeout: 150ms")
        assert now() - began < 1.5
        assert got.status == 503
        record = await last_logged(proxy)
        assert record["attempts"][-1]["why"] == "deadline"
        assert 1 < len(upstream.requests) == len(record["attempts"]) <= 7


@pytest.mark.parametrize(
    "value", ["soon", "5", "", "-5s", "1e3ms", "inf", "nan", "5 s", "٣s", "9" * 200 + "s"]
)
async def test_a_value_that_is_none_is_refused_and_told_what_to_write(
    route: str, value: str
) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        async with proxy.client() as client:
            field = b"Holdfast-Timeout: " + value.encode()
            await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n" + field + b"\r\n\r\n")
            got = await client.response()
        assert (got.status, got.reason_word) == (400, "bad_request")
        assert "Holdfast-Timeout" in got.problem["detail"]
        assert "1500ms" in got.problem["detail"]
        assert upstream.connections == []


async def test_two_of_them_are_refused(route: str) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        got = await proxy.get("/", "Holdfast-Timeout: 1s", "Holdfast-Timeout: 2s")
        assert (got.status, got.reason_word) == (400, "bad_request")
        assert upstream.connections == []


@pytest.mark.parametrize("value", ["0ms", "0s", "0.0s"])
async def test_no_time_at_all_is_over_before_anything_is_sent(route: str, value: str) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        async with proxy.client() as client:
            got = await client.get("/", f"Holdfast-Timeout: {value}")
            assert (got.status, got.reason_word) == (504, "timeout")
            assert "attempts" not in got.problem
            assert upstream.connections == []
            # The client's own connection is as good as before.
            assert (await client.get()).status == 200
        assert (await last_logged(proxy, 2))["code"] == 200


async def test_what_is_over_before_it_began_earns_nobody_a_retry() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "retry: true")) as proxy,
    ):
        for _ in range(5):
            await proxy.get("/", "Holdfast-Timeout: 0ms")
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_retry_budget_remaining") == 10


async def test_it_is_for_us_and_goes_no_further(route: str) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        assert (await proxy.get("/", "Holdfast-Timeout: 1500ms")).status == 200
        assert "holdfast-timeout" not in upstream.requests[0].names
