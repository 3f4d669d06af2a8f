"""D1: a retry policy as one value, shared by many routes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from proxy.policy.settings import Outcomes
from tests.designs.design import Design, verdicts, waited
from tests.support import RunningProxy, ScriptedUpstream, answer, ok, response, virtual_time
from tests.support.records import last_logged

pytestmark = virtual_time


DESIGN = Design("retry-policy-object.yaml")

UNAVAILABLE = answer(response(503, b"try later"))


@dataclass(frozen=True, slots=True)
class Stage:
    """The design at work, a thousandth of a second for each that it says."""

    nodes: ScriptedUpstream
    cache: ScriptedUpstream
    proxy: RunningProxy


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with ScriptedUpstream() as nodes, ScriptedUpstream() as cache:
        overlay = f"""
            upstreams: {{nodes: "{nodes.url}", cache: "{cache.url}"}}
            defaults: {{retry: {{backoff: {{base: 1ms}}}}}}
        """
        async with DESIGN.running(overlay) as proxy:
            yield Stage(nodes, cache, proxy)


# Which errors, and how often.


async def test_a_listed_error_twice_then_success_makes_three_calls() -> None:
    async with stage() as on:
        on.nodes.script(UNAVAILABLE, UNAVAILABLE, answer(ok(b"done")))
        client_got = await on.proxy.get("/extract/1")
        assert (client_got.status, client_got.body) == (200, b"done")
        assert client_got.get("Holdfast-Attempts") == "3"
        assert len(on.nodes.requests) == 3
        record = await last_logged(on.proxy)
        assert verdicts(record) == ["retried", "retried", "recovered"]
        assert waited(record) == [1, 2]


@pytest.mark.parametrize("status", [404, 500], ids="status {}".format)
async def test_an_error_that_is_not_listed_makes_one_call(status: int) -> None:
    async with stage() as on:
        on.nodes.script(answer(response(status, b"no")))
        client_got = await on.proxy.get("/extract/1")
        assert (client_got.status, client_got.body) == (status, b"no")
        assert len(on.nodes.requests) == 1


async def test_when_the_count_is_used_up_the_last_error_reaches_the_client() -> None:
    async with stage() as on:
        on.nodes.script(*(answer(response(503, body)) for body in (b"one", b"two", b"three")))
        client_got = await on.proxy.get("/extract/1")
        assert (client_got.status, client_got.body) == (503, b"three")
        assert len(on.nodes.requests) == 3
        assert verdicts(await last_logged(on.proxy)) == ["retried", "retried", "attempts_exhausted"]


# How long to wait.


@pytest.mark.parametrize(
    ("route", "seconds"),
    [
        pytest.param("/extract/**", [1, 2, 4], id="exponential doubles"),
        pytest.param("/transform/**", [1, 1, 1], id="fixed stays"),
        pytest.param("/load/**", [1, 2, 3], id="linear adds the base"),
    ],
)
def test_delays(route: str, seconds: list[float]) -> None:
    assert DESIGN.waits(route, 3) == seconds


def test_a_base_of_10_s_is_capped_at_30_s() -> None:
    assert DESIGN.waits("/archive/**", 10) == [10, 20] + 8 * [30]


def test_the_cap_of_60_s_holds_for_any_attempt() -> None:
    assert [DESIGN.wait("/extract/**", n) for n in (6, 7, 5000)] == [32, 60, 60]


@pytest.mark.parametrize(
    ("path", "milliseconds"),
    [
        pytest.param("/extract/1", [1, 2], id="exponential"),
        pytest.param("/transform/1", [1, 1], id="fixed"),
        pytest.param("/load/1", [1, 2], id="linear"),
    ],
)
async def test_the_proxy_waits_as_its_route_says(path: str, milliseconds: list[float]) -> None:
    async with stage() as on:
        on.nodes.usual = UNAVAILABLE
        assert (await on.proxy.get(path)).status == 503
        assert waited(await last_logged(on.proxy)) == milliseconds


# One value for many.


def test_the_shorthand_equals_the_full_form() -> None:
    assert DESIGN.retry("/short/**") == DESIGN.retry("/full/**")


async def test_the_shorthand_with_a_list_of_errors_goes_by_that_list() -> None:
    listed = Outcomes(frozenset({"connect"}), frozenset({504}))
    assert DESIGN.retry("/listed/**") == replace(DESIGN.retry("/full/**"), attempts=2, on=listed)
    async with stage() as on:
        on.nodes.script(answer(response(504)), UNAVAILABLE)
        assert (await on.proxy.get("/listed/1")).status == 503
        assert verdicts(await last_logged(on.proxy)) == ["retried", "not_retryable_status"]


async def test_one_named_policy_serves_two_routes() -> None:
    assert DESIGN.retry("/transform/**") == DESIGN.retry("/validate/**")
    async with stage() as on:
        for count, path in enumerate(("/transform/1", "/validate/1"), 1):
            on.nodes.script(UNAVAILABLE, UNAVAILABLE, answer(ok()))
            assert (await on.proxy.get(path)).status == 200
            record = await last_logged(on.proxy, count)
            assert waited(record) == [1, 1]
            assert verdicts(record) == ["retried", "retried", "recovered"]


# When nothing helped.


async def test_another_upstream_answers_when_the_calls_are_used_up() -> None:
    async with stage() as on:
        on.nodes.usual = UNAVAILABLE
        on.cache.script(answer(ok(b"prices of yesterday")))
        client_got = await on.proxy.get("/prices/1")
        assert (client_got.status, client_got.body) == (200, b"prices of yesterday")
        assert (len(on.nodes.requests), len(on.cache.requests)) == (3, 1)
        record = await last_logged(on.proxy)
        assert record["fallback"]
        assert [attempt["upstream"] for attempt in record["attempts"]] == 3 * ["nodes"] + ["cache"]


async def test_a_fixed_answer_stands_in_when_the_calls_are_used_up() -> None:
    async with stage() as on:
        on.nodes.usual = UNAVAILABLE
        client_got = await on.proxy.get("/banner/1")
        assert (client_got.status, client_got.body) == (200, b"nothing new")
        assert len(on.nodes.requests) == 3
        assert (await last_logged(on.proxy))["fallback"]


async def test_the_fallback_is_not_asked_while_a_call_may_still_succeed() -> None:
    async with stage() as on:
        on.nodes.script(UNAVAILABLE, UNAVAILABLE, answer(ok(b"prices of today")))
        assert (await on.proxy.get("/prices/1")).body == b"prices of today"
        assert on.cache.requests == []
