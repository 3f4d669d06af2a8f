"""The truth under load: never more than the limit at the upstream, and hardly less.

The proxy runs in a process of its own, so that those who call and those who count do
not disturb it; both are kept as light as can be. With ``HOLDFAST_FUZZ=deep`` it takes
longer.

On a busy machine a call may be sent long after its permit was counted, and seen long after it was
sent, and the next ones on time: then two windows seem to meet, and no proxy can answer for that. So
no window of arrivals is judged, but what no delay can change: the moments that the proxy counted,
in every window; and from before the first call on, how many have arrived. Each of those had its
permit by then, and as there is always somebody in line, who gets one too many shows for good.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from tests.bounds.weighing import ANSWER
from tests.pipeline.throttle.timed_sends import PROGRAM, read_sends
from tests.support import (
    ProxyProcess,
    now,
    one_route,
    real_time,
    request,
    subprocess_proxy,
    virtual_time,
)
from tests.support.depth import DEEP
from tests.support.throttles import most_within
from tests.support.witness import Stopwatch, witness

pytestmark = virtual_time


SECONDS = 20.0 if DEEP else 5.0
CALLERS = 32
GET = request("GET", "/")


class Counting(asyncio.Protocol):
    """Notes when each request came, and answers."""

    def __init__(self, times: list[float]) -> None:
        self._times = times

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        count = data.count(b"\r\n\r\n")
        self._times += [now()] * count
        self._transport.write(ANSWER * count)


@asynccontextmanager
async def counting_upstream() -> AsyncIterator[tuple[str, list[float]]]:
    """The URL of an upstream, and when its requests came."""
    times: list[float] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Counting(times), "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}", times
    finally:
        server.close()


class Caller(asyncio.Protocol):
    """Sends the next request when the one before was answered."""

    def __init__(self, until: float, done: "asyncio.Future[None]") -> None:
        self._until = until
        self._done = done
        self.statuses: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(GET)

    def data_received(self, data: bytes) -> None:
        self.statuses.append(data[9:12])
        if now() < self._until:
            self._transport.write(GET)
        else:
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        self._done.set_result(None)


async def call_for(proxy: ProxyProcess, seconds: float) -> list[bytes]:
    """The statuses that all callers got, in a closed loop for so long."""
    loop = asyncio.get_running_loop()
    until = now() + seconds
    callers = []
    for _ in range(CALLERS):
        done = loop.create_future()
        caller = Caller(until, done)
        await loop.create_connection(lambda caller=caller: caller, "127.0.0.1", proxy.port)  # type: ignore[misc]  # mypy cannot infer a lambda's default
        callers.append((caller, done))
    await asyncio.wait([done for _, done in callers])
    return [status for caller, _ in callers for status in caller.statuses]


@pytest.mark.parametrize(
    ("times", "most"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([5.0, 1.0, 3.0], 1, id="one at a time"),
        pytest.param([1.0, 2.0], 1, id="a window is over when the next begins"),
        pytest.param([0.9, 1.0, 1.1, 1.8, 2.5], 4, id="the fullest begins anywhere"),
    ],
)
def test_the_counting_here_is_right(times: list[float], most: int) -> None:
    assert most_within(times, 1.0) == most


@real_time  # a process of its own, under load
@pytest.mark.alone
@pytest.mark.timeout(60)
async def test_a_rate_is_never_exceeded_and_nearly_all_of_it_is_used(tmp_path: Path) -> None:
    rate, burst = 200, 20
    route = f"throttle: {{rate: {rate}/s, burst: {burst}}}"
    file = tmp_path / "sends"
    async with (
        counting_upstream() as (url, times),
        subprocess_proxy(
            one_route(url, route, top="access_log: none"), program=(PROGRAM, str(file))
        ) as proxy,
        witness() as seen,
    ):
        began, watch = now(), Stopwatch(proxy.process.pid)
        statuses = await call_for(proxy, SECONDS)
        lasted = watch.seconds
        assert set(statuses) == {b"200"}
        counted = [send.counted for send in read_sends(file)]
        assert len(counted) == len(times) == len(statuses)
        for window in (1.0, 0.5, 0.25, 0.1):
            assert most_within(counted, window) <= rate * window + burst, window
        for arrived, moment in enumerate(times, start=1):
            assert arrived <= rate * (moment - began) + burst
        first = min(times)
        used = sum(moment - first <= SECONDS for moment in times)
        # Of the time in which anybody got to run.
        stalled = seen.stalled(first, first + SECONDS)
        got_to_run = min(lasted, SECONDS - stalled)
        assert used >= 0.95 * rate * got_to_run, f"in {got_to_run:.3f} s"
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_throttle_queue_length") == 0


@real_time  # a process of its own, under load
@pytest.mark.alone
@pytest.mark.timeout(60)
async def test_a_window_holds_exactly(tmp_path: Path) -> None:
    count, period = 40, 0.25
    route = f"throttle: {{rate: {count}/250ms, algorithm: window}}"
    seconds = SECONDS / 2
    file = tmp_path / "sends"
    async with (
        counting_upstream() as (url, times),
        subprocess_proxy(one_route(url, route), program=(PROGRAM, str(file))) as proxy,
        witness() as seen,
    ):
        began, watch = now(), Stopwatch(proxy.process.pid)
        statuses = await call_for(proxy, seconds)
        lasted = watch.seconds
        assert set(statuses) == {b"200"}
        counted = [send.counted for send in read_sends(file)]
        assert len(counted) == len(times) == len(statuses)
        assert most_within(counted, period) == count
        for arrived, moment in enumerate(times, start=1):
            assert arrived <= count * ((moment - began) // period + 1)
        stalled = seen.stalled(min(times), max(times))
        got_to_run = min(lasted, seconds - stalled)
        assert len(times) >= 0.9 * count * got_to_run / period, f"in {got_to_run:.3f} s"
