"""``make bench``: what a request costs in Holdfast, and in Envoy and nginx beside it.

CPU comes from each process's own clock, latency from wrk. The proxy under test
has one core, wrk another. Pass arguments with ``make bench BENCH_ARGS="--quick"``.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench import tools
from bench.load import SCENARIOS, Scenario
from bench.peers import PROXIES
from bench.report import Finding, Startup, find, markdown
from bench.rounds import Plan, Series, all_running, run_rounds, start_times

RESULTS = Path(__file__).parent / "results" / "latest.json"

# The most that Holdfast may need, as a multiple of Envoy; both with a bare route.
BARS = {"get": 0.9, "post": 1.0, "large": 1.2, "single": 1.0}

START = "start"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Holdfast against Holdfast: what something costs that a route may have."""

    scenario: Scenario
    subject: str
    against: str
    bar: float
    """The most that it may cost, as a multiple."""


COMPARISONS = (
    Comparison(
        Scenario(
            "routes",
            "small GET, the last of 1,000 routes against the last of 10, CPU",
            connections=64,
            path="/service-last/items",
        ),
        "holdfast-1000-routes",
        "holdfast-10-routes",
        1.3,
    ),
    Comparison(
        Scenario("retry-get", "small GET, retries on against off, CPU", connections=64),
        "holdfast-retry",
        "holdfast",
        1.15,
    ),
    Comparison(
        Scenario(
            "retry-post", "POST 1 KiB, retries on against off, CPU", connections=64, post_bytes=1024
        ),
        "holdfast-retry",
        "holdfast",
        1.15,
    ),
    Comparison(
        Scenario("throttle-get", "small GET, a throttle on against off, CPU", connections=64),
        "holdfast-throttle",
        "holdfast",
        1.1,
    ),
    Comparison(
        Scenario(
            "redis-get",
            "small GET at 5,000 a second, a throttle in Redis against none, CPU",
            connections=64,
            pause=12,
        ),
        "holdfast-redis",
        "holdfast",
        1.3,
    ),
    Comparison(
        Scenario(
            "keyed-post",
            "POST 1 KiB with a new key each, heeded (in memory) against passed on, CPU",
            connections=64,
            post_bytes=1024,
            keyed=True,
        ),
        "holdfast-keys",
        "holdfast",
        1.5,
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep; 1 if a bar was missed or the figures cannot be trusted."""
    options = _parser().parse_args(arguments)
    plan = Plan(3, 1) if options.quick else Plan(options.rounds, options.seconds)
    try:
        tools.require_programs()
        results = _measure(options, plan)
    except tools.BenchFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    columns = list(dict.fromkeys((options.subject, options.peer, *options.beside)))
    print(_heading(plan))
    print(markdown(results.findings, columns, options.peer))
    for remark in results.remarks():
        print(f"\n{remark}")
    _keep(plan, results)
    faults = list(results.faults())
    for fault in faults:
        print(f"bench: {fault}", file=sys.stderr)
    # A short look is for the eye: three rounds of a second are too few to fail anybody.
    return 1 if faults and not options.quick else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="of every scenario (default: 7)")
    parser.add_argument("--seconds", type=int, default=2, help="per measurement (default: 2)")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 1 s; never fails")
    names = [*BARS, *(comparison.scenario.name for comparison in COMPARISONS), START]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="scenarios")
    parser.add_argument("--subject", choices=PROXIES, default="holdfast", help="what to judge")
    parser.add_argument("--peer", choices=PROXIES, default="envoy", help="what to hold it against")
    parser.add_argument(
        "--beside", nargs="*", choices=PROXIES, default=["nginx"], help="for reference"
    )
    return parser


@dataclass(slots=True)
class Results:
    """All that a run found out."""

    findings: list[Finding] = field(default_factory=list)
    samples: dict[str, Series] = field(default_factory=dict)
    """By name of the scenario."""
    comparisons: list[Finding] = field(default_factory=list)
    startup: Startup | None = None

    def remarks(self) -> Iterator[str]:
        """What does not fit into the table."""
        for comparison in self.comparisons:
            yield f"{comparison.title}: {comparison.ratio}"
        if self.startup is not None:
            yield str(self.startup)

    def faults(self) -> Iterator[str]:
        """What is wrong, one sentence each."""
        for finding in (*self.findings, *self.comparisons):
            yield from finding.faults()
        if self.startup is not None:
            yield from self.startup.faults()


def _measure(options: argparse.Namespace, plan: Plan) -> Results:
    results = Results()
    subject, peer = options.subject, options.peer
    if chosen := [scenario for scenario in SCENARIOS if scenario.name in options.only]:
        names = dict.fromkeys((subject, f"{subject}:twin", peer, *options.beside))
        with all_running(names) as proxies:
            for scenario in chosen:
                _announce(scenario.title)
                series = results.samples[scenario.name] = run_rounds(proxies, scenario, plan)
                bar = BARS[scenario.name]
                results.findings.append(find(scenario, series, subject, peer, bar))
    for comparison in COMPARISONS:
        scenario = comparison.scenario
        if scenario.name in options.only:
            _announce(scenario.title)
            with all_running((comparison.against, comparison.subject)) as proxies:
                series = results.samples[scenario.name] = run_rounds(proxies, scenario, plan)
            results.comparisons.append(
                find(scenario, series, comparison.subject, comparison.against, comparison.bar)
            )
    if START in options.only:
        _announce("start to ready")
        results.startup = Startup(start_times(subject, count=5), bar=1.0)
    return results


def _announce(title: str) -> None:
    print(f"measuring {title} ...", file=sys.stderr, flush=True)


def _heading(plan: Plan) -> str:
    return (
        f"Medians of {plan.rounds} interleaved rounds of {plan.seconds} s, on one core; ratios "
        f"within a round, with the lowest and the highest. Python {platform.python_version()}.\n"
    )


def _keep(plan: Plan, results: Results) -> None:
    """Write everything down, for whoever wants to look closer."""
    content = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "machine": platform.platform(),
        "plan": asdict(plan),
        "results": asdict(results),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
