"""D3: the retries and the throttle of an HTTP client connector."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.policy.settings import Rate
from tests.designs.design import Design, verdicts, waited
from tests.support import (
    Behaviour,
    RunningProxy,
    ScriptedUpstream,
    answer,
    hang,
    hang_up,
    now,
    ok,
    reset,
    response,
    virtual_time,
)
from tests.support.ports import refusing_port
from tests.support.records import last_logged, outcomes
from tests.support.throttles import at_once, decisions, statuses

pytestmark = virtual_time


DESIGN = Design("http-client-connector.yaml")

ROUTE = "/**"
UNAVAILABLE = answer(response(503, b"try later"))


def overlay(*urls: str, attempt_timeout: str = "30s", throttle: str = "") -> str:
    """Leads to *urls*, the first that works, with waits of milliseconds.

    *throttle* is laid over that of the file.
    """
    return f"""
        upstreams:
          api: {{urls: [{", ".join(urls)}], balance: first, throttle: {{{throttle}}}}}
        policies:
          connector: {{retry: {{attempt_timeout: {attempt_timeout}, backoff: {{base: 1ms}}}}}}
    """


@asynccontextmanager
async def stage(
    *, attempt_timeout: str = "30s", throttle: str = ""
) -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    async with (
        ScriptedUpstream() as api,
        DESIGN.running(
            overlay(api.url, attempt_timeout=attempt_timeout, throttle=throttle)
        ) as proxy,
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
        assert verdicts(await last_logged(proxy)) == ["retried", "recovered"]


async def test_503_always_is_503_after_all_attempts() -> None:
    async with stage() as (api, proxy):
        api.usual = UNAVAILABLE
        client_got = await proxy.get("/items")
        assert (client_got.status, client_got.body) == (503, b"try later")
        assert len(api.requests) == 3
        assert verdicts(await last_logged(proxy)) == ["retried", "retried", "attempts_exhausted"]


async def test_a_refused_connection_then_success() -> None:
    with refusing_port() as port:
        async with (
            ScriptedUpstream() as api,
            DESIGN.running(overlay(f"http://127.0.0.1:{port}", api.url)) as proxy,
        ):
            assert (await proxy.get("/items")).status == 200
            assert len(api.requests) == 1
            assert outcomes(await last_logged(proxy)) == ["connect", "2xx"]


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
        assert outcomes(await last_logged(proxy)) == [outcome, "2xx"]


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
        assert waited(await last_logged(proxy)) == [1, 2]


async def test_a_retry_after_is_waited_for() -> None:
    async with stage() as (api, proxy):
        api.script(answer(response(429, b"", "Retry-After-Ms: 40")))
        assert (await proxy.get("/items")).status == 200
        [milliseconds] = waited(await last_logged(proxy))
        assert milliseconds >= 40
        first, second = api.requests
        assert second.at - first.at >= 0.04


# How many calls.

TWO = "rate: 2/300ms"
"""``maxRequests`` and ``windowDuration``."""
TWO_FOR_LONG = "rate: 2/h, max_wait: 0s"


def arrivals(api: ScriptedUpstream) -> list[float]:
    """Seconds from the first request at the upstream to each of them."""
    first = api.requests[0].at
    return [seen.at - first for seen in api.requests]


def test_at_most_100_calls_in_any_10_s_and_a_wait_of_5_s_at_most() -> None:
    [api] = DESIGN.settings.upstreams
    assert api.throttle is not None
    assert api.throttle.algorithm == "window"
    assert api.throttle.rates == (Rate(100, 10.0),)
    assert api.throttle.max_wait == 5.0


async def test_with_a_limit_of_two_the_third_request_waits() -> None:
    async with stage(throttle=TWO) as (api, proxy):
        assert [got.status for got in await at_once(proxy, 3)] == [200] * 3
        assert arrivals(api)[2] >= 0.29
        assert await decisions(proxy, "upstream", "api") == {"passed": 2, "delayed": 1}


async def test_slots_that_expired_are_free_again() -> None:
    async with stage(throttle=f"{TWO}, max_wait: none") as (api, proxy):
        assert await statuses(proxy, 6) == [200] * 6
        times = arrivals(api)
        gaps = [later - earlier for earlier, later in zip(times, times[2:], strict=False)]
        assert min(gaps) >= 0.29  # of any three the first and the last are a window apart


async def test_a_wait_beyond_the_longest_is_refused_without_any_call() -> None:
    async with stage(throttle="rate: 2/h") as (api, proxy):
        assert await statuses(proxy, 2) == [200, 200]
        began = now()
        refused = await proxy.get("/items")
        assert now() - began < 1
        assert (refused.status, refused.reason_word) == (429, "throttled")
        assert refused.problem["cause"] == "max_wait"
        assert len(api.requests) == 2


async def test_a_refusal_of_the_throttle_is_not_retried_though_429_is_listed() -> None:
    async with stage(throttle=TWO_FOR_LONG) as (_, proxy):
        assert await statuses(proxy, 3) == [200, 200, 429]
        assert (await last_logged(proxy, 3))["attempts"] == []
        assert await decisions(proxy, "upstream", "api") == {"passed": 2, "refused": 1}


async def test_every_attempt_takes_a_slot_retries_included() -> None:
    async with stage(throttle=TWO) as (api, proxy):
        api.script(UNAVAILABLE, UNAVAILABLE)
        assert (await proxy.get("/items")).status == 200
        assert arrivals(api)[2] >= 0.29
        record = await last_logged(proxy)
        assert verdicts(record) == ["retried", "retried", "recovered"]
        assert ["queue_ms" in attempt for attempt in record["attempts"]] == [False, False, True]


async def test_without_a_longest_wait_one_waits_for_as_long_as_it_takes() -> None:
    async with stage(throttle="rate: 1/200ms, max_wait: none") as (api, proxy):
        assert [got.status for got in await at_once(proxy, 6)] == [200] * 6
        assert arrivals(api)[-1] >= 0.99


async def test_a_reload_keeps_the_window_s_state() -> None:
    async with stage(throttle=TWO_FOR_LONG) as (api, proxy):
        assert await statuses(proxy, 1) == [200]
        text = proxy.config.read_text()
        for base in ("1ms", "2ms", "3ms"):
            proxy.config.write_text(text.replace("base: 1ms", f"base: {base}"))
            assert (await proxy.admin("POST", "/-/reload")).status == 200
        assert await statuses(proxy, 2) == [200, 429]
        assert len(api.requests) == 2
