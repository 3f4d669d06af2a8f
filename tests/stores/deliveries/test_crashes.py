"""Processes that end at every place between acceptance and end: nothing is lost, nor sent twice.

The places are those of section "states" of the contract: before and after each commit. Whether a
try is repeated is decided by whoever recovers it; the engine says which tries those are.
"""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from proxy.core.clock import SystemClock
from proxy.policy.delivery.state import Delivery
from proxy.policy.delivery.words import DeliveryState
from proxy.stores.dead_letters import DeadLetterStore
from proxy.stores.deliveries import Accepted, FileDeliveryStore, ShownDelivery
from tests.stores.dead_letters.test_store import Losses
from tests.stores.deliveries.dying import STATUS
from tests.stores.deliveries.kit import URL, again, never, new, opened

TAKEOVER = 1.0
"""Seconds; with both cores busy it may be some more."""


async def process(folder: Path, steps: str, fatal: str = "") -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.stores.deliveries.dying",
        str(folder),
        steps,
        fatal,
        stdout=PIPE,
    )


async def dies(folder: Path, steps: str, fatal: str = "") -> None:
    child = await process(folder, steps, fatal)
    await child.communicate()
    assert child.returncode == STATUS


async def only_one(store: FileDeliveryStore) -> Delivery | None:
    found = (await store.page()).deliveries
    assert len(found) <= 1
    return found[0] if found else None


async def test_before_the_commit_of_acceptance_nothing_is_there(tmp_path: Path) -> None:
    await dies(tmp_path, "accept", "COMMIT")
    async with opened(tmp_path, SystemClock()) as store:
        assert await only_one(store) is None
        answer = await store.accept(new(record="key", fingerprint=b"print"))
        assert isinstance(answer, Accepted)
        assert not answer.is_duplicate


async def test_after_the_commit_of_acceptance_it_is_there_and_the_next_is_a_duplicate(
    tmp_path: Path,
) -> None:
    await dies(tmp_path, "accept")
    async with opened(tmp_path, SystemClock()) as store:
        answer = await store.accept(new(record="key", fingerprint=b"print"))
        assert isinstance(answer, Accepted)
        assert answer.is_duplicate
        (one,) = (await store.take("orders", 5)).taken
        assert one.delivery.id == answer.delivery.id
        assert one.body.startswith(b"order ")


@pytest.mark.parametrize("fatal", ["COMMIT", "UPDATE deliveries SET state = 'sending'"])
async def test_before_the_commit_of_the_take_it_waits(tmp_path: Path, fatal: str) -> None:
    await dies(tmp_path, "accept take", fatal)
    async with opened(tmp_path, SystemClock()) as store:
        assert await store.recover(never) == []
        found = await only_one(store)
        assert found is not None
        assert (found.state, found.tries) == (DeliveryState.WAITING, 0)


@pytest.mark.parametrize(
    ("steps", "fatal"),
    [
        pytest.param("accept take", "", id="before the first byte, or at any time until the end"),
        pytest.param("accept take deliver", "COMMIT", id="after the answer, before its commit"),
        pytest.param("accept take fail", "is_letter = 1", id="between the end and the letter"),
    ],
)
@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_try_whose_owner_died(
    tmp_path: Path, steps: str, fatal: str, *, repeatable: bool
) -> None:
    await dies(tmp_path, steps, fatal)
    letters = DeadLetterStore(str(tmp_path), SystemClock(), Losses())
    async with opened(tmp_path, SystemClock()) as store:
        assert (await store.take("orders", 1)).taken == ()
        (found,) = await store.recover(again if repeatable else never)
        assert await store.recover(never) == []
        assert (found.may_have_run, found.ran_at, found.reason) == (True, (URL,), "uncertain")
        await letters.start()
        kept = await letters.page()
        await letters.close()
        if repeatable:
            assert found.state is DeliveryState.RETRYING
            assert kept == []
            one = await store.take_one(found.id)
            assert one is not None
            assert one.body.startswith(b"order ")
        else:
            assert found.state is DeliveryState.FAILED
            (letter,) = kept
            assert (letter.id, letter.may_have_run, letter.verdict) == (found.id, True, "uncertain")


async def test_after_the_commit_of_the_end_it_has_ended(tmp_path: Path) -> None:
    await dies(tmp_path, "accept take deliver")
    async with opened(tmp_path, SystemClock()) as store:
        assert await store.recover(again) == []
        found = await only_one(store)
        assert found is not None
        shown = await store.find(found.id)
        assert isinstance(shown, ShownDelivery)
        assert shown.delivery.state is DeliveryState.DELIVERED
        assert shown.response is not None


async def test_another_process_takes_over_from_one_that_is_killed(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    child = await process(tmp_path, "accept lead take wait")
    assert child.stdout is not None
    while await child.stdout.readline() != b"taken\n":
        pass
    async with opened(tmp_path, SystemClock()) as store:
        leading = asyncio.ensure_future(store.lead())
        assert await store.recover(never) == [], "its owner lives"
        assert not store.delivers
        child.send_signal(signal.SIGKILL)
        await child.wait()
        killed = loop.time()
        await leading
        (found,) = await store.recover(again)
        assert loop.time() - killed < TAKEOVER + 4
        assert found.state is DeliveryState.RETRYING
