"""What a throttle of a running proxy is about: who waits there, and what it decided."""

import asyncio
from typing import Any

from tests.support.client import RawClient, request
from tests.support.messages import Response
from tests.support.proxies import RunningProxy, ServedBy
from tests.support.upstream import Visit, ok
from tests.support.virtual import in_virtual_time, now
from tests.support.waiting import PATIENCE


def throttle(proxy: RunningProxy, scope: str = "route", name: str = "all") -> dict[str, Any]:
    """What ``/status`` tells of the throttle of one ``route`` or ``upstream``."""
    status: Any = proxy.status()
    shown: dict[str, Any] = status[f"{scope}s"][name]["throttle"]
    return shown


async def in_queue(
    proxy: RunningProxy, count: int, scope: str = "route", name: str = "all"
) -> None:
    """Wait until *count* are in a queue that does not move meanwhile.

    Looks with every turn of the loop that we share with the proxy: crowds join one by one.
    In virtual time a millisecond passes when nothing has changed for many turns.
    """
    end, turns = now() + PATIENCE, 0
    while (waiting := throttle(proxy, scope, name)["waiting"]) != count:
        assert now() < end, f"{waiting} are in the queue, and not {count}"
        turns += 1
        await asyncio.sleep(0.001 if in_virtual_time() and turns % 100 == 0 else 0)


async def join_queue(proxy: RunningProxy, client: RawClient, raw: bytes = b"") -> None:
    """Send a request of *client*, and see it join those in the queue of the route ``all``."""
    before = throttle(proxy)["waiting"]
    await client.send(raw or request("GET", "/waiting"))
    await in_queue(proxy, before + 1)


async def decisions(proxy: ServedBy, scope: str = "route", name: str = "all") -> dict[str, int]:
    """How often the throttle of one route or upstream decided what; what never happened is out."""
    metrics = await proxy.metrics()
    counts = {
        decision: metrics.total(
            "holdfast_throttle_decisions_total", scope=scope, name=name, decision=decision
        )
        for decision in ("passed", "delayed", "refused")
    }
    return {decision: int(count) for decision, count in counts.items() if count}


async def statuses(proxy: ServedBy, count: int, target: str = "/", *fields: str) -> list[int]:
    """What *count* requests get, one after the other."""
    async with proxy.client() as client:
        return [(await client.get(target, *fields)).status for _ in range(count)]


async def at_once(proxy: ServedBy, count: int, target: str = "/") -> list[Response]:
    """What *count* callers get who come together."""
    return await asyncio.gather(*(proxy.get(target) for _ in range(count)))


class ManualAnswers:
    """A behaviour that answers once the test says so: as *given*, or with its request's path."""

    def __init__(self, given: bytes = b"") -> None:
        self._given = given
        self._open = asyncio.Semaphore(0)

    def let_through(self, count: int = 1) -> None:
        for _ in range(count):
            self._open.release()

    async def __call__(self, visit: Visit) -> None:
        await visit.read_body()
        await self._open.acquire()
        await visit.send(self._given or ok(visit.request.target.encode()))


def most_within(times: list[float], seconds: float) -> int:
    """How many of *times* fall into the fullest window of that length."""
    times = sorted(times)
    most = first = 0
    for last, moment in enumerate(times):
        while moment - times[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
