"""The records of idempotency keys that all instances share.

A record is one hash. The server decides, by its own clock, in scripts that are one atomic step
each; they have the rules of :mod:`proxy.policy.idempotency.record`, and the tests compare them with
those. A request that waits for a key is told by a channel that it may be free, and only where
a request waits is it published: a key without a rival costs two calls and no message.

Large results go over a connection of their own: no claim waits behind them.
"""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from itertools import count
from math import ceil

from proxy.policy.idempotency.record import (
    LEFT_FOR,
    LOOKED_AT,
    PAGE,
    Claim,
    ClaimAnswer,
    Claimed,
    Ending,
    KeyFilter,
    KeyPage,
    RecordState,
    Shown,
)
from proxy.stores import LARGE, MOST_OPEN, StoreError, caller_share_name
from proxy.stores.redis.bulk import BulkConnection
from proxy.stores.redis.connection import Command, Reply
from proxy.stores.redis.link import Link
from proxy.stores.redis.scripts import CLAIM, DROP, RENEW, REVOKE, SETTLE, SHOW

_AT_A_TIME = 500
"""Keys that the server looks at in one step; others wait for as long."""
_PAGE_WITHIN = 2.0
"""Seconds after which a page ends where it is: whoever asked for it waits."""
_CURSORS = 2**64
"""The server's cursors are below."""
MOST_LEFT = 16 * 1024**2
"""Bytes that all instances together leave behind for requests that wait, within the time they
last."""


class RedisIdempotencyStore:
    """Has the record of every key, and shares them with all other instances."""

    at_once = None
    """None: every operation waits for the server."""

    def __init__(self, link: Link, bulk: BulkConnection, prefix: str, digest_key: bytes) -> None:
        """Use *digest_key* as the secret part of the names that callers have in the store."""
        self._digest_key = digest_key
        self._link = link
        self._bulk = bulk
        self._prefix = prefix
        self._channel = keys_channel(prefix)
        self._open_prefix = f"{prefix}:open:"
        """Prefix of the sets of a caller's keys that may not be evicted."""
        self._watched: dict[str, dict[int, Callable[[], None]]] = {}
        """Callbacks of the requests that wait for a key, by its name."""
        self._numbers = count()
        self._doubtful: dict[str, str] = {}
        """Owners that never got the answer to a claim, and the name of its key."""

    def __repr__(self) -> str:
        return f"<claims, {self._link}, {len(self._watched)} watched>"

    async def claim(self, ask: Claim) -> Claimed:
        """Claim a key; the answer tells who has it otherwise.

        If the answer does not arrive, for whatever reason, the claim is undone as soon as the
        server can be reached.
        """
        args = (
            ask.owner,
            ask.fingerprint,
            ask.route,
            _microseconds(ask.lease),
            _milliseconds(ask.lease + ask.ttl),
            int(ask.takes_over),
            int(bool(ask.waited_for)),
            LARGE,
            caller_share_name(ask.caller, self._digest_key),
            *(self._open_prefix, ask.name, MOST_OPEN),
        )
        keys = (self._key(ask.name), self._left(ask.waited_for))
        was_up = self._link.is_up  # else it is not even sent
        try:
            return await self._link.ask("claim", CLAIM, keys, args, _claimed)
        except (StoreError, asyncio.CancelledError):
            if was_up:
                self._doubtful[ask.owner] = ask.name
                self.came_up()
            raise

    async def settle(self, name: str, owner: str, ending: Ending) -> bool:
        """Finish what *owner* has begun; False if the key is not its own any more."""
        keys = self._keys(name, owner)
        args = self._ending(name, owner, ending)
        if len(ending.result) <= LARGE:
            return await self._link.ask("settle", SETTLE, keys, args, _yes_or_no)
        if ending.state is not RecordState.DONE:
            # Mostly no request waits for it, and then it need not be sent.
            brief = self._ending(name, owner, ending._replace(result=b""), unless_waits=True)
            settled = await self._link.ask("settle", SETTLE, keys, brief, _yes_no_or_waits)
            if settled is not None:
                return settled
        self._require_link("settle")
        return await self._bulk.run("settle", SETTLE, keys, args, _yes_or_no)

    async def fetch(self, name: str, owner: str = "") -> bytes | None:
        """Return the result of a key, or what *owner* left behind; None if it is gone."""
        self._require_link("fetch")
        if owner:
            return await self._bulk.ask("fetch", ("GET", self._left(owner)), _left_behind)
        command = ("HMGET", self._key(name), "v", "state", "result")
        return await self._bulk.ask("fetch", command, _result)

    def _require_link(self, operation: str) -> None:
        """Raise StoreError while the server is known to be down."""
        if not self._link.is_up:
            self._link.refuse(operation)

    def _ending(
        self, name: str, owner: str, ending: Ending, *, unless_waits: bool = False
    ) -> Command:
        leaves = ending.state is not RecordState.DONE and bool(ending.result)
        return (
            owner,
            "" if ending.state is None else ending.state.value,
            _milliseconds(ending.ttl),
            ending.result,
            _milliseconds(LEFT_FOR) if leaves else 0,
            self._channel,
            name,
            MOST_LEFT,
            int(unless_waits),
            caller_share_name(ending.caller, self._digest_key) if ending.caller else "",
            self._open_prefix,
        )

    async def renew(self, name: str, owner: str, lease: float, ttl: float) -> bool:
        """Renew the lease of *owner*; False if the key is not its own any more."""
        args = (owner, _microseconds(lease), _milliseconds(lease + ttl))
        return await self._link.ask("renew", RENEW, (self._key(name),), args, _yes_or_no)

    async def show(self, name: str) -> Shown | None:
        """Return a key's record for an operator; None if there is none."""
        return await self._link.ask("admin", SHOW, (self._key(name),), (), _only_shown)

    async def page(self, wanted: KeyFilter, after: str) -> KeyPage | None:
        """Return records for an operator, in no order, from *after*, a cursor of the server's."""
        if after and not (after.isascii() and after.isdigit() and int(after) < _CURSORS):
            return None
        self._require_link("admin")
        found: dict[str, Shown] = {}
        cursor, looked = after or "0", 0
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", self._key("")) + "*"
        clock = asyncio.get_running_loop().time
        until = clock() + _PAGE_WITHIN
        while looked < LOOKED_AT and len(found) < PAGE and clock() < until:
            # Never KEYS, which stops the server for as long as it takes.
            scan = ("SCAN", cursor, "MATCH", pattern, "COUNT", _AT_A_TIME)
            cursor, keys = await self._bulk.ask("admin", scan, _scanned)
            looked += _AT_A_TIME
            if keys:
                shown = await self._bulk.run("admin", SHOW, keys, (), _all_shown)
                names = (key.removeprefix(self._key("")) for key in keys)
                found |= {
                    name: record
                    for name, record in zip(names, shown, strict=True)
                    if record is not None and wanted.accepts(record)
                }
            if cursor == "0":
                return KeyPage(tuple(found.items()), "")
        return KeyPage(tuple(found.items()), cursor)

    async def drop(self, name: str) -> bool:
        """Forget a key; False if there is none, or its owner is alive."""
        args = (self._channel, name, self._open_prefix)
        return await self._link.ask("admin", DROP, (self._key(name),), args, _yes_or_no)

    async def revoke(self, name: str) -> bool:
        """Take a key from its owner, so that it is held; False if no owner that is alive has it."""
        args = (self._channel, name)
        return await self._link.ask("admin", REVOKE, (self._key(name),), args, _yes_or_no)

    def _keys(self, name: str, owner: str) -> tuple[str, ...]:
        """Return the server's keys that change when *owner* finishes."""
        return self._key(name), self._left(owner), f"{self._prefix}:left_bytes"

    def _key(self, name: str) -> str:
        return f"{self._prefix}:key:{name}"

    def _left(self, owner: str) -> str:
        return f"{self._prefix}:left:{owner}"

    def came_up(self) -> None:
        """Undo the claims whose answers did not arrive: the server can be reached."""
        while self._doubtful and self._link.is_up:
            owner, name = self._doubtful.popitem()
            args = self._ending(name, owner, Ending(None, 0.0))
            keys = self._keys(name, owner)
            # Its owner may claim again under the same name: that claim must stay.
            answered = self._link.send("settle", SETTLE, keys, args, in_order=True)
            answered.add_done_callback(partial(self._set_free, name, owner))

    def _set_free(self, name: str, owner: str, answered: asyncio.Future[list[Reply]]) -> None:
        if answered.exception() is not None:
            self._doubtful[owner] = name

    # Waiting requests.

    def watch(self, name: str, awake: Callable[[], None]) -> Callable[[], None]:
        """Call *awake* when the key may be busy no longer, until the returned function is called.

        The end of a lease is not published: a claim says until when to wait.
        """
        number = next(self._numbers)
        self._watched.setdefault(name, {})[number] = awake

        def leave() -> None:
            watchers = self._watched.get(name, {})
            if watchers.pop(number, None) is not None and not watchers:
                del self._watched[name]

        return leave

    def heard(self, name: str) -> None:
        """Wake the requests that wait for this key: an instance has published that it changed."""
        for awake in list(self._watched.get(name, {}).values()):
            awake()

    def missed(self) -> None:
        """Wake all waiting requests: messages about their keys may have been missed."""
        for name in list(self._watched):
            self.heard(name)


def keys_channel(prefix: str) -> str:
    """Return the channel on which it is published that a key may be free."""
    return f"{prefix}:keys"


# Answers of the scripts.


def _claimed(reply: list[Reply]) -> Claimed:
    match reply:
        case [b"new" | b"unstored" | b"held" | b"mismatch" | b"full" as answer]:
            return Claimed(ClaimAnswer(answer.decode()))
        case [b"busy", bytes(owner), int(left)]:
            return Claimed(ClaimAnswer.BUSY, owner.decode(errors="replace"), left / 1e6)
        case [b"done" | b"left" as answer, bytes(result)]:
            return Claimed(ClaimAnswer(answer.decode()), result=result)
        case [b"done" | b"left" as answer]:
            return Claimed(ClaimAnswer(answer.decode()))
    raise _nonsense()


def _result(reply: Reply) -> bytes | None:
    match reply:
        case [b"1", b"done", bytes(result)]:
            return result
        case [None, None, None] | [b"1", bytes(), _]:
            return None
    raise _nonsense()


def _left_behind(reply: Reply) -> bytes | None:
    match reply:
        case bytes() | None:
            return reply
    raise _nonsense()


def _yes_or_no(reply: list[Reply]) -> bool:
    match reply:
        case [0 | 1 as answer]:
            return answer == 1
    raise _nonsense()


def _yes_no_or_waits(reply: list[Reply]) -> bool | None:
    return None if reply == [2] else _yes_or_no(reply)


def _scanned(reply: Reply) -> tuple[str, tuple[str, ...]]:
    match reply:
        case [bytes(cursor), list(keys)] if cursor.isdigit():
            names = (key.decode(errors="replace") for key in keys if isinstance(key, bytes))
            return cursor.decode(), tuple(names)
    raise _nonsense()


def _only_shown(reply: list[Reply]) -> Shown | None:
    match reply:
        case [list(values)]:
            return _shown(values)
    raise _nonsense()


def _all_shown(reply: list[Reply]) -> list[Shown | None]:
    return [_known_or_none(values) for values in reply]


def _known_or_none(values: Reply) -> Shown | None:
    """Return a record; None, too, if it cannot be read: the others are to be shown."""
    try:
        return _shown(values) if isinstance(values, list) else None
    except StoreError:
        return None


def _shown(values: list[Reply]) -> Shown | None:
    match values:
        case []:
            return None
        case [bytes(state), bytes(route), int(created), int(expires), int(left), int(size)] if (
            state.decode(errors="replace") in set(RecordState)
        ):
            return Shown(
                RecordState(state.decode()),
                route.decode(errors="replace"),
                created / 1e6,
                expires / 1e6,
                left / 1e6,
                size,
            )
    raise _nonsense()


def _nonsense() -> StoreError:
    return StoreError("what is stored of a key is invalid, or of another version")


def _microseconds(seconds: float) -> int:
    return ceil(seconds * 1e6)


def _milliseconds(seconds: float) -> int:
    # Nought would mean at once.
    return max(ceil(seconds * 1e3), 1)
