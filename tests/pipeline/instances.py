"""Several proxies that share one store, and callers that keep all of them busy."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from tests.pipeline.throttle.timed_sends import PROGRAM
from tests.support import PATIENCE, ProxyProcess, ScriptedUpstream, one_route, subprocess_proxy
from tests.support.proxies import ServedBy
from tests.support.redis_server import PATIENT, store_line
from tests.support.wire import WireEnded
from tests.support.witness import Stopwatch


def sharing(
    upstream: ScriptedUpstream,
    port: int,
    route: str = "",
    *,
    options: str = "",
    store: str = PATIENT,
) -> str:
    """A file with one route, and the store at *port*; *store* has more of its keys."""
    return one_route(upstream, route, options=options, top=store_line(port, store))


@asynccontextmanager
async def instances(
    config: str, count: int, sends: Path | None = None
) -> AsyncIterator[list[ProxyProcess]]:
    """So many proxies of the same configuration, each in a process of its own.

    They write what they send into the file *sends*, to be read by ``timed_sends``.
    """
    program = ("proxy",) if sends is None else (PROGRAM, str(sends))
    async with AsyncExitStack() as stack:
        async with asyncio.TaskGroup() as group:
            starting = [
                group.create_task(
                    stack.enter_async_context(subprocess_proxy(config, program=program))
                )
                for _ in range(count)
            ]
        yield [task.result() for task in starting]


async def store_of(proxy: ServedBy) -> dict[str, Any]:
    """What ``/status`` tells of the store."""
    answer = await proxy.admin("GET", "/status")
    told: dict[str, Any] = json.loads(answer.body)["store"]
    return told


async def everybody_sees_it(proxies: Sequence[ServedBy], state: str) -> None:
    """Wait until the store is ``up``, or ``down``, for all of them."""
    async with asyncio.timeout(PATIENCE):
        for proxy in proxies:
            while (await store_of(proxy))["state"] != state:  # noqa: ASYNC110 - it is far away
                await asyncio.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a caller got."""

    status: int
    began: float
    took: float
    """Seconds in which anybody got to run."""
    by: int
    """Which instance it was, counted from 0."""


class Crowd:
    """Callers in a closed loop: each makes a call, and the next when that is over.

    They are spread evenly. Who loses its instance goes on with the next one.
    """

    def __init__(self, proxies: Sequence[ProxyProcess], target: str) -> None:
        self._proxies = proxies
        self._pids = [proxy.process.pid for proxy in proxies]
        self._target = target
        self._is_over = False
        self.answers: list[Answer] = []
        self.lost = 0
        """Calls, or attempts to make one, that ended without an answer."""

    @property
    def statuses(self) -> set[int]:
        return {answer.status for answer in self.answers}

    def p99(self) -> float:
        """Seconds in which 99 of 100 calls were answered."""
        return quantiles([answer.took for answer in self.answers], n=100)[98]

    async def call_on_and_on(self, by: int) -> None:
        """What one caller does."""
        while not self._is_over:
            by %= len(self._proxies)
            try:
                async with self._proxies[by].client() as client:
                    while not self._is_over:
                        began, watch = time.monotonic(), Stopwatch(*self._pids)
                        got = await client.get(self._target)
                        self.answers.append(Answer(got.status, began, watch.seconds, by))
            except (OSError, WireEnded):
                self.lost += 1
                by += 1

    def end(self) -> None:
        """What is under way is the last."""
        self._is_over = True


@asynccontextmanager
async def crowd(
    proxies: Sequence[ProxyProcess], callers: int, target: str = "/"
) -> AsyncIterator[Crowd]:
    """So many callers, for as long as this lasts; afterwards all of them have got their answer."""
    calling = Crowd(proxies, target)
    async with asyncio.TaskGroup() as group:
        for number in range(callers):
            group.create_task(calling.call_on_and_on(number))
        try:
            yield calling
        finally:
            calling.end()
