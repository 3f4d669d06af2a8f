from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from proxy.policy.fair_share import FairShare, limit_for_one_caller, network_of

LIMIT = 100


def share(**held: int) -> FairShare[str]:
    usage = FairShare[str]()
    for caller, size in held.items():
        usage.add(caller, size)
    return usage


@pytest.mark.parametrize(
    ("held", "size", "granted"),
    [
        pytest.param({}, 100, True, id="alone: all of it"),
        pytest.param({}, 101, False, id="alone: no more than there is"),
        pytest.param({"me": 60}, 40, True, id="alone: the rest of it"),
        pytest.param({"me": 60}, 41, False, id="alone: more than the rest"),
        pytest.param({"other": 1}, 50, True, id="beside another: half"),
        pytest.param({"other": 1}, 51, False, id="beside another: more than half"),
        pytest.param({"me": 49, "other": 1}, 1, True, id="beside another: up to half"),
        pytest.param({"me": 50, "other": 1}, 1, False, id="beside another: half is had already"),
        pytest.param({"me": 90, "other": 1}, 1, False, id="had more than half before another came"),
        pytest.param({"other": 90}, 10, True, id="a newcomer gets what is left"),
        pytest.param({"other": 90}, 11, False, id="a newcomer gets no more than is left"),
        pytest.param({"other": 50, "third": 40}, 10, True, id="beside two others"),
        pytest.param({"me": 50, "other": 1}, 0, True, id="nothing is always granted"),
        pytest.param({"other": 100}, 0, True, id="nothing, where nothing is left"),
    ],
)
def test_one_caller_takes_half_while_others_hold_anything(
    held: dict[str, int], size: int, *, granted: bool
) -> None:
    usage = share(**held)
    before = usage.used, usage.used_by("me")
    assert usage.take("me", size, LIMIT) is granted
    taken = size if granted else 0
    assert (usage.used, usage.used_by("me")) == (before[0] + taken, before[1] + taken)


def test_the_last_of_the_others_leaves_all_to_the_one_who_stays() -> None:
    usage = share(me=50, other=1)
    assert not usage.take("me", 50, LIMIT)
    usage.give_back("other", 1)
    assert usage.take("me", 50, LIMIT)


def test_a_caller_that_holds_nothing_is_forgotten() -> None:
    usage = share(me=3, other=4)
    usage.give_back("me", 1)
    assert len(usage) == 2
    usage.give_back("me", 2)
    usage.give_back("other", 4)
    assert (len(usage), usage.used, usage.largest()) == (0, 0, None)


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"a": 1}, "a", id="one"),
        pytest.param({"a": 1, "b": 3, "c": 2}, "b", id="several"),
        pytest.param({"a": 2, "b": 2}, "a", id="of two alike the first"),
    ],
)
def test_largest(held: dict[str, int], expected: str | None) -> None:
    assert share(**held).largest() == expected


def test_of_several_alike_it_is_the_one_that_came_to_it_first() -> None:
    usage = share(a=5, b=5)
    assert usage.largest() == "a"
    usage.add("c", 5)
    usage.add("d", 5)
    order = []
    while (largest := usage.largest()) is not None:
        order.append(largest)
        usage.give_back(largest, 5)
        if largest == "b":
            usage.add("a", 5)  # once more, behind all others
    assert order == ["a", "b", "c", "d", "a"]


def test_that_holds_when_the_ranking_was_made_anew() -> None:
    usage = share(a=5, b=5)
    for _ in range(200):  # ranks that are out of date, until there are too many of them
        usage.add("small", 1)
        assert usage.largest() == "a"
        usage.give_back("small", 1)
    usage.add("c", 5)
    assert usage.largest() == "a"
    usage.give_back("a", 5)
    assert usage.largest() == "b"


@pytest.mark.parametrize(
    ("limit", "of_one"), [(0, 0), (1, 1), (7, 7), (8, 7), (15, 14), (16, 14), (100_000, 87_500)]
)
def test_an_eighth_is_left_to_newcomers_where_nothing_is_evicted(limit: int, of_one: int) -> None:
    assert limit_for_one_caller(limit) == of_one


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_largest_is_as_a_count_says_after_any_changes(seed: int, callers: int) -> None:
    chance, usage = Random(seed), FairShare[int]()
    model: dict[int, int] = {}
    for _ in range(200):
        caller, size = chance.randrange(callers), chance.randrange(5)
        match chance.randrange(4):
            case 0:
                usage.add(caller, size)
                model[caller] = model.get(caller, 0) + size
            case 1:
                if usage.take(caller, size, LIMIT):
                    model[caller] = model.get(caller, 0) + size
            case 2:
                size = min(size, model.get(caller, 0))
                usage.give_back(caller, size)
                model[caller] = model.get(caller, 0) - size
            case _:
                largest = usage.largest()
                most = max(model.values(), default=0)
                assert (largest is None) == (most == 0)
                assert largest is None or model[largest] == most
    assert usage.used == sum(model.values())
    assert len(usage) == sum(1 for size in model.values() if size)


def test_the_ranking_stays_as_small_as_the_crowd() -> None:
    usage = share(a=1, b=1)
    for _ in range(10_000):
        usage.add("a", 1)
        usage.largest()
        usage.give_back("a", 1)
    assert usage._heap is not None
    assert len(usage._heap) < 100


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param("192.0.2.1", "192.0.2.1", True, id="the same address"),
        pytest.param("192.0.2.1", "192.0.2.2", False, id="two IPv4 addresses"),
        pytest.param("192.0.2.1", "::ffff:192.0.2.1", True, id="IPv4 in IPv6"),
        pytest.param("2001:db8::1", "2001:db8::ffff:1", True, id="one /64"),
        pytest.param("2001:db8::1", "2001:DB8:0::1", True, id="two spellings"),
        pytest.param("2001:db8::1", "2001:db8:0:1::1", False, id="two /64"),
        pytest.param("fe80::1%eth0", "fe80::2%eth0", False, id="link-local addresses"),
        pytest.param("fe80::1%eth0", "fe80::1%eth1", False, id="link-local zones"),
        pytest.param("", "", True, id="unix sockets"),
        pytest.param("", "127.0.0.1", False, id="a unix socket and an address"),
        pytest.param("no address", "no address", True, id="what is no address"),
    ],
)
def test_network_of(one: str, other: str, *, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same
