"""Open loop: requests are sent at fixed times, by :mod:`bench.loads.pacer`."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from statistics import median

from bench import tools
from bench.loads import Figures, Plan
from bench.loads.closed import ClosedLoop
from bench.loads.pacer import CONNECTIONS
from bench.processes import ROOT, Running


@dataclass(frozen=True, slots=True)
class Paced:
    """A part of what the proxy can do at most, one request after the other at equal distances."""

    part: float
    loops: int = 5
    """How often to look what the proxy can do at most."""
    rate: float = 0.0
    """Requests per second; known once it was seen what the proxy can do."""

    def warmed_up(self, proxy: Running, plan: Plan) -> "Paced":
        """Find the rate: a part of what closed loops of as many connections bring.

        Of their median: the slowest is a matter of chance, and of what else the machine does.
        """
        loop = ClosedLoop(connections=CONNECTIONS).warmed_up(proxy, plan)
        loops = [loop.measure(proxy, plan) for _ in range(self.loops)]
        return replace(self, rate=self.part * median(found["per_second"] for found in loops))

    def measure(self, proxy: Running, plan: Plan) -> Figures:
        """Latency at that rate, and what a request costs then."""
        _, core = tools.cores()
        arguments = (str(proxy.port), str(self.rate), str(plan.seconds))
        command = tools.pinned(core, sys.executable, "-m", "bench.loads.pacer", *arguments)
        before = proxy.cpu_seconds()
        output = subprocess.run(
            command, stdout=subprocess.PIPE, check=True, timeout=plan.seconds + 30, cwd=ROOT
        )
        spent = proxy.cpu_seconds() - before
        found: dict[str, float] = json.loads(output.stdout)
        failed, requests = found.pop("failed"), found.pop("requests")
        if failed or not requests:
            raise tools.BenchFailed(f"{failed:.0f} requests failed at {self.rate:.0f} a second")
        return {**found, "cpu": spent / requests * 1e6, "rate": self.rate}
