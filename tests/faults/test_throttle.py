"""Faults that a throttle must bear: callers that leave, bursts, and a loop that stood still."""

import asyncio
import signal
import time
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from tests.pipeline.throttle.timed_sends import PROGRAM, read_sends
from tests.support import (
    RawClient,
    ScriptedUpstream,
    one_route,
    request,
    running,
    subprocess_proxy,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.leftovers import nothing_left
from tests.support.throttles import (
    ManualAnswers,
    at_once,
    decisions,
    in_queue,
    join_queue,
    most_within,
)

# Fault 26: clients reset in the queue.


async def test_clients_that_reset_in_queue_are_never_sent_and_their_slots_are_free() -> None:
    manual = ManualAnswers()
    route = "throttle: {concurrency: 2, max_queue: 40}"
    async with (
        ScriptedUpstream(manual) as upstream,
        running(one_route(upstream, route)) as proxy,
        AsyncExitStack() as stack,
    ):

        async def enter() -> RawClient:
            return await stack.enter_async_context(proxy.client())

        under_way = [await enter() for _ in range(2)]
        for client in under_way:
            await client.send(request("GET", "/under-way"))
        await upstream.seen(2)
        for _ in range(3):
            leaving = [await enter() for _ in range(40)]
            for client in leaving:
                await join_queue(proxy, client, request("POST", "/leaving", body=b"order"))
            assert (await proxy.get("/too-many")).status == 429
            for client in leaving:
                client.wire.reset()
            await in_queue(proxy, 0)
        staying = await enter()
        await join_queue(proxy, staying, request("GET", "/staying"))
        manual.let_through(3)
        for client in (*under_way, staying):
            assert (await client.response()).status == 200
        targets = [seen.target for seen in upstream.requests]
        assert targets == ["/under-way", "/under-way", "/staying"]
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_client_disconnects_total", phase="queue") == 120
        assert metrics.total("holdfast_requests_total", code="499") == 120
        await nothing_left(proxy)


# Fault 28: a burst over the rate.


@virtual_time
async def test_a_burst_is_held_and_the_surplus_told_and_other_routes_do_not_notice() -> None:
    async with ScriptedUpstream() as upstream:
        config = (
            f"upstreams: {{scripted: {upstream.url}}}\n"
            "routes:\n"
            "  - name: limited\n    match: /limited\n    upstream: scripted\n"
            "    throttle: {rate: 50/s, burst: 10, max_wait: 400ms}\n"
            "  - {name: other, match: /**, upstream: scripted}\n"
        )
        clock = FakeClock()
        async with running(config, clock=clock) as proxy:
            clock.stop()  # all come in one moment
            burst = asyncio.create_task(at_once(proxy, 150, "/limited"))
            # Ten at once, and what the rate, less a little, gives within 400 ms.
            await in_queue(proxy, 19, name="limited")
            async with proxy.client() as client:
                # Nor do those in the queue move: so nobody here waits for their turn.
                for _ in range(20):
                    assert (await client.get("/other")).status == 200
                clock.go_on()
                while not burst.done():
                    assert (await client.get("/other")).status == 200
                    await asyncio.sleep(0.001)
            got = await burst
            served = [response for response in got if response.status == 200]
            # A loop that is late saves nothing up for them: the last may hear so after all.
            assert 20 <= len(served) <= 29
            refused = [response for response in got if response.status == 429]
            assert len(served) + len(refused) == 150
            assert {response.get("Retry-After") for response in refused} == {"1"}
            assert {response.problem["cause"] for response in refused} == {"max_wait"}
            times = [seen.at for seen in upstream.requests if seen.target == "/limited"]
            assert len(times) == len(served)
            for window in (0.05, 0.1, 0.2):
                assert most_within(times, window) <= 10 + 50 * window + 3
            assert await decisions(proxy, name="limited") == {
                "passed": 10,
                "delayed": len(served) - 10,
                "refused": len(refused),
            }


# Fault 48: the event loop stands still.

RATE, BURST = 50, 5
LIMITED = f"throttle: {{rate: {RATE}/s, burst: {BURST}}}"
STILL = 0.5
"""Seconds: permits for 25 calls would come together, if anybody saved them up."""


def assert_no_burst(times: list[float], served: int) -> None:
    assert len(times) == served
    for window in (0.02, 0.05, 0.1):
        # A few more, because who counts may be late.
        assert most_within(times, window) <= BURST + RATE * window + 3, window


@pytest.mark.alone
async def test_a_loop_that_stood_still_lets_no_more_than_a_burst_out_afterwards() -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, LIMITED), clock=clock) as proxy,
    ):
        clock.stop()  # all come in one moment
        waiting = asyncio.create_task(at_once(proxy, 40))
        await in_queue(proxy, 40 - BURST)
        asyncio.get_running_loop().call_soon(time.sleep, STILL)
        clock.go_on()
        assert {got.status for got in await waiting} == {200}
        assert_no_burst([seen.at for seen in upstream.requests], 40)


@pytest.mark.alone
@pytest.mark.parametrize("limit", [LIMITED, "throttle: {rate: 10/200ms, algorithm: window}"])
async def test_nor_does_a_process_that_was_stopped_for_a_while(limit: str, tmp_path: Path) -> None:
    file = tmp_path / "sends"
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream, limit), program=(PROGRAM, str(file))) as proxy,
    ):
        waiting = asyncio.create_task(at_once(proxy, 40))
        # Two whole windows: of ten that go out together, some may have their permit but not yet
        # be sent when the process is stopped, and nobody can call these back.
        await upstream.seen(20 if "window" in limit else 12)
        proxy.signal(signal.SIGSTOP)
        await asyncio.sleep(STILL)
        proxy.signal(signal.SIGCONT)
        assert {got.status for got in await waiting} == {200}
    # By the moments that the proxy counted: how late it sends them, and they are read, is another
    # matter.
    times = [send.counted for send in read_sends(file)]
    assert max(later - earlier for earlier, later in pairwise(times)) > 0.9 * STILL
    if "window" in limit:
        assert len(times) == 40
        assert most_within(times, 0.2) == 10
    else:
        assert_no_burst(times, 40)
