"""Names to addresses, in virtual time."""

import asyncio

from proxy.upstream.resolver import AT_LEAST_BETWEEN, FRESH_FOR, Resolver
from tests.support.clock import FakeClock
from tests.support.names import Names


class Watched:
    """An :class:`Resolver` with the changes that it announced."""

    def __init__(self, host: str) -> None:
        self.clock = FakeClock()
        self.changes: list[tuple[str, ...]] = []
        self.addresses = Resolver(host, 80, self.clock, self._changed)

    def _changed(self) -> None:
        self.changes.append(self.addresses.found)

    async def renew(self) -> None:
        """Ask and wait for the answer, if there is anything to ask."""
        lookup = self.addresses.renew()
        if lookup is not None:
            await lookup


async def test_a_literal_is_its_own_answer() -> None:
    for literal in ("127.0.0.1", "::1"):
        watched = Watched(literal)
        assert watched.addresses.is_fixed
        assert watched.addresses.found == (literal,)
        assert watched.addresses.renew() is None


async def test_nothing_is_asked_before_it_is_needed() -> None:
    names = Names(a=["10.0.0.1"])
    watched = Watched("a")
    assert watched.addresses.found == ()
    assert names.asked == []
    await watched.renew()
    assert watched.changes == [("10.0.0.1",)]


async def test_all_addresses_are_kept_in_their_order_and_once() -> None:
    Names(a=["10.0.0.2", "10.0.0.1", "10.0.0.2", "fd00::1"])
    watched = Watched("a")
    await watched.renew()
    assert watched.addresses.found == ("10.0.0.2", "10.0.0.1", "fd00::1")


async def test_one_look_up_serves_all_who_wait() -> None:
    names = Names(a=["10.0.0.1"])
    names.fall_silent()
    watched = Watched("a")
    lookups = {watched.addresses.renew() for _ in range(5)}
    assert len(lookups) == 1
    names.speak()
    await watched.renew()
    assert names.asked == ["a"]


async def test_it_is_not_asked_again_within_a_moment() -> None:
    names = Names(a=["10.0.0.1"])
    watched = Watched("a")
    await watched.renew()
    watched.clock.advance(AT_LEAST_BETWEEN / 2)
    await watched.renew()
    assert len(names.asked) == 1
    watched.clock.advance(AT_LEAST_BETWEEN)
    await watched.renew()
    assert len(names.asked) == 2


async def test_without_any_answer_it_is_asked_each_time() -> None:
    names = Names()
    watched = Watched("a")
    for _ in range(3):
        await watched.renew()
    assert len(names.asked) == 3
    assert watched.changes == []


async def test_an_old_answer_is_renewed_in_the_background() -> None:
    names = Names(a=["10.0.0.1"])
    watched = Watched("a")
    await watched.renew()
    watched.addresses.renew_if_old()
    assert len(names.asked) == 1
    names.set("a", "10.0.0.9")
    watched.clock.advance(FRESH_FOR + 1)
    watched.addresses.renew_if_old()
    assert watched.addresses.found == ("10.0.0.1",)
    await watched.renew()
    assert watched.changes == [("10.0.0.1",), ("10.0.0.9",)]


async def test_the_same_answer_is_no_change() -> None:
    Names(a=["10.0.0.1"])
    watched = Watched("a")
    for _ in range(3):
        await watched.renew()
        watched.clock.advance(FRESH_FOR)
    assert watched.changes == [("10.0.0.1",)]


async def test_an_empty_answer_or_none_leaves_the_last_one_in_force() -> None:
    names = Names(a=["10.0.0.1"])
    watched = Watched("a")
    await watched.renew()
    names.set("a")
    watched.clock.advance(FRESH_FOR)
    await watched.renew()
    assert watched.addresses.found == ("10.0.0.1",)


async def test_a_name_that_dns_cannot_hold_is_no_crash() -> None:
    watched = Watched("a" * 70 + ".example")
    await watched.renew()
    assert watched.addresses.found == ()


async def test_closing_ends_the_look_up() -> None:
    names = Names()
    names.fall_silent()
    watched = Watched("a")
    lookup = watched.addresses.renew()
    assert lookup is not None
    watched.addresses.close()
    await asyncio.wait((lookup,))
    assert lookup.cancelled()
