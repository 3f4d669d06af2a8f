"""Any order of calls by several processes that may die: the engine does what one model says.

The model is a dictionary, written from the contract and not from the code: no id is ever in two
states, none is lost, the totals are true, and no delivery has two owners.
"""

import asyncio
import tempfile
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from proxy.policy.dead_letter import Obstacle
from proxy.policy.delivery.state import (
    Delivered,
    DeliveredResponse,
    Delivery,
    FailedForGood,
    LetterTerms,
    RetryLater,
    TransitionRefusal,
)
from proxy.policy.delivery.words import DeliveryState
from proxy.stores.dead_letters import DeadLetterStore
from proxy.stores.deliveries import (
    Abandoned,
    Accepted,
    FileDeliveryStore,
    Gone,
    Mismatch,
    NoCapacity,
    ShownDelivery,
)
from tests.stores.deliveries.kit import DAY, DID_NOT_RUN, RAN, URL, Times, new

T = TypeVar("T")

PROCESSES = st.integers(0, 1)
ROUTES = st.sampled_from(["a", "b"])
KEYS = st.sampled_from(["", "", "k", "l"])
PRINTS = st.sampled_from([b"p", b"p", b"p", b"q"])
STEPS = st.sampled_from([7.0, 40.0, 600.0])
JUMPS = st.sampled_from([-DAY, -3600.0, 0.5, 3600.0, DAY])
GIVES_UP = 500.0
MOST = 12


@dataclass
class Entry:
    """What the model knows of a delivery."""

    route: str
    key: str
    print: bytes
    due: float
    gives_up: float
    keeps_letter: bool
    accepted: float = 0.0
    state: str = "waiting"
    owner: tuple[int, int] | None = None
    """The process that sends it, and in which of its lives."""
    tries: int = 0
    attempts: int = 0
    ran: bool = False

    @property
    def is_open(self) -> bool:
        return self.state in {"waiting", "sending", "retrying"}

    @property
    def is_pending(self) -> bool:
        return self.state in {"waiting", "retrying"}


class Engine(RuleBasedStateMachine):
    """Drives two processes on one file, and the model beside them."""

    in_hand = Bundle("in_hand")
    """Deliveries that were taken: process, its life, and what it got."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory(dir=_memory_disk())
        self._times = Times()
        self._stores: list[FileDeliveryStore] = []
        self._lives = [0, 0]
        self._entries: dict[str, Entry] = {}
        self._made = 0
        self._now = 0.0

    @initialize()
    def open(self) -> None:
        self._stores = [self._run(self._opened()) for _ in range(2)]
        self._letters = DeadLetterStore(self._folder.name, self._times, _Silent())
        self._run(self._letters.start())

    def teardown(self) -> None:
        for store in self._stores:
            self._run(store.close())
        if self._stores:
            self._run(self._letters.close())
        self._runner.close()
        self._folder.cleanup()

    def _run(self, call: Awaitable[T]) -> T:
        async def wait() -> T:
            return await call

        return self._runner.run(wait())

    async def _opened(self) -> FileDeliveryStore:
        store = FileDeliveryStore(self._folder.name, self._times, entries=MOST, size=10**6)
        await store.start()
        return store

    # What may happen.

    @rule(process=PROCESSES, route=ROUTES, key=KEYS, fingerprint=PRINTS, letter=st.booleans())
    def accept(
        self, process: int, route: str, key: str, fingerprint: bytes, *, letter: bool
    ) -> None:
        self._made += 1
        one = new(
            id=f"d_{self._made:022}",  # the same whenever hypothesis repeats this
            route=route,
            record=key,
            fingerprint=fingerprint,
            caller=f"c{self._made}",  # each is another one: none comes near its share
            give_up_after=GIVES_UP,
            letter=LetterTerms(1e9, 20) if letter else None,
            ttl=30 * DAY,
        )
        answer = self._run(self._stores[process].accept(one))
        first = next(
            (name for name, e in self._entries.items() if key and e.key == key and e.is_open), None
        )
        held = sum(e.is_open or e.state == "failed" for e in self._entries.values())
        if first is not None and self._entries[first].print != fingerprint:
            assert answer == Mismatch(first)
        elif first is not None:
            assert isinstance(answer, Accepted)
            assert (answer.delivery.id, answer.is_duplicate) == (first, True)
        elif held >= MOST:
            assert isinstance(answer, NoCapacity)
        else:
            assert isinstance(answer, Accepted)
            assert (answer.delivery.id, answer.is_duplicate) == (one.id, False)
            gives_up = self._now + GIVES_UP
            self._entries[one.id] = Entry(
                route, key, fingerprint, self._now, gives_up, letter, accepted=self._now
            )

    @rule(target=in_hand, process=PROCESSES, route=ROUTES, limit=st.integers(1, 3))
    def take(self, process: int, route: str, limit: int) -> object:
        batch = self._run(self._stores[process].take(route, limit, [URL]))
        due = {
            name: e
            for name, e in self._entries.items()
            if e.route == route and e.is_pending and e.due <= self._now < e.gives_up
        }
        assert len(batch.taken) == min(limit, len(due))
        for one in batch.taken:
            entry = due.pop(one.delivery.id)  # nobody else has it
            assert all(entry.due <= other.due for other in due.values() if other.is_pending)
            entry.state, entry.owner = "sending", (process, self._lives[process])
        return multiple(*((process, self._lives[process], one.delivery) for one in batch.taken))

    @rule(target=in_hand, process=PROCESSES, data=st.data())
    def take_a_canary(self, process: int, data: st.DataObject) -> object:
        if not self._entries:
            return multiple()
        name = data.draw(st.sampled_from(sorted(self._entries)))
        entry = self._entries[name]
        got = self._run(self._stores[process].take_one(name, [URL]))
        assert (got is not None) == (entry.is_pending and self._now < entry.gives_up)
        if got is None:
            return multiple()
        entry.state, entry.owner = "sending", (process, self._lives[process])
        return multiple((process, self._lives[process], got.delivery))

    @rule(
        hand=consumes(in_hand),
        end=st.sampled_from(["delivered", "retrying", "failed", "given back"]),
        ran=st.booleans(),
        twice=st.booleans(),
    )
    def settle(self, hand: tuple[int, int, Delivery], end: str, *, ran: bool, twice: bool) -> None:
        process, life, taken = hand
        entry = self._entries.get(taken.id)
        if entry is None:  # its owner died, and an operator dropped its letter
            answer = self._run(self._stores[process].settle(taken, FailedForGood("x"), DID_NOT_RUN))
            assert answer is TransitionRefusal.UNKNOWN
            return
        # A process that died has nobody who could settle; the next one of its kind may try.
        store, run = self._stores[process], RAN if ran else DID_NOT_RUN
        is_owner = entry.state == "sending" and entry.owner == (process, life)
        if life != self._lives[process] and is_owner:
            return  # its owner is dead, and says nothing
        for _ in range(1 + twice):
            match end:
                case "given back":
                    answer = self._run(store.give_back(taken, delay=30))
                case "delivered":
                    done = Delivered(DeliveredResponse(200, (), b""))
                    answer = self._run(store.settle(taken, done, run))
                case "retrying":
                    answer = self._run(store.settle(taken, RetryLater(30, "x"), run))
                case _:
                    answer = self._run(store.settle(taken, FailedForGood("x"), run))
            if not is_owner:
                assert answer is TransitionRefusal.NOT_SENDING or isinstance(answer, Delivery)
                return  # and the invariants say that nothing has changed
            assert isinstance(answer, Delivery)
        entry.owner = None
        entry.due = self._now + 30
        if end == "given back":
            entry.state = "retrying" if entry.tries else "waiting"
            return
        entry.state = end
        entry.tries += 1
        entry.attempts += 1
        entry.ran = entry.ran or ran

    @rule(process=PROCESSES, data=st.data())
    def cancel(self, process: int, data: st.DataObject) -> None:
        if not self._entries:
            return
        name = data.draw(st.sampled_from(sorted(self._entries)))
        entry = self._entries[name]
        answer = self._run(self._stores[process].cancel(name))
        if entry.is_pending:
            assert isinstance(answer, Delivery)
            entry.state = "cancelled"
        else:
            is_sending = entry.state == "sending"
            expected = TransitionRefusal.SENDING if is_sending else TransitionRefusal.ENDED
            assert answer is expected

    @rule(process=PROCESSES, repeatable=st.booleans(), force=st.booleans(), data=st.data())
    def retry(self, process: int, data: st.DataObject, *, repeatable: bool, force: bool) -> None:
        if not self._entries:
            return
        name = data.draw(st.sampled_from(sorted(self._entries)))
        entry, store = self._entries[name], self._stores[process]
        found = self._run(store.find(name))
        if isinstance(found, Gone):  # the date was set: what ended seems to be long past
            assert not entry.is_open
            return
        answer = self._run(store.retry(found.delivery, repeatable=repeatable, force=force))
        same = [e for e in self._entries.values() if entry.key and e.key == entry.key]
        is_rival = any(e.is_open for e in same)
        last = max((e.accepted for e in same), default=0.0)
        newest = [e for e in same if e.accepted == last and e is not entry]
        if entry.is_pending:
            assert isinstance(answer, Delivery)
            entry.due = self._now
        elif entry.state != "failed":
            is_sending = entry.state == "sending"
            expected = TransitionRefusal.SENDING if is_sending else TransitionRefusal.ENDED
            assert answer is expected
        elif entry.ran and not repeatable and not force:
            assert answer is TransitionRefusal.MAY_HAVE_RUN
        elif is_rival:
            assert answer is TransitionRefusal.DUPLICATE
        elif newest and isinstance(answer, TransitionRefusal):
            # The key was free, and another request with it was delivered, or may have run.
            is_done = any(e.state == "delivered" for e in newest)
            may_have_run = any(e.ran for e in newest) and not repeatable and not force
            assert is_done or may_have_run
            assert answer in {TransitionRefusal.ENDED, TransitionRefusal.MAY_HAVE_RUN}
        else:
            assert isinstance(answer, Delivery)
            # Of two that were accepted in one moment, which is the newer is not known.
            assert entry.accepted == last or not any(e.state == "delivered" for e in newest)
            entry.state = "retrying" if entry.tries else "waiting"
            entry.attempts = 0
            entry.due, entry.gives_up = self._now, self._now + GIVES_UP

    @rule(process=PROCESSES)
    def give_up(self, process: int) -> None:
        ended = self._run(self._stores[process].give_up())
        over = {
            name: e for name, e in self._entries.items() if e.is_pending and e.gives_up <= self._now
        }
        assert {each.id for each in ended} == set(over)
        for entry in over.values():
            entry.state = "failed"

    @rule(process=PROCESSES, repeatable=st.booleans())
    def recover(self, process: int, *, repeatable: bool) -> None:
        fate = Abandoned(repeatable, 5)
        recovered = self._run(self._stores[process].recover(lambda _: fate))
        dead = {
            name: e
            for name, e in self._entries.items()
            if e.state == "sending" and e.owner is not None and self._is_dead(e.owner)
        }
        assert {each.id for each in recovered} == set(dead)
        for entry in dead.values():
            entry.owner, entry.ran = None, True
            entry.tries += 1
            entry.attempts += 1
            entry.state, entry.due = ("retrying" if repeatable else "failed"), self._now + 5

    def _is_dead(self, owner: tuple[int, int]) -> bool:
        process, life = owner
        return life != self._lives[process]

    @rule(process=PROCESSES)
    def crash(self, process: int) -> None:
        """End a process without a word, and start another one in its place."""
        store = self._stores[process]
        presence = store._presence
        assert presence is not None
        # What the kernel does at the end of a process; the connection sees no end either.
        presence.close()
        store._presence = None
        self._lives[process] += 1
        self._run(store.close())
        self._stores[process] = self._run(self._opened())

    @rule(seconds=STEPS)
    def wait(self, seconds: float) -> None:
        self._times.pass_by(seconds)
        self._now += seconds

    @rule(seconds=JUMPS)
    def set_the_clock(self, seconds: float) -> None:
        """Set the date of the machine: nothing is due sooner or later by that."""
        self._times.date += seconds

    @rule(data=st.data())
    def drop_the_letter(self, data: st.DataObject) -> None:
        names = sorted(name for name, e in self._entries.items() if e.state == "failed")
        if not names:
            return
        name = data.draw(st.sampled_from(names))
        keeps_letter = self._entries[name].keeps_letter
        assert self._run(self._letters.drop(name)) is (True if keeps_letter else None)
        if keeps_letter:
            del self._entries[name]
            assert self._run(self._stores[0].find(name)) is Gone.EXPIRED

    @rule(data=st.data(), succeeds=st.booleans())
    def replay_the_letter(self, data: st.DataObject, *, succeeds: bool) -> None:
        names = sorted(
            name for name, e in self._entries.items() if e.state == "failed" and e.keeps_letter
        )
        if not names:
            return
        name = data.draw(st.sampled_from(names))
        entry = self._entries[name]
        letter = self._run(self._letters.begin_replay(name, "t", force=False))
        if entry.ran:
            assert letter is Obstacle.MAY_HAVE_RUN
            return
        assert not isinstance(letter, Obstacle)
        found = self._run(self._stores[0].find(name))
        assert isinstance(found, ShownDelivery)
        answer = self._run(self._stores[0].retry(found.delivery, repeatable=True))
        assert answer is TransitionRefusal.REPLAYING
        self._run(self._letters.end_replay(name, "t", None, may_have_run=False, gone=succeeds))
        if succeeds:
            entry.state = "delivered"
            entry.tries += 1
            entry.attempts += 1

    # What is always true.

    @invariant()
    def all_are_there_in_one_state(self) -> None:
        if not self._stores:
            return
        found = {each.id: each for each in self._run(self._stores[0].page(limit=1000)).deliveries}
        assert {name: each.state.value for name, each in found.items()} == {
            name: entry.state for name, entry in self._entries.items()
        }
        for name, entry in self._entries.items():
            each = found[name]
            assert (each.tries, each.attempts, each.may_have_run) == (
                entry.tries,
                entry.attempts,
                entry.ran,
            )

    @invariant()
    def totals_are_true(self) -> None:
        if not self._stores:
            return
        store = self._stores[1]
        self._run(store._count())
        counted = {
            (route, state): number
            for route, counts in store.counts.items()
            for state, number in counts.states.items()
        }
        expected: dict[tuple[str, DeliveryState], int] = {}
        for entry in self._entries.values():
            place = entry.route, DeliveryState(entry.state)
            expected[place] = expected.get(place, 0) + 1
        assert counted == expected
        self._run(self._letters._count())
        letters = {route: counts.waiting for route, counts in self._letters.counts.items()}
        kept: dict[str, int] = {}
        for entry in self._entries.values():
            if entry.state == "failed" and entry.keeps_letter:
                kept[entry.route] = kept.get(entry.route, 0) + 1
        assert letters == kept


class _Silent:
    def count(self, *_: object, by: int = 1) -> None: ...


def _memory_disk() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - waits for no disk


def test_the_model() -> None:
    run_state_machine_as_test(
        Engine, settings=settings(max_examples=25, stateful_step_count=30, deadline=None)
    )


@pytest.mark.deep
def test_the_model_at_length() -> None:
    run_state_machine_as_test(
        Engine, settings=settings(max_examples=800, stateful_step_count=60, deadline=None)
    )
