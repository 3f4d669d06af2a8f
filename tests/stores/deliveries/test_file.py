"""The file of deliveries and dead letters: older and newer ones, full and slow disks, secrets."""

import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest

from proxy.core.clock import SystemClock
from proxy.policy.dead_letter import DeadLetterState
from proxy.policy.delivery.state import (
    Delivered,
    DeliveredResponse,
    Delivery,
    FailedForGood,
    RetryLater,
)
from proxy.policy.delivery.words import DeliveryState
from proxy.policy.failure_category import FailureCategory
from proxy.stores import StoreError
from proxy.stores.dead_letters import FILE, DeadLetterStore
from proxy.stores.deliveries import Accepted, AcceptUncertain, DeliveryStore, Gone, ShownDelivery
from proxy.stores.sqlite_file.thread import DiskFull, FileFailure
from tests.stores.dead_letters.test_store import Losses
from tests.stores.deliveries.kit import DAY, RAN, Times, accepted, new, opened
from tests.support.disks import fill, small_disk
from tests.support.letters import letter, locked
from tests.support.waiting import PATIENCE, eventually

OK = Delivered(DeliveredResponse(200, (), b"done"))
SECRET = b"Bearer 8f14e45fceea167a5a36dedd4bea2543"


async def letters_in(folder: Path, clock: SystemClock) -> DeadLetterStore:
    store = DeadLetterStore(str(folder), clock, Losses())
    await store.start()
    return store


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def content(folder: Path) -> bytes:
    """All that is in the file, and in its log."""
    return b"".join((folder / name).read_bytes() for name in (FILE, f"{FILE}-wal"))


async def accepted_until_full(store: DeliveryStore) -> list[str]:
    ids: list[str] = []
    for turn in range(10_000):
        one = new(body=bytes(9000), caller=f"{turn % 8}")
        try:
            answer = await store.accept(one)
        except DiskFull:
            return ids
        assert isinstance(answer, Accepted)
        ids.append(one.id)
    raise AssertionError("the disk never was full")


# A delivery that failed is a dead letter.


async def test_a_failed_delivery_is_a_dead_letter_under_its_id(tmp_path: Path) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        letters = await letters_in(tmp_path, times)
        sent = new(
            headers=((b"Authorization", SECRET), (b"A", b"1")),
            wiped=frozenset({"authorization"}),
            record="key",
            peer="10.1.1.1",
        )
        await store.accept(sent)
        (one,) = (await store.take("orders", 1)).taken
        assert await letters.page() == []
        times.pass_by(5)
        failed = FailedForGood("rejected", "404", FailureCategory.PERMANENT)
        await store.settle(one.delivery, failed, RAN)
        (summary,) = await letters.page()
        assert (summary.id, summary.error, summary.verdict) == (sent.id, "404", "rejected")
        assert summary.category is FailureCategory.PERMANENT
        assert (summary.created, summary.expires) == (times.wall(), times.wall() + 30 * DAY)
        assert (summary.used, summary.allowed, summary.may_have_run) == (1, 20, True)
        kept = await letters.find(sent.id)
        assert kept is not None
        assert (kept.body, kept.headers, kept.dropped) == (
            sent.body,
            ((b"A", b"1"),),
            ("Authorization",),
        )
        assert (kept.record, kept.peer, kept.runs[0].attempts) == ("key", "10.1.1.1", RAN.attempts)
        assert letters._thread is not None
        await letters._count()
        assert letters.counts["orders"].waiting == 1
        assert await letters.drop(sent.id)
        assert await store.find(sent.id) is Gone.EXPIRED
        await store._count()
        assert store.counts == {}
        await letters.close()


async def test_a_replay_that_succeeds_delivers_it(tmp_path: Path) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        letters = await letters_in(tmp_path, times)
        one = await accepted(store, give_up_after=1)
        times.pass_by(2)
        await store.give_up()
        begun = await letters.begin_replay(one.delivery.id, "t", force=False)
        assert not isinstance(begun, str)
        await letters.end_replay(one.delivery.id, "t", None, may_have_run=True, gone=True)
        found = await store.find(one.delivery.id)
        assert isinstance(found, ShownDelivery)
        assert found.delivery.state is DeliveryState.DELIVERED
        assert await letters.page() == []
        await letters.close()


async def test_letters_are_in_the_order_in_which_they_failed(tmp_path: Path) -> None:
    times = Times(wall=SystemClock().wall())
    async with opened(tmp_path, times) as store:
        letters = await letters_in(tmp_path, times)
        ids = [(await accepted(store)).delivery.id for _ in range(4)]
        for each in reversed(ids):
            times.pass_by(1)
            one = await store.take_one(each)
            assert one is not None
            await store.settle(one.delivery, FailedForGood("x"), None)
        failed = ids[::-1]
        assert [each.id for each in await letters.page()] == failed
        assert [each.id for each in await letters.page(newest=True)] == ids
        assert [each.id for each in await letters.page(after=failed[1])] == failed[2:]
        # The place of one that is gone is known, and one that never was has none.
        await letters.drop(failed[1])
        assert [each.id for each in await letters.page(after=failed[1])] == failed[2:]
        assert await letters.page(after="d_" + "x" * 22) == []
        assert await letters.drop_all(until="d_" + "x" * 22) == 0
        # What fails meanwhile stays.
        late = await accepted(store)
        assert await letters.drop_all(until=failed[2]) == 2
        assert [each.id for each in await letters.page()] == [failed[3]]
        one = await store.take_one(late.delivery.id)
        assert one is not None
        await store.settle(one.delivery, FailedForGood("x"), None)
        assert await letters.drop_all() == 2
        await letters.close()


# Files of other versions.


async def test_a_file_of_the_last_format_keeps_its_letters(tmp_path: Path) -> None:
    script = Path(__file__).with_name("format_2.sql").read_text("utf-8")
    db = sqlite3.connect(tmp_path / FILE)
    db.executescript(script)
    db.close()
    times = Times()
    async with opened(tmp_path, times) as store:
        letters = await letters_in(tmp_path, times)
        first, second = await letters.page()
        assert (first.id, second.id) == ("18b2f3c4d5e6f7a8b9c0", "18b2f3c4d5e7f7a8b9c1")
        assert second.state is DeadLetterState.UNCERTAIN, "its replay died"
        kept = await letters.find(first.id)
        assert kept is not None
        assert (kept.body, kept.headers) == (b"body", ((b"A", b"1"),))
        assert kept.runs[0].attempts == ({"n": 1, "outcome": "timeout"},)
        await letters._count()
        assert letters.counts["charges"].waiting == 2
        assert store.counts == {}
        assert (await store.page()).deliveries == ()
        await accepted(store)
        assert await letters.drop_all() == 2
        await letters.close()


async def test_a_newer_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    db = sqlite3.connect(tmp_path / FILE)
    db.execute("PRAGMA user_version = 4")
    db.commit()
    db.close()
    with pytest.raises(StoreError, match=r"format 4, this one has 3\): use that version"):
        async with opened(tmp_path):
            pass


async def test_no_other_user_can_read_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.lead()
        await accepted(store)
        modes = {each.name: each.lstat().st_mode for each in files(tmp_path)}
        assert len(modes) >= 5
        assert not any(mode & (stat.S_IRWXG | stat.S_IRWXO) for mode in modes.values()), modes


# Credentials.


@pytest.mark.parametrize("end", ["delivered", "failed", "cancelled", "gave up"])
async def test_credentials_are_wiped_at_the_end(tmp_path: Path, end: str) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        ids = []
        for size in (1, 9000):
            fields = ((b"Cookie", SECRET + b"c" * size), (b"Authorization", SECRET))
            one = await accepted(
                store, headers=fields, wiped=frozenset({"cookie", "authorization"})
            )
            ids.append(one.delivery.id)
        assert SECRET in content(tmp_path)
        for each in ids:
            found = await store.find(each)
            assert isinstance(found, ShownDelivery)
            assert found.delivery.headers == ()
            if end == "cancelled":
                await store.cancel(each)
            elif end != "gave up":
                taken = await store.take_one(each)
                assert taken is not None
                assert taken.delivery.headers[1] == (b"Authorization", SECRET)
                await store.settle(
                    taken.delivery, OK if end == "delivered" else FailedForGood("x"), RAN
                )
        if end == "gave up":
            times.pass_by(4 * DAY)
            assert len(await store.give_up()) == 2
        await store.expire()
        # The log is emptied between two transactions.
        await store.page()
        assert SECRET not in content(tmp_path)


# Disks.


async def test_a_file_that_does_not_answer_fails_in_time_and_is_used_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, patience=1.0) as store:
        store._patience = PATIENCE  # the machine may be busy; the wait for a lock stays short
        one = await accepted(store)
        with locked(tmp_path):
            with pytest.raises(FileFailure):
                await store.accept(new())
            with pytest.raises(FileFailure):
                await store.take("orders", 5)
            assert store.state == "down"
            assert "no delivery can be kept" in caplog.text
        await eventually(lambda: store.state == "up", what="it finds out by itself")
        # What may have been taken by the call that failed was given back.
        taken = (await store.take("orders", 5)).taken
        assert one.delivery.id in {each.delivery.id for each in taken}


async def test_no_answer_in_time_is_an_uncertain_acceptance(tmp_path: Path) -> None:
    async with opened(tmp_path, patience=0.2) as store:
        assert store._thread is not None
        release, begun = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def wait_for_the_disk(_: object) -> None:
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result(20)

        slow = asyncio.ensure_future(store._ask(wait_for_the_disk))
        await begun.wait()
        with pytest.raises(AcceptUncertain):
            await store.accept(new())
        with pytest.raises(FileFailure):
            await slow
        # Whatever came of it, the process that delivers looks.
        await store.lead()
        store._patience = PATIENCE  # the machine may be busy
        release.set()
        assert await store.wait_for_work(20)
        await accepted(store)


async def test_a_full_disk_refuses_new_ones_and_lets_others_end(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 2 * 1024**2) as disk:
        async with opened(disk / "state", SystemClock(), size=10**9, entries=10**6) as store:
            ids = await accepted_until_full(store)
            fill(disk)
            for each in ids[:3]:
                taken = await store.take_one(each)
                assert taken is not None
                assert isinstance(await store.settle(taken.delivery, OK, RAN), Delivery)
            taken = await store.take_one(ids[3])
            assert taken is not None
            settled = await store.settle(taken.delivery, RetryLater(5, "x"), RAN)
            assert isinstance(settled, Delivery)
            assert isinstance(await store.cancel(ids[4]), Delivery)
            for each in ids[5:]:
                taken = await store.take_one(each)
                assert taken is not None
                await store.settle(taken.delivery, OK, RAN)
            (disk / "filling").unlink(missing_ok=True)
            await accepted(store, caller="x")
            assert store.state == "up"


# Clocks.


@pytest.mark.parametrize("jump", [DAY, -DAY, 3600.0])
async def test_a_clock_that_is_set_changes_no_wait(tmp_path: Path, jump: float) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        one = await accepted(store, delay=100, give_up_after=1000)
        times.date += jump
        assert (await store.take("orders", 1)).next_due == pytest.approx(100)
        assert await store.give_up() == []
        await store.expire()
        found = await store.find(one.delivery.id)
        assert isinstance(found, ShownDelivery)
        assert found.delivery.due == pytest.approx(times.wall() + 100), "as dates it is shown anew"
        times.pass_by(99)
    # Nor does a restart.
    async with opened(tmp_path, times) as store:
        assert (await store.take("orders", 1)).taken == ()
        times.pass_by(1.001)
        (taken,) = (await store.take("orders", 1)).taken
        assert taken.delivery.id == one.delivery.id


async def test_after_a_boot_the_date_says_how_long_the_machine_was_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        await accepted(store, delay=100)
    monkeypatch.setattr("proxy.stores.deliveries.store.boot_name", lambda: "another boot")
    times.date += 60
    times.now = 5.0
    async with opened(tmp_path, times) as store:
        assert (await store.take("orders", 1)).next_due == pytest.approx(40)


# Several processes.


async def test_the_process_with_the_lock_is_woken(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await store.lead()
        await asyncio.wait_for(store.lead(), 1)
        other_leads = asyncio.ensure_future(other.lead())
        lags = []
        for _ in range(20):
            waiting = asyncio.ensure_future(store.wait_for_work(20))
            await asyncio.sleep(0)
            await accepted(other)
            began = loop.time()
            assert await waiting
            lags.append(loop.time() - began)
        assert min(lags) < 0.02
        assert (store.delivers, other.delivers, other_leads.done()) == (True, False, False)
        assert not await store.wait_for_work(0.001)
        seen = (await other.page(limit=1)).deliveries[0]
        await other.retry(seen, repeatable=False)
        assert await store.wait_for_work(20)
        await store.close()
        await asyncio.wait_for(other_leads, 20)
        assert other.delivers
        await accepted(other)
        assert await other.wait_for_work(20)


async def test_a_take_whose_answer_nobody_gets_is_undone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        one = await accepted(store)
        asking = asyncio.ensure_future(store.take("orders", 1))
        await asyncio.sleep(0)  # the command is on its way
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        (taken,) = (await store.take("orders", 1)).taken
        assert (taken.delivery.id, taken.delivery.tries) == (one.delivery.id, 0)


async def test_of_many_at_once_one_that_fails_costs_the_others_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        first = await accepted(store)
        many = [new() for _ in range(30)]
        many[7] = new(id=first.delivery.id)
        answers = await asyncio.gather(*map(store.accept, many), return_exceptions=True)
        assert isinstance(answers[7], StoreError)
        rest = answers[:7] + answers[8:]
        assert all(isinstance(answer, Accepted) for answer in rest)
        assert len((await store.page()).deliveries) == 30


async def test_letters_of_waiting_clients_are_not_deliveries(tmp_path: Path) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        letters = await letters_in(tmp_path, times)
        kept = letter(1)
        assert await letters.keep(kept)
        assert await store.find(kept.id) is Gone.UNKNOWN
        assert (await store.page()).deliveries == ()
        await store._count()
        assert (store.counts, store.fill) == ({}, 0)
        await letters.close()


async def test_all_that_come_meanwhile_share_one_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(path: str, **options: object) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(path, **options)  # type: ignore[call-overload]  # as given
        db.set_trace_callback(statements.append)
        return db

    monkeypatch.setattr(sqlite3, "connect", traced)
    async with opened(tmp_path) as store:
        statements.clear()
        await asyncio.gather(*(accepted(store, caller=f"{n % 8}") for n in range(64)))
        # The first may be alone, and the counting may come in between.
        assert statements.count("COMMIT") <= 4
        assert len((await store.page()).deliveries) == 64
