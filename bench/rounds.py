"""Rounds: every contender under its load, one after the other, again and again.

What the machine does besides changes from minute to minute, so figures are
compared within a round only, and the order turns with each round.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from bench import tools
from bench.case import Case, Contender
from bench.figures import mean
from bench.loads import Figures, Load, Plan
from bench.processes import Running
from bench.proxies import PROXIES, started
from bench.stage import Stage

T = TypeVar("T")

TRIES = 3


@dataclass(slots=True)
class Measured:
    """What the rounds of one case brought."""

    series: dict[str, list[Figures]] = field(default_factory=dict)
    """By name of the contender: one measurement per round."""
    left_out: dict[str, str] = field(default_factory=dict)
    """By name of the contender: why there is none."""
    repeated: list[tuple[str, str]] = field(default_factory=list)
    """Measurements that failed and were made again: the contender, and what had happened."""

    def leave_out(self, contender: Contender, failure: tools.BenchFailed) -> None:
        """One that fails is of no use to the others of its round."""
        self.series.pop(contender.name, None)
        self.left_out[contender.name] = str(failure)


Processes = Mapping[str, Running | tools.BenchFailed]
"""By name of the process: itself, or why there is none."""


@contextmanager
def all_running(cases: Sequence[Case], stage: Stage) -> Iterator[Processes]:
    """All that these need, side by side. They have the same upstream."""
    contenders = {one.process: one for case in cases for one in case.contenders}
    with ExitStack() as stack:
        processes: dict[str, Running | tools.BenchFailed] = {}
        for name, contender in contenders.items():
            proxy = started(PROXIES[contender.proxy], stage, cases[0].upstream)
            try:
                processes[name] = stack.enter_context(proxy)
            except tools.BenchFailed as failure:
                processes[name] = failure
        yield processes


Source = Callable[[Contender], AbstractContextManager[Running]]
"""Where the process of a contender comes from."""


def shared(processes: Processes) -> Source:
    """Those that run all the time."""

    def source(contender: Contender) -> AbstractContextManager[Running]:
        process = processes[contender.process]
        if isinstance(process, tools.BenchFailed):
            raise process
        return nullcontext(process)

    return source


def fresh(case: Case, stage: Stage) -> Source:
    """One that is started for each measurement."""
    return lambda contender: started(PROXIES[contender.proxy], stage, case.upstream)


def run_rounds(case: Case, source: Source, plan: Plan) -> Measured:
    """Measure all contenders, as often as *plan* says."""
    measured = Measured()
    if case.fresh:
        loads = {contender.name: contender.load for contender in case.contenders}
    else:
        loads = _warmed_up(case, source, plan, measured)
    measured.series.update((name, []) for name in loads)
    for number in range(rounds_of(case, plan)):
        turn = number % len(case.contenders)
        order = case.contenders[turn:] + case.contenders[:turn]
        halves: dict[str, list[Figures]] = {name: [] for name in measured.series}
        # There and back: what gets slower or faster meanwhile does so for all of them alike.
        for contender in order if case.fresh else order + order[::-1]:
            if contender.name not in measured.series:
                continue
            load = loads[contender.name]
            once = _cold if case.fresh else _warm
            attempt = partial(once, contender, load, source, plan)
            try:
                halves[contender.name].append(_patiently(attempt, contender, measured))
            except tools.BenchFailed as failure:
                measured.leave_out(contender, failure)
        for name, series in measured.series.items():
            series.append(mean(halves[name]))
    return measured


def _warm(contender: Contender, load: Load, source: Source, plan: Plan) -> Figures:
    with source(contender) as process:
        return load.measure(process, plan)


def _cold(contender: Contender, load: Load, source: Source, plan: Plan) -> Figures:
    with source(contender) as process:
        return load.warmed_up(process, plan).measure(process, plan)


def _patiently(attempt: Callable[[], T], contender: Contender, measured: Measured) -> T:
    """What *attempt* brings. One that fails is made again, for a machine may be busy."""
    for _ in range(TRIES - 1):
        try:
            return attempt()
        except tools.BenchFailed as failure:
            measured.repeated.append((contender.name, str(failure)))
    return attempt()


def rounds_of(case: Case, plan: Plan) -> int:
    """A case may want fewer than the plan has."""
    return plan.rounds if case.rounds is None else min(case.rounds, plan.rounds)


def _warmed_up(case: Case, source: Source, plan: Plan, measured: Measured) -> dict[str, Load]:
    loads: dict[str, Load] = {}
    for contender in case.contenders:
        try:
            with source(contender) as process:
                attempt = partial(contender.load.warmed_up, process, plan)
                loads[contender.name] = _patiently(attempt, contender, measured)
        except tools.BenchFailed as failure:
            measured.leave_out(contender, failure)
    return loads
