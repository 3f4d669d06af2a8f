"""Load by wrk, and what one run of it cost the proxy."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench import tools
from bench.peers import Running

SCRIPT = Path(__file__).parent / "wrk.lua"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of traffic."""

    name: str
    title: str
    connections: int
    path: str = "/"
    post_bytes: int = 0
    """Size of the body to POST; 0 sends GET."""
    pause: int = 0
    """Milliseconds between two requests of one connection; 0: as fast as it gets answers."""
    keyed: bool = False
    """Whether each request carries an idempotency key of its own."""
    metric: Literal["cpu", "p50"] = "cpu"
    """Which figure of a :class:`Sample` counts."""
    steady: bool = True
    """Whether two runs of one build agree: not so for large bodies or a single caller."""


SCENARIOS = (
    Scenario("get", "small GET, CPU", connections=64),
    Scenario("post", "POST 1 KiB, CPU", connections=64, post_bytes=1024),
    Scenario("large", "1 MiB response, CPU", connections=8, path="/1MiB", steady=False),
    Scenario("single", "one caller, p50", connections=1, metric="p50", steady=False),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of one proxy."""

    cpu: float
    """Microseconds of CPU per request."""
    p50: float
    """Microseconds that half of the requests took at most."""
    p99: float
    per_second: float

    def figure(self, scenario: Scenario) -> float:
        """The one that counts in *scenario*, in microseconds."""
        return self.cpu if scenario.metric == "cpu" else self.p50


def measure(proxy: Running, scenario: Scenario, seconds: int, core: int) -> Sample:
    """Put *proxy* under load for that long."""
    before = proxy.cpu_seconds()
    result = _wrk(proxy, scenario, seconds, core)
    spent = proxy.cpu_seconds() - before
    if result["failed"] or not result["requests"]:
        raise tools.BenchFailed(
            f"{proxy.name}, {scenario.title}: {result['failed']} of {result['requests']} failed"
        )
    return Sample(
        cpu=spent / result["requests"] * 1e6,
        p50=result["p50"],
        p99=result["p99"],
        per_second=result["requests"] / seconds,
    )


def _wrk(proxy: Running, scenario: Scenario, seconds: int, core: int) -> dict[str, int]:
    command = tools.pinned(
        core,
        *(tools.program("wrk"), "--threads", "1", "--connections", str(scenario.connections)),
        *("--duration", f"{seconds}s", "--timeout", "10s", "--script", str(SCRIPT)),
        f"http://127.0.0.1:{proxy.port}{scenario.path}",
        *("--", str(scenario.post_bytes), str(scenario.pause)),
        "keys" if scenario.keyed else "",
    )
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=seconds + 60)
    counts: dict[str, int] = json.loads(output.stdout.splitlines()[-1])
    return counts
