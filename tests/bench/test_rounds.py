"""Turns, halves and those who fail, with loads that do nothing; the proxies are real elsewhere."""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest

from bench.case import Case, Contender
from bench.loads import Figures, Plan
from bench.processes import Running
from bench.rounds import Measured, Processes, all_running, run_rounds, shared
from bench.stage import standing
from bench.tools import BenchFailed

PLAN = Plan(rounds=2, seconds=0.1)


@dataclass(frozen=True)
class Counting:
    """Says what it is told to say, and keeps a diary."""

    name: str
    says: list[float | BenchFailed]
    diary: list[str] = field(default_factory=list)

    def warmed_up(self, proxy: Running, plan: Plan) -> "Counting":
        assert (proxy.name, plan) == ("nobody", PLAN)
        self.diary.append(f"{self.name} warm")
        return self

    def measure(self, proxy: Running, plan: Plan) -> Figures:
        assert (proxy.name, plan) == ("nobody", PLAN)
        self.diary.append(self.name)
        said = self.says.pop(0)
        if isinstance(said, BenchFailed):
            raise said
        return {"cpu": said}


def run(*, fresh: bool, **says: list[float | BenchFailed]) -> tuple[Measured, list[str]]:
    diary: list[str] = []
    contenders = tuple(
        Contender(name, name, Counting(name, values, diary)) for name, values in says.items()
    )
    case = Case("case", "a case", contenders, (), ("cpu",), fresh=fresh)
    nobody = Running("nobody", pid=0, port=0, ready_after=0.0)
    return run_rounds(case, lambda _: nullcontext(nobody), PLAN), diary


def test_a_round_goes_there_and_back_and_the_next_begins_with_another() -> None:
    measured, diary = run(fresh=False, a=[1, 3, 5, 5], b=[10, 20, 30, 30])
    assert diary == ["a warm", "b warm", "a", "b", "b", "a", "b", "a", "a", "b"]
    # A figure of a round is the mean of its two.
    assert measured.series == {
        "a": [{"cpu": 2.0}, {"cpu": 5.0}],
        "b": [{"cpu": 15.0}, {"cpu": 30.0}],
    }


def test_one_that_is_started_anew_each_time_is_measured_once() -> None:
    measured, diary = run(fresh=True, a=[1, 2], b=[3, 4])
    assert diary == ["a warm", "a", "b warm", "b", "b warm", "b", "a warm", "a"]
    assert measured.series["a"] == [{"cpu": 1.0}, {"cpu": 2.0}]


def test_one_that_fails_again_and_again_is_left_out_and_the_others_go_on() -> None:
    failures = [BenchFailed(f"{number} of 9 failed") for number in (1, 2, 3)]
    measured, _ = run(fresh=False, a=[1, 1, 1, 1], b=[2, 2, *failures])
    assert set(measured.series) == {"a"}
    assert len(measured.series["a"]) == 2
    assert measured.left_out == {"b": "3 of 9 failed"}


def test_a_measurement_that_fails_is_made_again_and_that_is_told() -> None:
    measured, _ = run(fresh=False, a=[1, BenchFailed("wrk ended without a word"), 3, 5, 5])
    assert measured.series == {"a": [{"cpu": 2.0}, {"cpu": 5.0}]}
    assert measured.left_out == {}
    assert measured.repeated == [("a", "wrk ended without a word")]


def test_one_that_did_not_start_is_left_out() -> None:
    there = Running("nobody", pid=0, port=0, ready_after=0.0)
    processes: Processes = {"a": there, "b": BenchFailed("b is not installed")}
    contenders = tuple(Contender(name, name, Counting(name, [1, 1])) for name in ("a", "b"))
    case = Case("case", "a case", contenders, (), ("cpu",), rounds=1)
    measured = run_rounds(case, shared(processes), PLAN)
    assert measured.series == {"a": [{"cpu": 1.0}]}
    assert measured.left_out == {"b": "b is not installed"}


def test_why_a_proxy_did_not_start_is_what_it_said() -> None:
    load = Counting("a", [])
    # It has nothing to share the work by.
    contender = Contender("a", "holdfast-2-workers", load)
    case = Case("case", "a case", (contender,), (), ("cpu",), upstream="bodies")
    with (
        standing({"bodies"}, with_store=False) as stage,
        all_running([replace(case, contenders=(contender,))], stage) as processes,
    ):
        reason = processes["holdfast-2-workers"]
    assert isinstance(reason, BenchFailed)
    assert str(reason) == "holdfast-2-workers needs a Redis: redis-server is not installed"


@pytest.mark.parametrize(("rounds", "expected"), [(None, 2), (1, 1), (5, 2)])
def test_a_case_may_want_fewer_rounds(rounds: int | None, expected: int) -> None:
    load = Counting("a", [1.0] * 10)
    case = Case("case", "a case", (Contender("a", "a", load),), (), ("cpu",), rounds=rounds)
    nobody = Running("nobody", pid=0, port=0, ready_after=0.0)
    measured = run_rounds(case, lambda _: nullcontext(nobody), PLAN)
    assert len(measured.series["a"]) == expected
