"""What every engine of deliveries does: the protocol of ``stores/deliveries/ports.py``."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.policy.delivery.capacity import CapacityCause
from proxy.policy.delivery.key_rules import KeyTerms
from proxy.policy.delivery.state import (
    Delivered,
    DeliveredResponse,
    Delivery,
    FailedForGood,
    RetryLater,
    TransitionRefusal,
)
from proxy.policy.delivery.words import DeferralReason, DeliveryState
from proxy.stores.deliveries import (
    Accepted,
    DeliveryStore,
    Gone,
    HeldKey,
    Mismatch,
    NoCapacity,
    ShownDelivery,
)
from tests.stores.deliveries.kit import (
    DAY,
    DID_NOT_RUN,
    RAN,
    URL,
    Times,
    accepted,
    again,
    new,
    opened,
)
from tests.support.waiting import eventually

OK = Delivered(DeliveredResponse(201, ((b"X-Id", b"7"),), b"done"))


async def shown(store: DeliveryStore, delivery_id: str) -> Delivery:
    found = await store.find(delivery_id)
    assert isinstance(found, ShownDelivery), found
    return found.delivery


async def taken(store: DeliveryStore) -> Delivery:
    (one,) = (await store.take("orders", 1, [URL])).taken
    return one.delivery


async def test_what_is_accepted_is_taken_once_as_it_came(tmp_path: Path) -> None:
    secret = (b"Authorization", b"Bearer 1")
    async with opened(tmp_path) as store:
        one = new(headers=(secret, (b"A", b"1"), secret), wiped=frozenset({"authorization"}))
        answer = await store.accept(one)
        assert isinstance(answer, Accepted)
        assert not answer.is_duplicate
        batch = await store.take("orders", 5, [URL])
        (first,) = batch.taken
        assert (first.body, first.delivery.headers) == (one.body, one.headers)
        assert first.delivery.state is DeliveryState.SENDING
        assert first.delivery.sending_to == (URL,)
        assert batch.next_due is None
        assert (await store.take("orders", 5)).taken == ()
        assert await store.take_one(one.id) is None


async def test_delivered(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        one = await accepted(store)
        settled = await store.settle(await taken(store), OK, RAN)
        assert isinstance(settled, Delivery)
        found = await store.find(one.delivery.id)
        assert isinstance(found, ShownDelivery)
        assert found.response == OK.response
        assert found.runs == (RAN,)
        assert (found.delivery.state, found.delivery.attempts) == (DeliveryState.DELIVERED, 1)
        assert found.delivery.expires == settled.ended + DAY


async def test_only_the_owner_settles_and_only_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await accepted(store)
        mine = await taken(store)
        stale = replace(mine, version=mine.version - 1)
        assert await store.settle(stale, OK, RAN) is TransitionRefusal.NOT_SENDING
        assert await store.give_back(mine, delay=0) is not TransitionRefusal.NOT_SENDING
        assert await store.settle(mine, OK, RAN) is TransitionRefusal.NOT_SENDING


async def test_a_settlement_that_nobody_heard_of_can_be_repeated(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await accepted(store)
        mine = await taken(store)
        retry = RetryLater(60, "exhausted", "500")
        first = await store.settle(mine, retry, RAN)
        second = await store.settle(mine, retry, RAN)
        assert isinstance(first, Delivery)
        assert isinstance(second, Delivery)
        found = await store.find(mine.id)
        assert isinstance(found, ShownDelivery)
        assert len(found.runs) == 1
        assert (second.version, second.tries) == (first.version, 1)


async def test_a_retry_is_due_later_and_a_deferral_costs_nothing(tmp_path: Path) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        await accepted(store)
        mine = await taken(store)
        back = await store.give_back(mine, delay=3, deferred=DeferralReason.THROTTLED)
        assert isinstance(back, Delivery)
        assert (back.state, back.attempts, back.tries) == (DeliveryState.WAITING, 0, 0)
        assert back.deferred is DeferralReason.THROTTLED
        batch = await store.take("orders", 1)
        assert batch.taken == ()
        assert batch.next_due == pytest.approx(3)
        times.pass_by(3)
        again = await store.settle(
            await taken(store), RetryLater(9, "exhausted", "500"), DID_NOT_RUN
        )
        assert isinstance(again, Delivery)
        assert (again.state, again.attempts, again.may_have_run) == ("retrying", 1, False)
        times.pass_by(8.9)
        assert (await store.take("orders", 1)).taken == ()
        times.pass_by(0.2)
        uncounted = await store.settle(await taken(store), RetryLater(1, "x", counts=False), RAN)
        assert isinstance(uncounted, Delivery)
        assert (uncounted.attempts, uncounted.tries) == (1, 2)
        assert (uncounted.may_have_run, uncounted.ran_at) == (True, (URL,))


async def test_the_longest_due_go_first_and_routes_apart(tmp_path: Path) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        late = await accepted(store, delay=20)
        soon = await accepted(store, delay=10)
        other = await accepted(store, route="others")
        times.pass_by(30)
        batch = await store.take("orders", 5)
        assert [each.delivery.id for each in batch.taken] == [soon.delivery.id, late.delivery.id]
        ((first),) = (await store.take("others", 5)).taken
        assert first.delivery.id == other.delivery.id


async def test_duplicates_learn_the_first_ones_id(tmp_path: Path) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        key = {"record": "key", "fingerprint": b"print"}
        answers = await asyncio.gather(
            *((store, other)[turn % 2].accept(new(**key)) for turn in range(50))
        )
        assert all(isinstance(answer, Accepted) for answer in answers)
        ids = {answer.delivery.id for answer in answers if isinstance(answer, Accepted)}
        assert len(ids) == 1
        assert sum(not answer.is_duplicate for answer in answers) == 1  # type: ignore[union-attr]  # see above
        assert await other.accept(new(record="key", fingerprint=b"other")) == Mismatch(*ids)
        found = await store.find_record("key")
        assert found is not None
        assert {found.id} == ids
        # Once it has ended its key is free for another one.
        await store.settle(await taken(store), FailedForGood("exhausted"), DID_NOT_RUN)
        again = await store.accept(new(**key))
        assert isinstance(again, Accepted)
        assert not again.is_duplicate
        found = await store.find_record("key")
        assert found is not None
        assert found.id == again.delivery.id


async def test_room_for_entries_bytes_and_one_caller(tmp_path: Path) -> None:
    async with opened(tmp_path, entries=8, size=4000) as store:
        assert await store.accept(new(body=bytes(5000))) == NoCapacity(CapacityCause.BYTES)
        for _ in range(2):
            await accepted(store, caller="a")
        await accepted(store, caller="b")
        assert await store.accept(new(caller="a")) == NoCapacity(CapacityCause.CALLER)
        assert await store.accept(new(caller="b", body=bytes(900))) == NoCapacity(
            CapacityCause.CALLER
        )
        for caller in "bccdd":
            await accepted(store, caller=caller)
        assert await store.accept(new(caller="e")) == NoCapacity(CapacityCause.ENTRIES)
        # What failed takes room, what was delivered does not.
        await store.settle(await taken(store), FailedForGood("exhausted"), RAN)
        assert await store.accept(new(caller="e")) == NoCapacity(CapacityCause.ENTRIES)
        await store.settle(await taken(store), OK, RAN)
        await accepted(store, caller="e")


async def test_one_caller_alone_leaves_something_to_others(tmp_path: Path) -> None:
    async with opened(tmp_path, entries=8, size=10**6) as store:
        for _ in range(7):
            await accepted(store, caller="a")
        assert await store.accept(new(caller="a")) == NoCapacity(CapacityCause.CALLER)
        await accepted(store, caller="b")


async def test_room_is_reserved_before_the_body_is_read(tmp_path: Path) -> None:
    async with opened(tmp_path, entries=4, size=2000) as store:
        first = store.reserve("a", 400)
        assert not isinstance(first, NoCapacity)
        second = store.reserve("b", 300)
        assert not isinstance(second, NoCapacity)
        assert store.reserve("a", 10) == NoCapacity(CapacityCause.CALLER)
        assert second.grow(100) is None
        assert second.grow(200) == NoCapacity(CapacityCause.CALLER)
        second.release()
        second.release()
        assert isinstance(await store.accept(new(caller="a"), first), Accepted)
        assert store.reserve("c", 1950) == NoCapacity(CapacityCause.BYTES)
        third = store.reserve("c", 300)
        assert not isinstance(third, NoCapacity)


async def test_more_than_there_is_room_for_is_legal_and_new_ones_are_refused(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        for turn in range(6):
            await accepted(store, caller=f"{turn}")
    async with opened(tmp_path, entries=3) as store:
        assert store.fill == 2
        assert store.reserve("x", 1) == NoCapacity(CapacityCause.ENTRIES)
        assert await store.accept(new(caller="x")) == NoCapacity(CapacityCause.ENTRIES)
        for one in (await store.take("orders", 4)).taken:
            await store.settle(one.delivery, OK, RAN)
        await eventually(lambda: not isinstance(store.reserve("x", 1), NoCapacity))
        store.resize(1, 1000)
        assert store.reserve("y", 1) == NoCapacity(CapacityCause.ENTRIES)


async def test_cancelled_or_sent_never_both(tmp_path: Path) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        for _ in range(60):
            one = await accepted(store)
            got, cancelled = await asyncio.gather(
                store.take_one(one.delivery.id), other.cancel(one.delivery.id)
            )
            if got is None:
                assert isinstance(cancelled, Delivery)
                assert cancelled.state is DeliveryState.CANCELLED
            else:
                assert cancelled is TransitionRefusal.SENDING
                await store.settle(got.delivery, OK, RAN)
            assert await other.cancel(one.delivery.id) is TransitionRefusal.ENDED
        assert await store.cancel("d_unknown") is TransitionRefusal.UNKNOWN


async def test_retry_by_a_person(tmp_path: Path) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        one = await accepted(store, delay=500)
        seen = await shown(store, one.delivery.id)
        due = await store.retry(seen, repeatable=False)
        assert isinstance(due, Delivery)
        assert due.due == times.wall()
        mine = await taken(store)
        seen = await shown(store, mine.id)
        assert await store.retry(seen, repeatable=True) is TransitionRefusal.SENDING
        await store.settle(mine, FailedForGood("exhausted", "500"), RAN)
        assert await store.retry(seen, repeatable=True) is TransitionRefusal.CHANGED
        seen = await shown(store, mine.id)
        assert await store.retry(seen, repeatable=False) is TransitionRefusal.MAY_HAVE_RUN
        times.pass_by(DAY)
        again = await store.retry(seen, repeatable=False, force=True)
        assert isinstance(again, Delivery)
        assert (again.state, again.attempts, again.gives_up) == (
            DeliveryState.RETRYING,
            0,
            times.wall() + 3 * DAY,
        )
        await store.settle(await taken(store), OK, RAN)
        seen = await shown(store, mine.id)
        assert await store.retry(seen, repeatable=True) is TransitionRefusal.ENDED


async def test_a_failed_one_is_not_begun_anew_beside_another_of_its_key(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        one = await accepted(store, record="key", fingerprint=b"f")
        await store.settle(await taken(store), FailedForGood("exhausted"), DID_NOT_RUN)
        await accepted(store, record="key", fingerprint=b"f")
        seen = await shown(store, one.delivery.id)
        assert await store.retry(seen, repeatable=True) is TransitionRefusal.DUPLICATE


async def test_giving_up(tmp_path: Path) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        one = await accepted(store, give_up_after=60)
        sending = await accepted(store, give_up_after=60)
        mine = await store.take_one(sending.delivery.id)
        assert await store.give_up() == []
        times.pass_by(61)
        assert (await store.take("orders", 1)).taken == ()
        assert await store.take_one(one.delivery.id) is None
        (ended,) = await store.give_up()
        assert (ended.id, ended.state, ended.reason) == (one.delivery.id, "failed", "gave_up")
        assert await store.give_up() == []
        assert mine is not None
        assert isinstance(await store.settle(mine.delivery, OK, RAN), Delivery)


async def test_ended_ones_are_forgotten_and_that_is_known_for_a_while(tmp_path: Path) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        one = await accepted(store, letter=None)
        await store.settle(await taken(store), FailedForGood("exhausted"), RAN)
        assert await store.expire() == {}
        times.pass_by(DAY + 1)
        assert await store.find(one.delivery.id) is Gone.EXPIRED
        assert await store.expire() == {"orders": 1}
        assert await store.find(one.delivery.id) is Gone.EXPIRED
        assert await store.find("d_unknown") is Gone.UNKNOWN
        times.pass_by(DAY + 1)
        await store.expire()
        assert await store.find(one.delivery.id) is Gone.UNKNOWN


async def test_delivered_ones_are_no_more_than_there_is_room(tmp_path: Path) -> None:
    times = Times()
    async with opened(tmp_path, times, entries=3) as store:
        ids = []
        for _ in range(5):
            ids.append((await accepted(store)).delivery.id)
            await store.settle(await taken(store), OK, RAN)
            times.pass_by(1)
        assert await store.expire() == {}
        found = [await store.find(each) for each in ids]
        assert [one is Gone.EXPIRED for one in found] == [True, True, False, False, False]
        # Nor are those that are known to be gone.
        times.pass_by(DAY / 2)
        for _ in range(3):
            await accepted(store)
            await store.settle(await taken(store), OK, RAN)
        await store.expire()
        found = [await store.find(each) for each in ids]
        assert found == [Gone.UNKNOWN] * 2 + [Gone.EXPIRED] * 3


async def test_pages_and_counts(tmp_path: Path) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        ids = []
        for turn in range(7):
            times.pass_by(1)
            one = await accepted(store, route="ab"[turn % 2], delay=60)
            ids.append(one.delivery.id)
        seen: list[str] = []
        after = ""
        while True:
            page = await store.page(after=after, limit=3)
            assert len(page.deliveries) <= 3
            seen += [each.id for each in page.deliveries]
            after = page.next
            if not after:
                break
        assert seen == ids
        newest = await store.page(limit=2, newest=True)
        assert [each.id for each in newest.deliveries] == [ids[6], ids[5]]
        more = await store.page(limit=2, newest=True, after=newest.next)
        assert [each.id for each in more.deliveries] == [ids[4], ids[3]]
        await store.cancel(ids[0])
        found = await store.page(route="a", state=DeliveryState.WAITING)
        assert [each.id for each in found.deliveries] == [ids[2], ids[4], ids[6]]
        assert [each.id for each in (await store.page(reason="cancelled")).deliveries] == [ids[0]]
        await eventually(
            lambda: "a" in store.counts and DeliveryState.CANCELLED in store.counts["a"].states
        )
        counts = store.counts["a"]
        assert counts.states == {DeliveryState.WAITING: 3, DeliveryState.CANCELLED: 1}
        assert counts.oldest == 1.8e9 + 3
        assert counts.next_due == 1.8e9 + 3 + 60
        assert counts.size > 0


async def test_why_a_route_sends_nothing_is_told_where_it_is_due(tmp_path: Path) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        due, later = await accepted(store), await accepted(store, delay=50)
        await store.defer("orders", DeferralReason.UPSTREAM_DOWN, 30)
        assert (await shown(store, due.delivery.id)).deferred is DeferralReason.UPSTREAM_DOWN
        assert (await shown(store, later.delivery.id)).deferred is None
        times.pass_by(31)
        assert (await shown(store, due.delivery.id)).deferred is None
        await store.defer("orders", DeferralReason.PAUSED, 30)
        await store.defer("orders", None)
        assert (await shown(store, due.delivery.id)).deferred is None


async def test_canaries_are_the_oldest_that_were_not_tried_for_long(tmp_path: Path) -> None:
    times = Times()
    async with opened(tmp_path, times) as store:
        ids = []
        for _ in range(3):
            ids.append((await accepted(store, delay=1000)).delivery.id)
            times.pass_by(1)
        page = await store.candidates("orders", not_tried_for=10)
        assert [each.id for each in page.deliveries] == ids
        canary = await store.take_one(ids[0], [URL])
        assert canary is not None
        await store.settle(canary.delivery, RetryLater(1000, "x", counts=False), RAN)
        page = await store.candidates("orders", not_tried_for=10, limit=1)
        assert [each.id for each in page.deliveries] == [ids[1]]
        page = await store.candidates("orders", not_tried_for=10, limit=1, after=page.next)
        assert [each.id for each in page.deliveries] == [ids[2]]
        times.pass_by(10)
        page = await store.candidates("orders", not_tried_for=10)
        assert [each.id for each in page.deliveries] == ids


async def test_who_waits_for_the_end_hears_of_it_in_any_process(tmp_path: Path) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await store.lead()
        one = await accepted(store)
        waits = [
            asyncio.create_task(each.wait_for_end(one.delivery.id, 30))
            for each in (store, store, other)
        ]
        mine = await taken(store)
        await store.settle(mine, OK, RAN)
        for found in await asyncio.gather(*waits):
            assert found is not None
            assert found.response == OK.response
        assert await store.wait_for_end("d_unknown", 30) is None
        still = await accepted(store)
        assert await store.wait_for_end(still.delivery.id, 0.01) is None
        impatient = asyncio.create_task(store.wait_for_end(still.delivery.id, 30))
        patient = asyncio.create_task(store.wait_for_end(still.delivery.id, 30))
        await asyncio.sleep(0)
        impatient.cancel()
        await store.settle(await taken(store), OK, RAN)
        assert await patient is not None
        assert not store._waiting


async def test_the_runs_that_are_kept_are_bounded_but_for_those_that_may_have_run(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        one = await accepted(store, runs=(RAN,))
        for _ in range(104):
            mine = await store.take_one(one.delivery.id)
            assert mine is not None
            await store.settle(mine.delivery, RetryLater(0, "x"), DID_NOT_RUN)
        found = await store.find(one.delivery.id)
        assert isinstance(found, ShownDelivery)
        assert (len(found.runs), found.runs[0]) == (100, RAN)
        assert (found.delivery.may_have_run, found.delivery.ran_at) == (True, (URL,))


TERMS = KeyTerms(DAY, holds_ambiguous=True)


async def test_an_ended_delivery_has_its_key_as_long_as_that_counts(tmp_path: Path) -> None:
    clock = Times()
    async with opened(tmp_path, clock) as store:
        keyed = {"record": "key", "fingerprint": b"a", "key_terms": TERMS}
        first = (await accepted(store, **keyed, ttl=9 * DAY)).delivery
        await store.settle(await taken(store), OK, DID_NOT_RUN)
        again = await accepted(store, **keyed)
        assert (again.is_duplicate, again.delivery.id) == (True, first.id)
        other = await store.accept(new(record="key", fingerprint=b"b", key_terms=TERMS))
        assert isinstance(other, Mismatch)
        clock.pass_by(DAY + 1)
        assert not (await accepted(store, **keyed)).is_duplicate


async def test_a_key_is_held_if_its_delivery_failed_and_may_have_run(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        keyed = {"record": "key", "fingerprint": b"a", "key_terms": TERMS}
        first = (await accepted(store, **keyed)).delivery
        await store.settle(await taken(store), FailedForGood("x"), RAN)
        held = await store.accept(new(**keyed))
        assert isinstance(held, HeldKey)
        assert held.delivery_id == first.id
        free = {**keyed, "key_terms": KeyTerms(DAY, holds_ambiguous=False)}
        assert not (await accepted(store, **free)).is_duplicate


async def test_a_failure_keeps_the_answer_until_it_begins_anew(tmp_path: Path) -> None:
    response = DeliveredResponse(404, ((b"X-Why", b"gone"),), b"no")
    async with opened(tmp_path) as store:
        await accepted(store)
        one = await taken(store)
        await store.settle(one, FailedForGood("x", "404", response=response), DID_NOT_RUN)
        found = await store.find(one.id)
        assert isinstance(found, ShownDelivery)
        assert (found.response, found.delivery.response_status) == (response, 404)
        again = await store.retry(found.delivery, repeatable=False)
        assert isinstance(again, Delivery)
        found = await store.find(one.id)
        assert isinstance(found, ShownDelivery)
        assert (found.response, found.delivery.response_status) == (None, 0)
        assert found.runs[-1].result == "retried"


async def test_a_letter_is_withdrawn_if_its_client_has_the_answer(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await accepted(store)
        one = await taken(store)
        await store.settle(one, FailedForGood("x"), DID_NOT_RUN)
        assert (await shown(store, one.id)).letter is not None
        await store.withdraw_letter(one.id)
        left = await shown(store, one.id)
        assert (left.letter, left.state) == (None, DeliveryState.FAILED)
        assert left.expires == pytest.approx(left.ended + left.ttl)


async def test_attempts_are_given_back_to_what_is_retried(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await accepted(store)
        one = await taken(store)
        await store.settle(one, RetryLater(30, "x"), DID_NOT_RUN)
        await store.forgive([one.id, one.id, "d_unknown"])
        assert (await shown(store, one.id)).attempts == 0


async def test_candidates_and_abandoned_ones_have_their_fields(tmp_path: Path) -> None:
    """Whether a key makes them repeatable is read from these."""
    async with opened(tmp_path) as store:
        headers = ((b"Idempotency-Key", b"k"), (b"Authorization", b"secret"))
        await accepted(store, headers=headers, wiped=frozenset({"authorization"}))
        (found,) = (await store.candidates("orders", not_tried_for=0)).deliveries
        assert found.headers == headers[:1]
        await taken(store)
    async with opened(tmp_path) as store:
        (found,) = await store.recover(again)
        assert found.headers == headers[:1]
