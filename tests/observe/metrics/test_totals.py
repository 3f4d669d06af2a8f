"""The numbers of several workers as those of one: added up, and never less than before."""

import pickle

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.core.recorders import AddressState, ThrottleState
from proxy.observe.history import History
from proxy.observe.metrics import families
from proxy.observe.metrics.difference import counted_since, sample_counters
from proxy.observe.metrics.exposition import expose
from proxy.observe.metrics.recorders import Metrics
from proxy.observe.metrics.snapshot import ProcessSnapshot
from proxy.observe.metrics.totals import Totals
from proxy.observe.status import process_status
from proxy.policy.breaker import BreakerState
from proxy.policy.reasons import KeyResult, VerdictReason
from tests.observe.conftest import AppMetrics, MakeAttempt, MakeExchange, metrics_of

POLITE = ("route", "charges")


@pytest.fixture
def totals() -> Totals:
    return Totals(Metrics(version="1.2.3", parser="c", loaded_at=1700000000.5))


def worker(*, breaker: int = 0, waiting: int = 0, store: str = "up") -> AppMetrics:
    state = ThrottleState(waiting=waiting, under_way=1, buckets=2, paused=1, paused_for=waiting)
    return metrics_of(
        lost_lines=2,
        budgets={"payments": 2.5},
        breakers={"payments": breaker},
        throttles={POLITE: state},
        store_state=store,
    )


def sent(metrics: Metrics, addresses: tuple[AddressState, ...] = ()) -> ProcessSnapshot:
    """What arrives of a worker's numbers at the other end of its channel."""
    snapshot = metrics.snapshot(
        families.CONNECTIONS.reading(3),
        families.KEYS_IN_FLIGHT.reading(2),
        families.KEYS_WAITING.reading(1),
        families.ADDRESSES.reading({"payments": addresses}),
    )
    arrived: ProcessSnapshot = pickle.loads(pickle.dumps(snapshot))  # noqa: S301 - our own
    return arrived


def serve(
    metrics: Metrics,
    exchange: MakeExchange,
    attempt: MakeAttempt,
    times: int,
    *,
    code: int = 200,
) -> None:
    """One request after the other on a route that does everything, and one under way."""
    recorder = metrics.route("charges", ["payments"], retries=True, keys=True, dead_letters=True)
    for _ in range(times):
        tried = attempt()
        recorder.started()
        recorder.attempted(tried)
        recorder.judged(VerdictReason.SUCCESS)
        recorder.keyed(KeyResult.NEW)
        recorder.count("holdfast_dead_letters_total")
        recorder.finished(exchange(attempts=[tried], code=code))
        metrics.throttle(*POLITE).admitted()
        metrics.throttle(*POLITE).delayed(0.2)
        metrics.store(["take"]).operated("take", 0.001)
    recorder.started()


async def scraped(totals: Totals, *live: ProcessSnapshot) -> dict[str, dict[str, float]]:
    """Every sample, by its name and labels but for ``process_*``."""
    text, _ = await expose(totals.total(live), "")
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        # One name is that of a gauge and of a counter.
        name = f"{family.name}_total" if family.name in found else family.name
        found[name] = {
            f"{sample.name}{sorted(sample.labels.items())}": sample.value
            for sample in family.samples
        }
    return found


async def test_all_that_is_counted_is_the_sum(
    totals: Totals, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    one, other = worker(), worker()
    serve(one, exchange, attempt, 2)
    serve(other, exchange, attempt, 3, code=503)
    shown = [sent(one), sent(other)]
    whole = await scraped(totals, *shown)
    parts = [await scraped(totals, part) for part in shown]
    for name in (
        "holdfast_requests",
        "holdfast_requests_in_flight",
        "holdfast_request_duration_seconds",
        "holdfast_upstream_attempts",
        "holdfast_upstream_attempt_duration_seconds",
        "holdfast_retry_verdicts",
        "holdfast_retry_wait_seconds",
        "holdfast_retry_budget_remaining",
        "holdfast_throttle_decisions",
        "holdfast_throttle_wait_seconds",
        "holdfast_idempotency",
        "holdfast_dead_letter_replays",
        "holdfast_store_operation_duration_seconds",
        "holdfast_access_log_dropped",
    ):
        names = {sample for part in parts for sample in part[name]}
        assert whole[name] == pytest.approx(
            {sample: sum(part[name].get(sample, 0.0) for part in parts) for sample in names}
        ), name
    assert sum(whole["holdfast_requests"].values()) == 5
    assert whole["holdfast_workers"] == {"holdfast_workers[]": 2}


async def test_what_cannot_be_added_up_has_its_own_rule(totals: Totals) -> None:
    fine, poor = worker(breaker=0, waiting=1), worker(breaker=2, waiting=4, store="down")
    addresses = (
        AddressState("a:1", open=2, idle=1, failing=False, breaker=BreakerState.CLOSED),
        AddressState("a:1", open=3, idle=0, failing=True, breaker=BreakerState.OPEN),
        AddressState("b:1", open=1, idle=1, failing=False, breaker=None),
    )
    for metrics in (fine, poor):
        metrics.store(["take"])
        metrics.throttle(*POLITE)
        metrics.route("charges", ["payments"], retries=True)
    snapshots = [sent(fine, addresses[:1]), sent(poor, addresses[1:])]
    whole = totals.total(snapshots)
    samples = await scraped(totals, *snapshots)
    assert set(samples["holdfast_breaker_state"].values()) == {2}
    # Of each address, the worst that a worker says; one without a breaker has no state.
    by_state = samples["holdfast_breaker_addresses"].items()
    assert [sample for sample, count in by_state if count == 1] == [
        "holdfast_breaker_addresses[('state', 'open'), ('upstream', 'payments')]"
    ]
    assert sum(count for _, count in by_state) == 1
    assert set(samples["holdfast_throttle_queue_length"].values()) == {5}
    assert set(samples["holdfast_throttle_paused"].values()) == {1}
    assert set(samples["holdfast_dead_letters_pending"].values()) == {2}
    shown = process_status(whole, History().last_minute(0.0, whole), "redis://127.0.0.1:6379/0")
    assert shown["connections"] == 6
    assert shown["keys"] == {"in_flight": 4, "waiting": 2}
    assert shown["addresses"] == {
        "payments": [
            {"address": "a:1", "open": 5, "idle": 1, "failing": True, "breaker": "open"},
            {"address": "b:1", "open": 1, "idle": 1, "failing": False},
        ]
    }
    assert shown["store"]["state"] == "down"  # type: ignore[index]  # JSON
    throttle = shown["routes"]["charges"]["throttle"]  # type: ignore[index]  # JSON
    assert (throttle["under_way"], throttle["buckets"], throttle["paused_for_seconds"]) == (2, 2, 4)


def test_what_only_grows_is_added_up_alike_for_samples(
    totals: Totals, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    one, two, gone = worker(), worker(), worker()
    for metrics, times in ((one, 2), (two, 3), (gone, 4)):
        serve(metrics, exchange, attempt, times)
    totals.add_ended(sent(gone))
    live = [sent(one), sent(two)]
    sampled = sample_counters(totals.counted(live), None)
    assert sampled == sample_counters(totals.total(live), None)
    assert sampled[families.REQUESTS.name]["charges",] == {("GET", 200): 9}
    # What the workers count on is the difference, though one of them ends.
    serve(one, exchange, attempt, 5)
    totals.add_ended(sent(two))
    lately = counted_since(sampled, totals.total([sent(one)]))
    assert lately[families.REQUESTS]["charges",] == {("GET", 200): 5}


async def test_no_counter_goes_back_when_a_worker_ends(
    totals: Totals, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    one, other = worker(), worker()
    serve(one, exchange, attempt, 2)
    serve(other, exchange, attempt, 3)
    before = await scraped(totals, sent(one), sent(other))
    totals.add_ended(sent(other))
    for live in ([sent(one)], [sent(one), sent(worker())]):
        after = await scraped(totals, *live)
        for name, samples in before.items():
            if name.startswith("process_") or name in {
                "holdfast_requests_in_flight",
                "holdfast_retry_budget_remaining",
                "holdfast_breaker_state",
                "holdfast_breaker_addresses",
                "holdfast_throttle_queue_length",
                "holdfast_throttle_paused",
                "holdfast_dead_letters_pending",
                "holdfast_dead_letters_oldest_timestamp_seconds",
                "holdfast_workers",
            }:
                continue
            for sample, value in samples.items():
                assert after[name][sample] >= value, sample
    everything = await scraped(totals)
    assert sum(everything["holdfast_requests"].values()) == 3, "of those that are gone"
    in_flight = (await scraped(totals, sent(one)))["holdfast_requests_in_flight"]
    assert in_flight == {
        "holdfast_requests_in_flight[('route', '_unmatched')]": 0,
        "holdfast_requests_in_flight[('route', 'charges')]": 1,
    }


async def test_what_a_reload_has_let_go_of_does_not_come_back(
    totals: Totals, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    old, new = worker(), worker()
    serve(old, exchange, attempt, 2)
    totals.add_ended(sent(old))
    totals.reload_succeeded(1700000001.0, [sent(new)])
    again = worker()
    again.route("charges", ["payments"], retries=True)
    requests = (await scraped(totals, sent(again)))["holdfast_requests"]
    assert sum(requests.values()) == 0


async def test_reloads_are_counted_once_and_not_by_each(totals: Totals) -> None:
    worker().reload_succeeded(1.0)
    totals.reload_succeeded(1700000001.0, [])
    totals.own.reload_failed()
    totals.own.count("holdfast_worker_restarts_total", by=3)
    samples = await scraped(totals, sent(worker()), sent(worker()))
    assert samples["holdfast_config_reloads"] == {
        "holdfast_config_reloads_total[('result', 'success')]": 1,
        "holdfast_config_reloads_total[('result', 'failure')]": 1,
    }
    assert set(samples["holdfast_worker_restarts"].values()) == {3}
    last = samples["holdfast_config_last_reload_success_timestamp_seconds"]
    assert set(last.values()) == {1700000001.0}
    # The supervisor's: no worker was asked to take the configuration that was refused.
    assert set(samples["holdfast_config_last_reload_successful"].values()) == {0}


async def test_the_system_s_own_numbers_are_added_up_too(totals: Totals) -> None:
    snapshot = sent(worker())
    samples = await scraped(totals, snapshot, snapshot)
    resident = samples["process_resident_memory_bytes"]["process_resident_memory_bytes[]"]
    assert resident == pytest.approx(3 * (snapshot[families.RESIDENT_MEMORY] or 0), rel=0.2)
    start = samples["process_start_time_seconds"]["process_start_time_seconds[]"]
    assert start == pytest.approx(snapshot[families.START_TIME])
    used = samples["process_cpu_seconds"]["process_cpu_seconds_total[]"]
    totals.add_ended(snapshot)
    after = (await scraped(totals, snapshot))["process_cpu_seconds"]["process_cpu_seconds_total[]"]
    assert after >= used
