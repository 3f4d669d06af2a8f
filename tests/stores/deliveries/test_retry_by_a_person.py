"""What a person's retry of a delivery that failed may override, and what it may not."""

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from proxy.policy.delivery.history import RETRIED
from proxy.policy.delivery.key_rules import KeyTerms
from proxy.policy.delivery.state import (
    DeliveredResponse,
    Delivery,
    DeliveryRun,
    FailedForGood,
    TransitionRefusal,
)
from proxy.stores.deliveries import FileDeliveryStore, Gone, ShownDelivery
from proxy.stores.sqlite_file.presence import Presence
from tests.stores.deliveries.kit import DAY, DID_NOT_RUN, RAN, Times, accepted, opened

KEYED: dict[str, Any] = {
    "record": "a" * 32,
    "fingerprint": b"f" * 32,
    "key_terms": KeyTerms(DAY, holds_ambiguous=False),
}


async def failed(
    store: FileDeliveryStore,
    run: DeliveryRun,
    response: DeliveredResponse | None = None,
    **given: Any,  # noqa: ANN401 - the fields of a delivery
) -> Delivery:
    """One that failed after *run*."""
    await accepted(store, **given)
    (taken,) = (await store.take("orders", 1)).taken
    settled = await store.settle(
        taken.delivery, FailedForGood("exhausted", "500", response=response), run
    )
    assert isinstance(settled, Delivery)
    return settled


async def shown(store: FileDeliveryStore, delivery: Delivery) -> ShownDelivery:
    found = await store.find(delivery.id)
    assert not isinstance(found, Gone)
    return found


@pytest.mark.parametrize(
    ("run", "force", "overrides"),
    [
        pytest.param(RAN, False, False, id="may have run: its key still binds it"),
        pytest.param(RAN, True, True, id="by force"),
        pytest.param(DID_NOT_RUN, False, True, id="it did not run"),
    ],
)
async def test_what_may_have_run_binds_a_retry_unless_it_is_forced(
    tmp_path: Path, run: DeliveryRun, *, force: bool, overrides: bool
) -> None:
    async with opened(tmp_path) as store:
        one = await failed(store, run)
        assert isinstance(await store.retry(one, repeatable=True, force=force), Delivery)
        results = [each.result for each in (await shown(store, one)).runs]
        assert (RETRIED in results) is overrides


async def test_that_one_did_not_run_says_nothing_of_another_with_its_key(tmp_path: Path) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        first = await failed(store, DID_NOT_RUN, **KEYED)
        times.pass_by(1)
        await failed(store, RAN, **KEYED)
        refusal = await store.retry(first, repeatable=True)
        assert refusal is TransitionRefusal.MAY_HAVE_RUN
        assert isinstance(await store.retry(first, repeatable=True, force=True), Delivery)


async def test_a_replay_that_died_wants_force(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        one = await failed(store, DID_NOT_RUN)
        await store._ask(
            lambda table: table._run(
                "UPDATE deliveries SET replay_state = 'uncertain' WHERE id = ?", (one.id,)
            )
        )
        assert await store.retry(one, repeatable=True) is TransitionRefusal.MAY_HAVE_RUN
        assert isinstance(await store.retry(one, repeatable=True, force=True), Delivery)


async def test_an_answer_takes_room_once_however_often_it_is_retried(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        answer = DeliveredResponse(422, ((b"A", b"b"),), b"x" * 5000)
        one = await failed(store, DID_NOT_RUN, answer)
        await store._count()
        (used,) = {counts.size for counts in store.counts.values()}
        for _ in range(3):
            seen = (await shown(store, one)).delivery
            assert isinstance(await store.retry(seen, repeatable=True), Delivery)
            (taken,) = (await store.take("orders", 1)).taken
            settlement = FailedForGood("exhausted", "422", response=answer)
            await store.settle(taken.delivery, settlement, DID_NOT_RUN)
        await store._count()
        assert {counts.size for counts in store.counts.values()} == {used}


async def test_runs_are_bounded_and_the_oldest_stays(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        first = DeliveryRun(0.5, "failed", (), may_have_run=True, urls=("http://first.test:80",))
        one = await failed(store, first)
        for _ in range(120):
            await store._ask(lambda table: table._add_run(one.id, RAN))
        runs = (await shown(store, one)).runs
        assert len(runs) == 100
        assert runs[0].urls == first.urls


def test_two_that_look_at_once_whether_a_dead_process_lives_both_see_that_it_does_not(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "letters.db")
    dead = tmp_path / "letters.db-alive-gone"
    presence = Presence(path, "here")
    dead.touch()
    other = os.open(dead, os.O_RDWR)
    try:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)  # as another process that looks
        assert not presence.is_alive("gone")
        assert presence.is_alive("here")
    finally:
        os.close(other)
        presence.close()
