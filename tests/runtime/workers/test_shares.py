"""What each worker may use: all of them together use what the file allows."""

import pytest

from proxy.policy.settings import BudgetSettings, Limits, Origin, Settings, UpstreamSettings
from proxy.runtime.workers.shares import share_of

UPSTREAM = UpstreamSettings(
    "a",
    (Origin("http", "a", 80),),
    max_connections=10,
    idle_connections=4,
    budget=BudgetSettings(ratio=0.3, min_per_second=2.0, window=5.0),
)
WHOLE = Settings(
    drain_delay=5.0,
    limits=Limits(connections=100, replay_memory=1001),
    upstreams=(UPSTREAM,),
)


@pytest.mark.parametrize("workers", [2, 3, 7, 10])
def test_parts_make_the_whole(workers: int) -> None:
    parts = [share_of(WHOLE, worker, workers) for worker in range(workers)]
    assert sum(part.limits.connections for part in parts) == 100
    assert sum(part.limits.replay_memory for part in parts) == 1001
    most = [part.upstreams[0].max_connections for part in parts]
    assert sum(most) == 10
    assert max(most) - min(most) <= 1
    budgets = [part.upstreams[0].budget or BudgetSettings() for part in parts]
    assert sum(budget.min_per_second for budget in budgets) == pytest.approx(2.0)
    assert {(budget.ratio, budget.window) for budget in budgets} == {(0.3, 5.0)}
    # Nobody has to connect anew for each request.
    assert all(part.upstreams[0].idle_connections >= 1 for part in parts)
    # The supervisor waits for all of them.
    assert {part.drain_delay for part in parts} == {0.0}


def test_what_is_switched_off_stays_so() -> None:
    upstream = UpstreamSettings("a", (Origin("http", "a", 80),), budget=None, idle_connections=0)
    part = share_of(Settings(upstreams=(upstream,)), 1, 4).upstreams[0]
    assert (part.budget, part.idle_connections) == (None, 0)
