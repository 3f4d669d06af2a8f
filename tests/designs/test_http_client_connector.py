"""D3: the retries of an HTTP client connector."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.designs.design import Design, verdicts, waited
from tests.support import (
    Behaviour,
    RunningProxy,
    ScriptedUpstream,
    answer,
    hang,
    hang_up,
    ok,
    reset,
    response,
)
from tests.support.ports import refusing_port
from tests.support.records import outcomes, told

DESIGN = Design("http-client-connector.yaml")

ROUTE = "/**"
UNAVAILABLE = answer(response(503, b"try later"))


def overlay(*urls: str, attempt_timeout: str = "30s") -> str:
    """Leads to *urls*, the first that works, with waits of milliseconds."""
    return f"""
        upstreams: {{api: {{urls: [{", ".join(urls)}], balance: first}}}}
        policies:
          connector: {{retry: {{attempt_timeout: {attempt_timeout}, backoff: {{base: 1ms}}}}}}
    """


@asynccontextmanager
async def stage(
    *, attempt_timeout: str = "30s"
) -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    async with (
        ScriptedUpstream() as api,
        DESIGN.running(overlay(api.url, attempt_timeout=attempt_timeout)) as proxy,
    ):
        yield api, proxy


# What is retried.


async def test_503_then_200_is_200_after_two_attempts() -> None:
    async with stage() as (api, proxy):
        api.script(UNAVAILABLE, answer(ok(b"done")))
        client_got = await proxy.get("/items")
        assert (client_got.status, client_got.body) == (200, b"done")
        assert client_got.get("Holdfast-Attempts") == "2"
        assert len(api.requests) == 2
        assert verdicts(await told(proxy)) == ["retried", "recovered"]


async def test_503_always_is_503_after_all_attempts() -> None:
    async with stage() as (api, proxy):
        api.usual = UNAVAILABLE
        client_got = await proxy.get("/items")
        assert (client_got.status, client_got.body) == (503, b"try later")
        assert len(api.requests) == 3
        assert verdicts(await told(proxy)) == ["retried", "retried", "attempts_exhausted"]


async def test_a_refused_connection_then_success() -> None:
    with refusing_port() as port:
        async with (
            ScriptedUpstream() as api,
            DESIGN.running(overlay(f"http://127.0.0.1:{port}", api.url)) as proxy,
        ):
            assert (await proxy.get("/items")).status == 200
            assert len(api.requests) == 1
            assert outcomes(await told(proxy)) == ["connect", "2xx"]


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        pytest.param(reset, "reset", id="reset without a response"),
        pytest.param(hang_up, "reset", id="closed without a response"),
        pytest.param(hang, "timeout", id="no response in time"),
    ],
)
async def test_a_broken_connection_then_success(failure: Behaviour, outcome: str) -> None:
    async with stage(attempt_timeout="200ms") as (api, proxy):
        api.script(failure)
        assert (await proxy.get("/items")).status == 200
        assert len(api.requests) == 2
        assert outcomes(await told(proxy)) == [outcome, "2xx"]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_status_of_the_list_is_retried(status: int) -> None:
    async with stage() as (api, proxy):
        # The hint is for the 429, which would be followed by a second of silence without one.
        api.script(answer(response(status, b"", "Retry-After: 0")))
        assert (await proxy.get("/items")).status == 200
        assert len(api.requests) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 410, 422, 501, 505])
async def test_any_other_status_is_final_after_one_attempt(status: int) -> None:
    async with stage() as (api, proxy):
        api.usual = answer(response(status, b"no"))
        client_got = await proxy.get("/items")
        assert (client_got.status, client_got.body) == (status, b"no")
        assert len(api.requests) == 1


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(UNAVAILABLE, id="after 503"),
        pytest.param(reset, id="after a reset"),
        pytest.param(hang, id="after a timeout"),
    ],
)
async def test_every_method_is_retried(method: str, failure: Behaviour) -> None:
    async with stage(attempt_timeout="200ms") as (api, proxy), proxy.client() as client:
        api.script(failure, answer(response(201)))
        client_got = await client.request(method, "/items", body=b"an order")
        assert client_got.status == 201
        assert [(r.method, r.body) for r in api.requests] == 2 * [(method, b"an order")]


# How long to wait.


def test_delays_begin_at_500_ms_double_and_are_capped_at_30_s() -> None:
    assert DESIGN.waits(ROUTE, 8) == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_after_429_without_a_hint_the_first_delay_is_1_s() -> None:
    assert DESIGN.waits(ROUTE, 3, status=429) == [1, 2, 4]


async def test_the_proxy_waits_so() -> None:
    async with stage() as (api, proxy):
        api.usual = UNAVAILABLE
        await proxy.get("/items")
        assert waited(await told(proxy)) == [1, 2]


async def test_a_retry_after_is_waited_for() -> None:
    async with stage() as (api, proxy):
        api.script(answer(response(429, b"", "Retry-After-Ms: 40")))
        assert (await proxy.get("/items")).status == 200
        [milliseconds] = waited(await told(proxy))
        assert milliseconds >= 40
        first, second = api.requests
        assert second.at - first.at >= 0.04
