"""Any order of calls, by any callers, at any time: every store does what standards 1.8 says.

The model below is written from that text, not from the code. Time passes in steps that
never come near the end of a lease or of a retention, so that what the test itself takes
does not matter.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from proxy.policy.idempotency.record import LEFT_FOR, ClaimAnswer, Ending, RecordState
from tests.stores.key_stores import (
    LEASE,
    TTL,
    KeyStore,
    MemoryKeyStore,
    RedisKeyStore,
    SqliteKeyStore,
    ask,
)
from tests.support.redis_server import RedisServer

T = TypeVar("T")

NAMES = st.sampled_from(["a", "b"])
OWNERS = st.sampled_from(["1", "2", "3"])
PRINTS = st.sampled_from([b"p" * 32] * 4 + [b"q" * 32])
ENDINGS = st.sampled_from([*RecordState][1:] + [None] * 3)
RESULTS = st.sampled_from([b"", b"\0result", b"another"])
STEPS = st.sampled_from([7.3, 7.3, 61.7])


@dataclass
class Entry:
    """What the model knows of a key."""

    state: str
    token: str
    fp: bytes
    lease_end: float
    forgotten_at: float
    payload: bytes = b""
    has_rival: bool = False


class Keys(RuleBasedStateMachine):
    """Drives two stores on one ground, and a model beside them."""

    make: Callable[[], KeyStore]

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._backend = type(self).make()
        self._stores = [self._run(self._backend.open()) for _ in range(2)]
        self._entries: dict[str, Entry] = {}
        self._left: dict[str, tuple[float, bytes]] = {}
        self._now = 0.0

    def teardown(self) -> None:
        self._run(self._backend.close())
        self._runner.close()

    def _run(self, call: Awaitable[T]) -> T:
        async def wait() -> T:
            return await call

        return self._runner.run(wait())

    def _entry(self, name: str) -> Entry | None:
        entry = self._entries.get(name)
        return None if entry is None or entry.forgotten_at <= self._now else entry

    def _is_owned(self, name: str, token: str) -> bool:
        entry = self._entry(name)
        return entry is not None and entry.state == "inflight" and entry.token == token

    @rule(
        which=st.integers(0, 1),
        name=NAMES,
        token=OWNERS,
        fp=PRINTS,
        takes_over=st.booleans(),
        waited_for=st.one_of(st.just(""), OWNERS),
    )
    def claim(
        self, *, which: int, name: str, token: str, fp: bytes, takes_over: bool, waited_for: str
    ) -> None:
        claim = ask(token, name, fingerprint=fp, takes_over=takes_over, waited_for=waited_for)
        got = self._run(self._stores[which].claim(claim))
        entry = self._entry(name)
        until, outcome = self._left.get(waited_for, (0.0, b""))
        if self._now < until:
            assert (got.answer, got.result) == (ClaimAnswer.LEFT, outcome)
        elif entry is None:
            assert got.answer is ClaimAnswer.NEW
            self._write(name, token, fp)
        elif entry.fp != fp:
            assert got.answer is ClaimAnswer.MISMATCH
        elif entry.state == "done":
            assert (got.answer, got.result) == (ClaimAnswer.DONE, entry.payload)
        elif entry.state in {"unstored", "held"}:
            assert got.answer == entry.state
            assert not got.result
        elif self._now < entry.lease_end:
            assert (got.answer, got.owner) == (ClaimAnswer.BUSY, entry.token)
            assert got.lease_left == pytest.approx(entry.lease_end - self._now, abs=1.5)
            entry.has_rival = True
        elif takes_over:
            assert got.answer is ClaimAnswer.NEW
            self._write(name, token, fp)
        else:
            assert got.answer is ClaimAnswer.HELD

    def _write(self, name: str, token: str, fp: bytes) -> None:
        lease_end = self._now + LEASE
        self._entries[name] = Entry("inflight", token, fp, lease_end, lease_end + TTL)

    @rule(which=st.integers(0, 1), name=NAMES, token=OWNERS, state=ENDINGS, result=RESULTS)
    def settle(
        self, *, which: int, name: str, token: str, state: RecordState | None, result: bytes
    ) -> None:
        is_owned = self._is_owned(name, token)
        got = self._run(self._stores[which].settle(name, token, Ending(state, TTL, result)))
        assert got is is_owned
        if not is_owned:
            return
        if state is not RecordState.DONE and result and self._entries[name].has_rival:
            self._left[token] = (self._now + LEFT_FOR, result)
        if state is None:
            del self._entries[name]
            return
        entry = self._entries[name]
        entry.state = state.value
        entry.forgotten_at = self._now + TTL
        entry.payload = result if state is RecordState.DONE else b""

    @rule(which=st.integers(0, 1), name=NAMES, token=OWNERS)
    def renew(self, *, which: int, name: str, token: str) -> None:
        is_owned = self._is_owned(name, token)
        assert self._run(self._stores[which].renew(name, token, LEASE, TTL)) is is_owned
        if is_owned:
            entry = self._entries[name]
            entry.lease_end = self._now + LEASE
            entry.forgotten_at = entry.lease_end + TTL

    @rule(which=st.integers(0, 1), name=NAMES)
    def revoke(self, *, which: int, name: str) -> None:
        entry = self._entry(name)
        alive = entry is not None and entry.state == "inflight" and self._now < entry.lease_end
        assert self._run(self._stores[which].revoke(name)) is alive
        if entry is not None and alive:
            entry.state = "held"

    @rule(which=st.integers(0, 1), name=NAMES)
    def drop(self, *, which: int, name: str) -> None:
        entry = self._entry(name)
        alive = entry and entry.state == "inflight" and self._now < entry.lease_end
        got = self._run(self._stores[which].drop(name))
        assert got is (entry is not None and not alive)
        if got:
            del self._entries[name]

    @rule(which=st.integers(0, 1), name=NAMES)
    def show(self, *, which: int, name: str) -> None:
        entry = self._entry(name)
        shown = self._run(self._stores[which].show(name))
        if entry is None:
            assert shown is None
            return
        assert shown is not None
        if entry.state == "inflight":
            alive = self._now < entry.lease_end
            assert shown.state is (RecordState.IN_FLIGHT if alive else RecordState.HELD)
        else:
            assert shown.state == entry.state
        assert shown.size == len(entry.payload)

    @rule(seconds=STEPS)
    def wait(self, seconds: float) -> None:
        self._run(self._backend.advance(seconds))
        self._now += seconds


def drive(make: Callable[[], KeyStore], examples: int, steps: int) -> None:
    machine = type("Machine", (Keys,), {"make": staticmethod(make)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
        ),
    )


def test_memory() -> None:
    drive(MemoryKeyStore, 80, 50)


def test_sqlite() -> None:
    with tempfile.TemporaryDirectory() as folder:
        drive(lambda: SqliteKeyStore(Path(folder)), 25, 50)


def test_redis(server: RedisServer) -> None:
    drive(lambda: RedisKeyStore(server), 20, 50)
