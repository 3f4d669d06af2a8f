import pytest
from hypothesis import given, strategies as st

from proxy.policy.retry.budget import Budget
from proxy.policy.settings import BudgetSettings

USUAL = BudgetSettings()
RATIO_ALONE = BudgetSettings(ratio=0.2, min_per_second=0, window=10)


def take(budget: Budget, now: float) -> bool:
    """Charge a retry if the budget allows one."""
    allowed = budget.allows(now)
    if allowed:
        budget.charge(now)
    return allowed


def take_all(budget: Budget, now: float) -> int:
    taken = 0
    while take(budget, now):
        taken += 1
    return taken


def test_vector_rb_ratio_01_a_fifth_of_what_was_asked_lately() -> None:
    budget = Budget(RATIO_ALONE)
    for _ in range(10):
        budget.first(0.0)
    assert take_all(budget, 0.0) == 2
    assert take_all(budget, 9.99) == 0
    assert take_all(budget, 20.0) == 0


def test_vector_rb_ratio_02_a_reserve_without_any_traffic() -> None:
    budget = Budget(BudgetSettings(ratio=0.2, min_per_second=10, window=10))
    assert budget.remaining(1000.0) == pytest.approx(100)
    assert take_all(budget, 1000.0) == 100


@pytest.mark.parametrize("start", [0.0, 0.3, 123456.789])
def test_what_was_asked_counts_for_the_whole_window_after_a_quiet_time(start: float) -> None:
    budget = Budget(RATIO_ALONE)
    for _ in range(10):
        budget.first(start)
    assert take_all(budget, start + 9.9) == 2


def test_one_request_a_minute_may_always_be_retried() -> None:
    budget = Budget(USUAL)
    for minute in range(60):
        now = 60.0 * minute
        budget.first(now)
        assert take(budget, now + 0.1)
        assert take(budget, now + 0.3)


@pytest.mark.parametrize("per_second", [1, 50, 10_000])
def test_when_every_request_fails_the_load_grows_by_the_ratio_and_the_reserve(
    per_second: int,
) -> None:
    budget = Budget(USUAL)
    seconds = 30
    retries = 0
    for request in range(per_second * seconds):
        now = 500.0 + request / per_second
        budget.first(now)
        retries += take(budget, now) + take(budget, now)  # two retries each
    allowed = USUAL.ratio * per_second * seconds + USUAL.min_per_second * seconds
    # The reserve of a whole window may be gone at the start, before it renews itself.
    assert 0.85 * allowed <= retries <= allowed + USUAL.min_per_second * USUAL.window


def test_a_retry_that_is_cancelled_is_given_back() -> None:
    budget = Budget(USUAL)
    assert take_all(budget, 0.0) == 10
    budget.give_back(0.0, 5.0)
    assert take_all(budget, 5.0) == 1
    assert take_all(budget, 9.9) == 0


def test_a_retry_given_back_late_is_not_given_back_twice() -> None:
    budget = Budget(USUAL)
    take(budget, 0.0)
    budget.give_back(0.0, 60.0)
    assert budget.remaining(60.0) == pytest.approx(10)


def test_the_ratio_is_exact_where_floats_are_not() -> None:
    budget = Budget(BudgetSettings(ratio=0.29, min_per_second=0))
    for _ in range(100):
        budget.first(0.0)
    assert 0.29 * 100 < 29
    assert take_all(budget, 0.0) == 29


def test_a_budget_of_nothing_allows_nothing() -> None:
    budget = Budget(BudgetSettings(ratio=0, min_per_second=0))
    budget.first(0.0)
    assert not take(budget, 0.0)
    assert budget.remaining(0.0) < 1e-6


@pytest.mark.parametrize(
    ("later", "allowed"),
    [
        pytest.param(-1e6, 0, id="a step back refills nothing"),
        pytest.param(1e9, 10, id="a leap ahead leaves the reserve"),
    ],
)
def test_time_that_jumps(later: float, allowed: int) -> None:
    budget = Budget(USUAL)
    take_all(budget, 1e6)
    assert take_all(budget, 1e6 + later) == allowed


def test_it_tells_its_settings() -> None:
    assert Budget(USUAL).settings is USUAL
    assert "ratio=0.2" in repr(Budget(USUAL))


@given(
    st.lists(
        st.tuples(st.sampled_from(["first", "take"]), st.floats(0, 4), st.integers(1, 30)),
        max_size=60,
    )
)
def test_no_window_holds_more_retries_than_the_rule_allows(
    steps: list[tuple[str, float, int]],
) -> None:
    settings = BudgetSettings(ratio=0.5, min_per_second=0.3, window=10)
    budget, now = Budget(settings), 100.0
    firsts: list[float] = []
    retries: list[float] = []
    for what, pause, times in steps:
        now += pause
        since = now - settings.window
        for _ in range(times):
            if what == "first":
                budget.first(now)
                firsts.append(now)
            elif take(budget, now):
                retries.append(now)
                asked = sum(event >= since - 1e-6 for event in firsts)
                retried = sum(event > since + 1e-6 for event in retries)
                assert retried <= settings.ratio * asked + 3
        assert budget.remaining(now) >= 0
