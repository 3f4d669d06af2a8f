"""The phases: accept while nothing is delivered, deliver a backlog, both together, and faults."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import yaml

from bench import tools
from bench.hand_off.traffic import Accepted, CountingUpstream, get, hand_off
from bench.processes import Running, free_port, running

_BODY = 1024
_PATIENCE = 300.0
_CONNECTIONS = 64
_names = count(1)

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    requests: int
    single: int
    backlog: int
    few: int
    """Deliveries whose CPU is compared, out of a large backlog and out of a small one."""


FULL = Size(requests=20_000, single=500, backlog=100_000, few=1000)
QUICK = Size(requests=1500, single=100, backlog=5000, few=300)


def names(number: int) -> list[str]:
    """Ids that no other request of this run has."""
    return [f"b{next(_names)}" for _ in range(number)]


def fsyncs_per_second(folder: Path) -> float:
    """How often a page that is appended, as to a log, is on disk per second."""
    file = os.open(folder / "fsync", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    times, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < 1.0:
        os.write(file, b"x" * 4096)
        os.fdatasync(file)
        times += 1
    took = time.perf_counter() - begun
    os.close(file)
    return times / took


@contextmanager
def holdfast(folder: Path, upstream_port: int, live_port: int | None = None) -> Iterator[Running]:
    """A Holdfast that hands off to the upstream, with its state in *folder*.

    ``/live`` goes to the upstream at *live_port*, if that is another one.
    """
    port = free_port()
    later = {
        "match": "POST /orders",
        "upstream": "api",
        "dead_letter": True,
        "hand_off": {"concurrency": _CONNECTIONS},
    }
    content = {
        "listen": f"127.0.0.1:{port}",
        "admin": False,
        "access_log": "none",
        "state_dir": str(folder / "state"),
        "deliveries": {"entries": 1_000_000, "bytes": "16GiB"},
        "upstreams": {
            "api": {
                "urls": [f"http://127.0.0.1:{upstream_port}"],
                "honours_key": {"for": "30d"},
            },
            "live": {"urls": [f"http://127.0.0.1:{live_port or upstream_port}"]},
        },
        "routes": [
            later,
            {"match": "/live", "upstream": "live"},
            {"match": "/**", "upstream": "api"},
        ],
    }
    file = folder / f"{port}.yaml"
    file.write_text(yaml.safe_dump(content))
    command = [sys.executable, "-m", "proxy", "run", "-c", str(file)]
    with running("holdfast", port, tools.pinned(tools.cores()[0], *command), folder) as process:
        yield process


@contextmanager
def anchor(folder: Path) -> Iterator[Running]:
    """The handler that puts requests into huey's queue."""
    port = free_port()
    command = [
        sys.executable, "-m", "bench.hand_off.anchor", "serve", str(port), str(folder / "huey.db"),
    ]  # fmt: skip
    with running("anchor", port, tools.pinned(tools.cores()[0], *command), folder) as process:
        yield process


@contextmanager
def anchor_worker(folder: Path, upstream_port: int) -> Iterator[Running]:
    """The worker that delivers what is in huey's queue."""
    command = [
        sys.executable, "-m", "bench.hand_off.anchor", "work", str(folder / "huey.db"),
        f"http://127.0.0.1:{upstream_port}",
    ]  # fmt: skip
    pinned = tools.pinned(tools.cores()[0], *command)
    with running("worker", free_port(), pinned, folder, ready=lambda _: True) as process:
        yield process


async def accept(process: Running, size: Size, fsyncs: float) -> tuple[Figures, Accepted]:
    """Accept while nothing is delivered: rate, CPU of a 202, and how long one caller waits."""
    await hand_off(process.port, names(50), 8, _BODY)
    before = process.cpu_seconds()
    seen = await hand_off(process.port, names(size.requests), _CONNECTIONS, _BODY)
    cpu = process.cpu_seconds() - before
    alone = await hand_off(process.port, names(size.single), 1, _BODY)
    rate = len(seen.ids) / seen.seconds
    figures = {
        "accepted_per_second": rate,
        "accepted_per_fsync": rate / fsyncs,
        "cpu_us_per_202": cpu / len(seen.ids) * 1e6,
        "single_p50_in_fsyncs": alone.p50 * fsyncs,
    }
    return figures, seen


async def deliver(process: Running, upstream: CountingUpstream, expected: int) -> float:
    """Wait for a backlog to be delivered; return the CPU of each, in µs. Raises if some are not."""
    before = process.cpu_seconds()
    had = len(upstream.arrived)
    if not await upstream.has(expected, _PATIENCE):
        raise tools.BenchFailed(f"{len(upstream.arrived)} of {expected} were delivered")
    return (process.cpu_seconds() - before) / max(expected - had, 1) * 1e6


async def lag(process: Running, upstream: CountingUpstream, times: int) -> Figures:
    """Hand off one at a time, idle in between: seconds from 202 to its arrival."""
    begun = {}
    seen = await hand_off(process.port, names(times), 1, _BODY, pause=0.02)
    await upstream.has(len(upstream.arrived), 1.0)
    await asyncio.sleep(0.2)
    for name in seen.ids:
        begun[name] = max(upstream.arrived[name][0] - seen.at[name], 0.0)
    late = sorted(begun.values())
    return {
        "lag_p50_ms": late[len(late) // 2] * 1e3,
        "lag_p99_ms": late[len(late) * 99 // 100] * 1e3,
    }


async def measure_holdfast(folder: Path, size: Size, fsyncs: float) -> Figures:
    """All phases of Holdfast."""
    upstream, port = CountingUpstream(), free_port()
    figures: Figures = {}
    with holdfast(folder, port) as process:
        empty = process.resident()
        figures, _ = await accept(process, size, fsyncs)
        backlog = 50 + size.requests + size.single
        await upstream.start(port)
        await get(process.port, "/open", 1)  # a live success opens the line
        figures["cpu_us_per_delivery"] = await deliver(process, upstream, backlog)
        both = await hand_off(process.port, names(size.requests // 2), _CONNECTIONS, _BODY)
        await deliver(process, upstream, backlog + len(both.ids))
        figures |= await lag(process, upstream, size.single)
        total = backlog + len(both.ids) + size.single
        if len(upstream.arrived) != total:
            raise tools.BenchFailed("void: what was accepted is not what was delivered")
        figures["rss_mib"] = process.resident()
        figures["rss_mib_empty"] = empty
        await upstream.stop()
    return figures


async def measure_anchor(folder: Path, size: Size, fsyncs: float) -> Figures:
    """The same of the anchor: huey has one queue for all."""
    upstream, port = CountingUpstream(), free_port()
    few = Size(max(size.requests // 5, 200), size.single, 0, 0)
    with anchor(folder) as process:
        figures, _ = await accept(process, few, fsyncs)
    await upstream.start(port)
    backlog = 50 + few.requests + few.single
    with anchor_worker(folder, port) as worker:
        figures["cpu_us_per_delivery"] = await deliver(worker, upstream, backlog)
    await upstream.stop()
    return figures


async def measure_backlog(folder: Path, size: Size) -> Figures:
    """A large backlog: memory, live GETs beside it, and the CPU of a delivery out of it."""
    body, upstream, port = 4096, CountingUpstream(), free_port()
    live, live_port = CountingUpstream(), free_port()
    await live.start(live_port)
    with holdfast(folder, port, live_port) as process:
        await get(process.port, "/live", 200)
        empty, alone = process.resident(), await _get_cpu(process)
        await hand_off(process.port, names(size.few), _CONNECTIONS, body)
        await upstream.start(port)
        await get(process.port, "/open", 1)
        small = await deliver(process, upstream, size.few)
        await upstream.stop()
        await hand_off(process.port, names(size.backlog), _CONNECTIONS, body)
        full, idle = process.resident(), await _idle_cpu(process)
        beside = await _get_cpu(process)
        await upstream.start(port)
        before = len(upstream.arrived)
        await get(process.port, "/open", 1)
        large = await deliver(process, upstream, before + size.few)
        await upstream.stop()
    await live.stop()
    return {
        "backlog": size.backlog,
        "rss_mib_over_empty": full - empty,
        "take_cpu_ratio": large / small,
        "live_get_cpu_ratio": beside / alone,
        "idle_cpu_percent": idle * 100,
    }


_GETS = 3000
_REST = 3.0
"""Seconds: what was begun with the last request is done by then."""


async def _get_cpu(process: Running) -> float:
    """Seconds of CPU of one live GET."""
    before = process.cpu_seconds()
    await get(process.port, "/live", _GETS)
    return (process.cpu_seconds() - before) / _GETS


async def _idle_cpu(process: Running) -> float:
    """Seconds of CPU per second without any request, while the upstream is away."""
    await asyncio.sleep(_REST)
    before = process.cpu_seconds()
    await asyncio.sleep(_REST)
    return (process.cpu_seconds() - before) / _REST


async def measure_takeover(folder: Path, size: Size) -> Figures:
    """Two processes share the file; the one that delivers is killed: seconds to the next send."""
    upstream, port = CountingUpstream(), free_port()
    await upstream.start(port)
    with holdfast(folder, port) as first, holdfast(folder, port) as second:
        await hand_off(second.port, names(20), 1, _BODY)
        await upstream.has(20, 10.0)
        os.kill(first.pid, signal.SIGKILL)
        killed = time.perf_counter()
        seen = await hand_off(second.port, names(size.few), 4, _BODY)
        if not await upstream.has(20 + len(seen.ids), _PATIENCE):
            raise tools.BenchFailed("nobody took over")
        after = min(when for times in upstream.arrived.values() for when in times if when > killed)
    await upstream.stop()
    return {"takeover_seconds": after - killed}
