"""Which callers have a bucket of their own: those that proved themselves come first."""

from collections import Counter
from random import Random

import pytest

from proxy.policy.settings import Rate, ThrottleSettings
from proxy.policy.throttle.caller_table import SHARED, CallerTable
from proxy.policy.throttle.limiter import LocalRateLimiter


def name(caller: str) -> bytes:
    """Return a digest: callers whose names begin alike share a bucket if they have none."""
    return caller.encode()


class Stage:
    """A table whose buckets are words; it is told which of them are idle."""

    def __init__(self, most: int = 3) -> None:
        self.table: CallerTable[str] = CallerTable(most)
        self.idle: set[str] = set()

    def come(self, caller: str) -> str:
        """The bucket of a caller who comes: its own name, or ``shared``."""
        found = self.table.find(name(caller))
        if found is not None:
            return found
        if self.table.make_space(name(caller), self.idle.__contains__):
            self.table.add(name(caller), caller)
            return caller
        return self.table.shared(name(caller), lambda number: f"shared {chr(number)}")

    def succeed(self, *callers: str) -> None:
        """Each comes, and is answered below 400."""
        for caller in callers:
            self.come(caller)
            self.table.prove(name(caller))

    def own(self) -> set[str]:
        return {bucket for bucket in self.table.buckets() if not bucket.startswith("shared")}


def test_as_long_as_there_is_room_everybody_has_one() -> None:
    stage = Stage()
    assert [stage.come(caller) for caller in "abcabc"] == list("abcabc")
    assert len(stage.table) == 3


def test_beyond_that_new_ones_share_by_digest() -> None:
    stage = Stage()
    for caller in "abc":
        stage.come(caller)
    assert [stage.come(caller) for caller in ("d1", "d2", "e")] == ["shared d"] * 2 + ["shared e"]
    assert [stage.come(caller) for caller in "abc"] == list("abc"), "who has one keeps it"
    assert len(stage.table) == 5


def test_there_are_so_many_shared_ones_and_no_more() -> None:
    table: CallerTable[int] = CallerTable(1)
    assert table.make_space(b"x", lambda _: False)
    table.add(b"x", -1)
    chance = Random(1)
    digests = [chance.randbytes(16) for _ in range(10_000)]
    found = Counter(table.shared(digest, int) for digest in digests)
    assert len(found) == SHARED == len(table) - 1
    assert max(found.values()) < 3 * min(found.values()), "they are about even"


def test_who_shares_a_bucket_finds_it_as_it_was_left() -> None:
    table: CallerTable[list[str]] = CallerTable(0)
    for caller in ("d1", "d2", "d1"):
        table.shared(name(caller), lambda _: []).append(caller)
    assert list(table.buckets()) == [["d1", "d2", "d1"]]


@pytest.mark.parametrize("caller", ["new", "known"])
def test_an_idle_one_makes_room_for_anybody(caller: str) -> None:
    stage = Stage()
    stage.succeed("known")
    for other in "abc":
        stage.come(other)
        stage.idle |= {"known", "b"}
    assert stage.come(caller) == caller
    assert "b" not in stage.own()
    assert {"a", "c"} < stage.own()


def test_who_is_known_is_not_displaced_by_new_ones() -> None:
    stage = Stage()
    stage.succeed("a", "b")
    stage.come("x")
    for new in ("y1", "y2", "z1"):
        assert stage.come(new).startswith("shared")
    stage.succeed("z1")
    assert stage.come("z1") == "z1", "it has proved itself in a shared one"
    assert stage.own() == {"a", "b", "z1"}
    assert stage.come("x") == "shared x"


def test_who_is_known_and_idle_gets_its_place_again_whoever_came_meanwhile() -> None:
    stage = Stage()
    stage.succeed("a")
    stage.idle.add("a")
    for new in ("x1", "x2", "x3"):
        assert stage.come(new) == new
    assert stage.own() == {"x1", "x2", "x3"}, "an idle bucket is of no use to anybody"
    stage.idle.clear()
    assert stage.table.is_known(name("a"))
    assert stage.come("a") == "a"
    assert stage.own() == {"x2", "x3", "a"}


def test_known_ones_in_use_do_not_displace_each_other() -> None:
    stage = Stage()
    stage.succeed("a", "b", "c", "d")
    assert stage.come("d") == "shared d"
    assert stage.own() == {"a", "b", "c"}
    stage.idle.add("b")
    assert stage.come("d") == "d"
    assert stage.table.is_known(name("b"))


def test_a_sweep_leaves_those_in_use_and_the_memory_of_who_is_known() -> None:
    stage = Stage()
    stage.succeed("a", "b")
    stage.come("x")
    stage.come("y")
    stage.idle |= {"a", "x", "shared y"}
    stage.table.sweep(stage.idle.__contains__)
    assert list(stage.table.buckets()) == ["b"]
    assert [stage.table.is_known(name(caller)) for caller in "abxy"] == [True, True, False, False]


def test_no_more_are_remembered_than_have_slots() -> None:
    stage = Stage()
    for number in range(50):
        caller = f"k{number}"
        stage.succeed(caller)
        stage.idle.add(caller)
    known = [number for number in range(50) if stage.table.is_known(name(f"k{number}"))]
    assert known == list(range(44, 50)), "three with buckets and three without, the latest ones"


def test_it_forgets_all_of_them() -> None:
    stage = Stage()
    stage.succeed("a")
    for caller in "xyz":
        stage.come(caller)
    stage.table.clear()
    assert not len(stage.table)
    assert not stage.table.is_known(name("a"))


# An attacker who makes up callers, and those who come back.

HOURLY = ThrottleSettings((Rate(60, 3600.0),), max_wait=0.0)
"""So each made-up caller's bucket is busy for a minute and more."""
MOST = 50


class Town:
    """Callers with real limits, and a time that the test sets."""

    def __init__(self) -> None:
        self.table: CallerTable[LocalRateLimiter] = CallerTable(MOST)
        self.now = 0.0
        self.let_out: Counter[str] = Counter()

    def call(self, caller: str, digest: bytes, *, succeeds: bool) -> bool:
        """Whether it is let out; the upstream answers it well, or not."""
        limiter = self.table.find(digest)
        if limiter is None:
            limiter = self._place(digest)
        if not limiter.take(self.now, 0):
            return False
        self.let_out[caller] += 1
        if succeeds:
            self.table.prove(digest)
        return True

    def _place(self, digest: bytes) -> LocalRateLimiter:
        def new(_: int) -> LocalRateLimiter:
            return LocalRateLimiter(HOURLY, self.now)

        if self.table.make_space(digest, lambda one: one.is_idle(self.now)):
            limiter = new(0)
            self.table.add(digest, limiter)
            return limiter
        return self.table.shared(digest, new)


def test_made_up_callers_do_not_starve_those_who_come_back() -> None:
    town, chance = Town(), Random(12)
    victims = {f"victim {number}": chance.randbytes(16) for number in range(5)}
    for victim, digest in victims.items():
        assert town.call(victim, digest, succeeds=True)
    refused: Counter[str] = Counter()
    for minute in range(1, 121):
        for second in range(60):
            town.now = 62.0 * minute + second
            for _ in range(4):  # each needs its own bucket for a minute: five times what there is
                town.call("attacker", chance.randbytes(16), succeeds=False)
        if minute % 10 == 0:
            town.table.sweep(lambda one: one.is_idle(town.now))
        for victim, digest in victims.items():
            if not town.call(victim, digest, succeeds=True):
                refused[victim] += 1
    assert not refused
    # Nor does the upstream see more of the attacker than all its buckets let out.
    buckets, hours = MOST + SHARED, town.now / 3600
    assert town.let_out["attacker"] <= buckets * (60 * hours + 2)


def test_who_comes_for_the_first_time_meanwhile_is_known_after_one_good_call() -> None:
    town, chance = Town(), Random(3)
    for _ in range(MOST):
        town.call("attacker", chance.randbytes(16), succeeds=False)
    newcomer = chance.randbytes(16)
    assert town.table.find(newcomer) is None
    assert town.call("newcomer", newcomer, succeeds=True), "nobody has used its shared bucket"
    for minute in range(1, 60):
        town.now = 62.0 * minute
        for _ in range(1000):
            town.call("attacker", chance.randbytes(16), succeeds=False)
        assert town.call("newcomer", newcomer, succeeds=True), minute
