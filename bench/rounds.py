"""Rounds: every proxy under every load, one after the other, again and again.

What the machine does besides changes from minute to minute, so figures are
compared within a round only, and the order turns with each round.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import tools
from bench.load import Sample, Scenario, measure
from bench.peers import SHARING, Place, Running, free_port, started, store, upstream

Series = dict[str, list[Sample]]
"""By name of the proxy: one sample per round."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure."""

    rounds: int
    seconds: int
    """Of each measurement; a round has one per proxy."""
    warm_up: int = 1
    """Seconds under load before the first round."""


@contextmanager
def all_running(names: Iterable[str]) -> Iterator[dict[str, Running]]:
    """These proxies, side by side. One named ``NAME:twin`` is another instance of NAME."""
    core, _ = tools.cores()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        origin = stack.enter_context(upstream(folder))
        kinds = {name: name.removesuffix(":twin") for name in names}
        shared = stack.enter_context(store(folder)).port if SHARING & {*kinds.values()} else 0
        running = {}
        for name, kind in kinds.items():
            place = Place(free_port(), origin.port, folder, shared)
            running[name] = stack.enter_context(started(kind, place, core))
        yield running


def run_rounds(proxies: dict[str, Running], scenario: Scenario, plan: Plan) -> Series:
    """Measure all of them, *plan.rounds* times."""
    _, core = tools.cores()
    for proxy in proxies.values():
        measure(proxy, scenario, plan.warm_up, core)
    series: Series = {name: [] for name in proxies}
    names = list(proxies)
    for number in range(plan.rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            series[name].append(measure(proxies[name], scenario, plan.seconds, core))
    return series


def start_times(name: str, count: int) -> list[float]:
    """Seconds from start to the first accepted connection, *count* times."""
    times = []
    for _ in range(count):
        with all_running((name,)) as running:
            times.append(running[name].ready_after)
    return times
