"""D2: strategies of waiting, spread and capped, and switched while the proxy runs."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from operator import ge
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.designs.design import Design, waited
from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    ok,
    response,
    virtual_time,
)
from tests.support.depth import FUZZ
from tests.support.records import last_logged

pytestmark = virtual_time


DESIGN = Design("retry-strategies.yaml")

ROLLS = st.floats(0, 1, exclude_max=True)
HIGHEST_ROLL = 1 - 1e-9
UNAVAILABLE = answer(response(503))


def wait(route: str, attempt: int, roll: float = 0.5) -> float:
    """Seconds after the *attempt* that the design counts from 0."""
    return DESIGN.wait(route, attempt + 1, roll=roll)


# The curves.


@pytest.mark.parametrize(
    ("route", "seconds"),
    [
        pytest.param("/payments/**", [1, 2, 4, 8], id="exponential is base to the attempt"),
        pytest.param("/emails/**", [1, 3, 5], id="linear adds its increment"),
        pytest.param("/reports/**", [1, 1, 2, 3, 5], id="fibonacci adds the last two"),
        pytest.param("/pings/**", [1, 1, 1, 1], id="constant stays"),
    ],
)
def test_waits_from_attempt_0_on(route: str, seconds: list[float]) -> None:
    assert [wait(route, attempt) for attempt in range(len(seconds))] == seconds


# The cap.


@pytest.mark.parametrize("attempt", [10, 20], ids="attempt {}".format)
def test_a_cap_of_10_s_is_met_exactly_without_jitter(attempt: int) -> None:
    assert wait("/exports/**", attempt) == 10


@pytest.mark.parametrize("attempt", [10, 20], ids="attempt {}".format)
@pytest.mark.parametrize("roll", [0.0, 0.5, HIGHEST_ROLL], ids="roll {:.1f}".format)
def test_a_cap_of_10_s_is_never_exceeded_with_jitter(attempt: int, roll: float) -> None:
    assert 8 <= wait("/webhooks/**", attempt, roll) <= 10


@pytest.mark.parametrize("route", ["/payments/**", "/emails/**", "/reports/**"])
def test_the_usual_cap_of_300_s_holds_for_whatever_grows(route: str) -> None:
    assert wait(route, 5000) == 300
    assert wait(route, 5000, HIGHEST_ROLL) == 300


# The jitter.


@FUZZ
@given(attempt=st.integers(0, 8), roll=ROLLS)
def test_jitter_stays_within_20_percent_of_the_curve(attempt: int, roll: float) -> None:
    curve = 2.0**attempt
    assert 0.8 * curve <= wait("/payments/**", attempt, roll) <= 1.2 * curve


def test_jitter_reaches_both_ends() -> None:
    assert wait("/payments/**", 2, 0.0) == pytest.approx(3.2)
    assert wait("/payments/**", 2, HIGHEST_ROLL) == pytest.approx(4.8)


def test_jitter_comes_before_the_cap() -> None:
    """The cap has the last word, and even there callers are told apart: from 8 s to 10 s."""
    assert wait("/webhooks/**", 3, HIGHEST_ROLL) == pytest.approx(9.6)
    assert wait("/webhooks/**", 4, HIGHEST_ROLL) == 10
    assert wait("/webhooks/**", 4, 0.0) == 8
    assert wait("/payments/**", 8, HIGHEST_ROLL) == 300


# At work.


@asynccontextmanager
async def stage(*, roll: float = 0.5) -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    """The design with a thousandth of a second for each that it says."""
    async with ScriptedUpstream(UNAVAILABLE) as handlers:
        overlay = f"""
            upstreams: {{handlers: {{urls: ["{handlers.url}"]}}}}
            defaults: {{retry: {{backoff: {{base: 1ms}}}}}}
            policies:
              linear: {{retry: {{backoff: {{increment: 2ms}}}}}}
              capped: {{retry: {{backoff: {{max: 10ms}}}}}}
        """
        async with DESIGN.running(overlay, roll=roll) as proxy:
            yield handlers, proxy


@pytest.mark.parametrize(
    ("path", "milliseconds"),
    [
        pytest.param("/payments/1", [1, 2, 4, 8, 16], id="exponential"),
        pytest.param("/emails/1", [1, 3, 5, 7, 9], id="linear"),
        pytest.param("/pings/1", [1, 1, 1, 1, 1], id="constant"),
        pytest.param("/reports/1", [1, 1, 2, 3, 5], id="fibonacci"),
        pytest.param("/exports/1", [1, 2, 4, 8, *(17 * [10])], id="capped, after 21 retries too"),
    ],
)
async def test_the_proxy_waits_as_its_route_says(path: str, milliseconds: list[float]) -> None:
    async with stage() as (handlers, proxy):
        assert (await proxy.get(path)).status == 503
        assert waited(await last_logged(proxy)) == milliseconds
        assert len(handlers.requests) == 1 + len(milliseconds)
        apart = [1000 * (later.at - sooner.at) for sooner, later in pairwise(handlers.requests)]
        assert all(map(ge, apart, milliseconds)), apart


@pytest.mark.parametrize(
    ("roll", "milliseconds"),
    [
        pytest.param(0.0, [0.8, 1.6, 3.2, 6.4, *(17 * [8])], id="as short as it gets"),
        pytest.param(HIGHEST_ROLL, [1.2, 2.4, 4.8, 9.6, *(17 * [10])], id="as long as it gets"),
    ],
)
async def test_the_proxy_spreads_its_waits(roll: float, milliseconds: list[float]) -> None:
    async with stage(roll=roll) as (_, proxy):
        assert (await proxy.get("/webhooks/1")).status == 503
        assert waited(await last_logged(proxy)) == milliseconds


# Switching.

PINGS = "match: /pings/**, upstream: handlers, policy: "


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


async def test_a_reload_switches_the_strategy_for_the_next_request_alone(tmp_path: Path) -> None:
    """A request in its wait keeps the strategy under which it came, for later waits too."""
    copy = tmp_path / DESIGN.path.name
    copy.write_text(DESIGN.path.read_text())
    seen: Counter[str] = Counter()

    async def fail_at_first(visit: Visit) -> None:
        seen[visit.request.target] += 1
        failures = {"/pings/early": 2, "/pings/late": 4}[visit.request.target]
        late = seen[visit.request.target] > failures
        await visit.send(ok() if late else response(503))

    async with ScriptedUpstream(fail_at_first) as handlers:
        overlay = f"""
            upstreams: {{handlers: {{urls: ["{handlers.url}"]}}}}
            defaults: {{retry: {{backoff: {{base: 400ms}}}}}}
        """
        async with Design(copy).running(overlay) as proxy:
            early = asyncio.create_task(proxy.get("/pings/early"))
            await eventually(lambda: proxy.waiting_requests)
            edit(copy, f"{PINGS}constant", f"{PINGS}fibonacci")
            edit(proxy.config, "base: 400ms", "base: 2ms")
            assert (await proxy.admin("POST", "/-/reload")).status == 200
            assert seen == {"/pings/early": 1}
            assert (await proxy.get("/pings/late")).status == 200
            assert (await early).status == 200
            log = {record["path"]: waited(record) for record in await proxy.logged(2)}
            assert log == {"/pings/late": [2, 2, 4, 6], "/pings/early": [400, 400]}
