"""``make bench``: what a request costs in Holdfast, and in its peers beside it.

CPU comes from each process's own clock, latency from wrk or from the open-loop tool of
:mod:`bench.loads.pacer`. The proxy under test has one core, the load another. Pass
arguments with ``make bench BENCH_ARGS="--only get post --rounds 21"``.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path
from types import FrameType

from bench import tools
from bench.bars import BARS
from bench.case import Case
from bench.cases import CASES
from bench.loads import Plan
from bench.proxies import PROXIES
from bench.report import markdown
from bench.results import FOLDER, Results, keep, text_of
from bench.rounds import all_running, fresh, rounds_of, run_rounds, shared
from bench.stage import Stage, standing

FULL = Plan(rounds=13, seconds=0.35)
QUICK = Plan(rounds=1, seconds=0.1, idle_connections=1000, stall_seconds=0.3, stall_mib=64)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep; 1 if a bar was missed or could not be judged."""
    options = _parser().parse_args(arguments)
    plan = QUICK if options.quick else Plan(options.rounds, options.seconds)
    cases = [case for case in CASES if case.name in options.only]
    signal.signal(signal.SIGTERM, _stop)
    try:
        tools.require_programs()
        tools.allow_many_descriptors()
        results = Results(plan)
        measure(cases, results, options.out or _name(options))
    except tools.BenchFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    print(markdown(results.content()))
    faults = _faults(results, cases)
    for fault in faults:
        print(f"bench: {fault}", file=sys.stderr)
    # A short look is for the eye: it is too short to fail anybody.
    return 1 if faults and not options.quick else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=main.__doc__)
    rounds, seconds = FULL.rounds, FULL.seconds
    parser.add_argument("--rounds", type=int, default=rounds, help=f"of every case ({rounds})")
    parser.add_argument(
        "--seconds", type=float, default=seconds, help=f"per measurement ({seconds})"
    )
    parser.add_argument("--quick", action="store_true", help="under two minutes; never fails")
    names = [case.name for case in CASES]
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=names,
        metavar="CASE",
        help=f"some of: {' '.join(names)}",
    )
    parser.add_argument("--out", type=Path, help="where to keep the JSON; the tables go beside it")
    return parser


def _name(options: argparse.Namespace) -> Path:
    """A full run is not overwritten by a look at a part of it."""
    is_full = len(options.only) == len(CASES)
    return FOLDER / f"{'quick' if options.quick else 'latest' if is_full else 'part'}.json"


def _stop(_signal: int, _frame: FrameType | None) -> None:
    """As Ctrl-C: what was started is ended, what was measured is kept."""
    raise KeyboardInterrupt


def measure(cases: Sequence[Case], results: Results, path: Path) -> None:
    """Case by case. What was measured is kept, whatever comes after it."""
    upstreams = {case.upstream for case in cases}
    proxies = {one.proxy for case in cases for one in case.contenders}
    with_store = any(PROXIES[proxy].uses_store for proxy in proxies)
    try:
        with standing(upstreams, with_store=with_store) as stage:
            # Starting the proxies takes seconds: cases in a row share them, if they can.
            for _, group in groupby(cases, key=lambda case: (case.fresh, case.upstream)):
                _measure_group(list(group), stage, results, path)
        results.complete = True
    except KeyboardInterrupt:
        print("bench: broken off", file=sys.stderr)
    _keep(results, path)
    print(f"bench: kept in {path}", file=sys.stderr)


def _measure_group(cases: Sequence[Case], stage: Stage, results: Results, path: Path) -> None:
    with nullcontext() if cases[0].fresh else all_running(cases, stage) as processes:
        for case in cases:
            _announce(case, results)
            source = fresh(case, stage) if processes is None else shared(processes)
            results.cases[case.name] = run_rounds(case, source, results.plan)
            _keep(results, path)


def _announce(case: Case, results: Results) -> None:
    contenders, rounds = len(case.contenders), rounds_of(case, results.plan)
    print(
        f"{case.name}: {case.title} ({contenders} in {rounds} rounds) ...",
        file=sys.stderr,
        flush=True,
    )


def _keep(results: Results, path: Path) -> None:
    content = results.content()
    keep(path, text_of(content))
    keep(path.with_suffix(".md"), markdown(content))


def _faults(results: Results, cases: Sequence[Case]) -> list[str]:
    """What was asked about and is not as it should be, one sentence each."""
    asked = {bar.name for bar in BARS if bar.case in {case.name for case in cases}}
    found = [f"{one}" for one in results.judgements() if not one.met and one.name in asked]
    return found if results.complete else [*found, "the run was broken off"]


if __name__ == "__main__":
    sys.exit(main())
