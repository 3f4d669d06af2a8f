"""GitHub's API: a limit for each token that several instances share."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.policy.settings import Rate
from tests.examples.example import Example
from tests.support import (
    PATIENCE,
    RunningProxy,
    ScriptedUpstream,
    answer,
    ok,
    response,
    running_together,
)
from tests.support.records import last_logged
from tests.support.redis_server import redis_server
from tests.support.throttles import statuses

EXAMPLE = Example("github.yaml")

OPERATIONS = "holdfast_store_operation_duration_seconds_count"
TOKEN = "Authorization: Bearer octocat"


def limits(remaining: int, resets_in: float) -> list[str]:
    """What is on every response of GitHub's."""
    return [
        "X-RateLimit-Limit: 5000",
        f"X-RateLimit-Remaining: {remaining}",
        f"X-RateLimit-Reset: {int(time.time() + resets_in)}",
    ]


@asynccontextmanager
async def stage(
    instances: int = 1, throttle: str = "{}"
) -> AsyncIterator[tuple[ScriptedUpstream, list[RunningProxy]]]:
    """*instances* proxies with the file and one Redis; *throttle* goes over the file's."""
    async with redis_server() as redis, ScriptedUpstream() as github:
        overlay = f"upstreams: {{github: {{urls: [{github.url}], throttle: {throttle}}}}}"
        environ = {"REDIS_URL": f"redis://127.0.0.1:{redis.port}"}
        async with running_together(
            *[overlay] * instances, upon=EXAMPLE.paths, environ=environ
        ) as proxies:
            await redis.has_listeners(instances)
            yield github, proxies


async def test_the_reset_on_a_good_answer_delays_nothing() -> None:
    async with stage() as (github, [proxy]):
        github.usual = answer(ok(b"[]", *limits(4999, 3000)))
        assert await statuses(proxy, 3, "/repos", TOKEN) == [200] * 3
        # A permit is asked for over the wire, which takes a moment; the reset is an hour away.
        waits = [line["attempts"][0].get("queue_ms", 0) for line in await proxy.logged(3)]
        assert max(waits) < 1000
        assert (await proxy.metrics()).total("holdfast_throttle_paused") == 0


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_403_with_a_hint_is_sent_again_when_it_says(method: str) -> None:
    async with stage() as (github, [proxy]), proxy.client() as client:
        github.script(answer(response(403, b"secondary limit", "Retry-After: 1")))
        got = await client.request(method, "/user/repos", TOKEN, body=b"{}")
        assert got.status == 200
        refused, again = github.requests
        assert again.at - refused.at >= 0.99
        assert (await last_logged(proxy))["attempts"][1]["wait_for"] == "hint"


async def test_a_403_that_means_no_permission_is_final() -> None:
    async with stage() as (github, [proxy]):
        github.usual = answer(response(403, b"no", *limits(4321, 30)))
        assert (await proxy.get("/private", TOKEN)).status == 403
        assert len(github.requests) == 1


async def test_a_reset_in_half_an_hour_is_not_waited_for() -> None:
    async with stage() as (github, [proxy]):
        github.usual = answer(response(403, b"limit", *limits(0, 1800)))
        assert (await proxy.get("/repos", TOKEN)).body == b"limit"
        assert len(github.requests) == 1
        assert (await last_logged(proxy))["attempts"][0]["why"] == "hint_too_long"


async def test_the_file_allows_5000_an_hour() -> None:
    async with stage() as (_, [proxy]):
        [github] = proxy.app.settings.upstreams
        assert github.throttle is not None
        assert github.throttle.rates == (Rate(5000, 3600.0),)


async def test_two_instances_share_the_limit() -> None:
    async with stage(2, "{rate: 20/h, burst: 8, max_wait: 0s}") as (github, proxies):
        asked = await asyncio.gather(*(statuses(proxy, 12, "/repos", TOKEN) for proxy in proxies))
        assert {status for answers in asked for status in answers} == {200, 429}
        assert 1 <= len(github.requests) <= 8


async def test_a_refusal_to_one_instance_makes_the_other_wait() -> None:
    async with stage(2) as (github, [one, other]):
        github.script(answer(response(429, b"", "Retry-After: 1")))
        first = asyncio.create_task(one.get("/repos", TOKEN))
        await github.seen(1)
        async with asyncio.timeout(PATIENCE):  # until the other one can know
            while not (await one.metrics()).total(OPERATIONS, operation="pause"):  # noqa: ASYNC110 - it is far away
                await asyncio.sleep(0.005)
        assert (await other.get("/repos", TOKEN)).status == 200
        assert (await first).status == 200
        refused, *later = github.requests
        assert min(seen.at - refused.at for seen in later) >= 0.9
