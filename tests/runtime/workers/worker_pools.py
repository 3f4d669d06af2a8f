"""A proxy with several workers, and what a test wants to know of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import PATIENCE, ProxyProcess, RawClient, WireEnded, eventually, subprocess_proxy


@dataclass(frozen=True, slots=True)
class Seen:
    """A worker as ``/status`` shows it."""

    number: int
    pid: int
    state: str
    connections: int


class RunningPool:
    """A running supervisor and its workers."""

    def __init__(self, proxy: ProxyProcess) -> None:
        self.proxy = proxy

    async def status(self) -> dict[str, Any]:
        response = await self.proxy.admin("GET", "/status")
        assert response.status == 200
        found: dict[str, Any] = json.loads(response.body)
        return found

    async def workers(self) -> list[Seen]:
        return [
            Seen(shown["number"], shown["pid"], shown["state"], shown["connections"])
            for shown in (await self.status())["workers"]
        ]

    async def pids(self) -> list[int]:
        return [worker.pid for worker in await self.workers()]

    async def until(self, *states: str, but: Iterable[int] = ()) -> list[Seen]:
        """The workers, once they are in these *states* and none of the processes *but* is left."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await self.workers()
                if tuple(worker.state for worker in found) == states and not any(
                    worker.pid in but for worker in found
                ):
                    return found
                await asyncio.sleep(0.01)

    async def until_connected(self, *counts: int, in_any_order: bool = False) -> None:
        """Wait until the workers have as many connections."""
        order = sorted if in_any_order else list
        async with asyncio.timeout(PATIENCE):
            while order(worker.connections for worker in await self.workers()) != [*counts]:  # noqa: ASYNC110 - it is far away
                await asyncio.sleep(0.005)

    def says(self, text: str) -> bool:
        """Whether its log has this."""
        return text in self.proxy.errors


@asynccontextmanager
async def pool(config: str, workers: int = 2, *arguments: str) -> AsyncIterator[RunningPool]:
    """A proxy that runs with as many *workers*; nobody is left at the end."""
    async with subprocess_proxy(config, None, "--workers", str(workers), *arguments) as proxy:
        running = RunningPool(proxy)
        pids = await running.pids()
        assert len(pids) == workers
        yield running
        if proxy.process.returncode is None:
            pids += await running.pids()
            proxy.process.terminate()
            await proxy.exit_status()
        assert "Traceback" not in proxy.errors
        await ended(pids)


async def ended(pids: Iterable[int]) -> None:
    """Wait until none of these processes is there."""
    waited_for = list(pids)
    await eventually(lambda: not any(map(is_alive, waited_for)), what="the end of all workers")


def is_alive(pid: int) -> bool:
    """Whether the process runs: one that has ended and was not buried does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] != "Z"


def children_of(pid: int) -> list[str]:
    """The processes that a process has started."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def open_files(pid: int) -> int:
    """How many descriptors a process has."""
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


async def caller(client: RawClient, stop: asyncio.Event) -> tuple[int, bool]:
    """Send one request after the other: how many were answered well, and whether it was cut off."""
    answered = 0
    try:
        while not stop.is_set():
            response = await client.get()
            assert response.status == 200
            answered += 1
    except (WireEnded, ConnectionError):
        return answered, True
    return answered, False
