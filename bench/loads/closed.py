"""Closed loop, by wrk: each connection asks again as soon as it has its answer."""

import json
import secrets
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from bench import tools
from bench.loads import Figures, Plan
from bench.processes import MIB, Running

SCRIPT = Path(__file__).parent / "wrk.lua"
SPARE = 5
"""Seconds that wrk would run on for if nobody ended it."""


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """So many connections, and what each asks for."""

    connections: int = 64
    path: str = "/"
    post_bytes: int = 0
    """Size of the body to POST; 0 sends GET."""
    body_bytes: int = 0
    """Size of one body, either way, where the cost of a MiB is of interest."""
    pause: int = 0
    """Milliseconds between two requests of one connection; 0: as fast as it gets answers."""
    keyed: bool = False
    """Whether each request carries an idempotency key of its own."""
    stretch: float = 1.0
    """How many times longer than others it is measured, so that to connect weighs less."""
    may_fail: float = 0.0
    """Share of the requests that may get something else than success."""

    def warmed_up(self, proxy: Running, plan: Plan) -> "ClosedLoop":
        """One measurement that nobody looks at."""
        self.measure(proxy, plan)
        return self

    def measure(self, proxy: Running, plan: Plan) -> Figures:
        """What a request costs, how long it takes, how many there are in a second."""
        store = proxy.store
        store_before = store.cpu_seconds() if store else 0.0
        workers_before = proxy.children_cpu_seconds()
        before = proxy.cpu_seconds()
        counts = self._wrk(proxy, plan.seconds * self.stretch)
        spent = proxy.cpu_seconds() - before
        requests = counts["requests"]
        if not requests:
            raise tools.BenchFailed("no request was answered")
        if counts["failed"] > requests * self.may_fail:
            raise tools.BenchFailed(f"{counts['failed']} of {requests} requests failed")
        figures = {
            "cpu": spent / requests * 1e6,
            "p50": counts["p50"],
            "p99": counts["p99"],
            "per_second": requests / counts["microseconds"] * 1e6,
            "rss": proxy.resident(),
        }
        if self.body_bytes:
            figures["cpu_mib"] = figures["cpu"] * MIB / self.body_bytes
        if store:
            figures["store_cpu"] = (store.cpu_seconds() - store_before) / requests * 1e6
        if proxy.workers > 1:
            after = proxy.children_cpu_seconds()
            spent_each = [after[pid] - workers_before.get(pid, 0.0) for pid in after]
            figures["share"] = least_share(spent_each, proxy.workers)
        return figures

    def _wrk(self, proxy: Running, seconds: float) -> dict[str, int]:
        _, core = tools.cores()
        at_most = ceil(seconds) + SPARE
        keys = ("keys", f"{secrets.token_hex(8)}-") if self.keyed else ()
        command = tools.pinned(
            core,
            *(tools.program("wrk"), "--threads", "1", "--connections", str(self.connections)),
            *("--duration", f"{at_most}s", "--timeout", "10s", "--script", str(SCRIPT)),
            f"http://127.0.0.1:{proxy.port}{self.path}",
            *("--", str(self.post_bytes), str(self.pause), *keys),
        )
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                return _counts(process, seconds)
            finally:
                process.kill()


def _counts(process: subprocess.Popen[bytes], seconds: float) -> dict[str, int]:
    """What wrk counted in so many seconds. It takes whole ones only, but ends when told to."""
    assert process.stderr is not None  # noqa: S101 - for mypy: it was asked for
    if process.stderr.readline() != b"begun\n":
        raise tools.BenchFailed("wrk did not begin")
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    return parsed(output, at_most=seconds + SPARE / 2)


def parsed(output: bytes, at_most: float) -> dict[str, int]:
    """The line of JSON at the end of what wrk says.

    On a busy machine it may be told to end before it listens (and says nothing), or just before
    it sleeps (and does not hear it): neither is a measurement.
    """
    lines = output.splitlines()
    if not lines:
        raise tools.BenchFailed("wrk ended without a word")
    counts: dict[str, int] = json.loads(lines[-1])
    if counts["microseconds"] > at_most * 1e6:
        raise tools.BenchFailed("wrk did not end when it was told to")
    return counts


def least_share(spent: Sequence[float], workers: int) -> float:
    """The part of the least busy worker in what all of them spent.

    The workers are those children that spent most: there may be others that help.
    """
    busiest = sorted(spent, reverse=True)[:workers]
    total = sum(busiest)
    return busiest[-1] / total if len(busiest) == workers and total > 0 else 0.0
