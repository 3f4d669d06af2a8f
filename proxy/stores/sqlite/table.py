"""The rules of a key, on rows of a file.

Every function here runs within a transaction that has the file to itself, so the rules
read, decide and write in one step.

A lease is in seconds since the machine started, which all its processes count alike and
nobody can set. They mean nothing after the next start, so each lease says which start it
belongs to, and how long it is: one of another start has ended, and so has one that ends
later than any lease could that was given by now.
"""

import json
import sqlite3
from collections.abc import Callable
from math import isfinite
from pathlib import Path

from proxy.core import Clock
from proxy.policy.records import (
    LEFT_FOR,
    Answer,
    Claim,
    Claimed,
    Ending,
    Record,
    Shown,
    State,
    claim,
    is_owned,
    renew,
    settle,
    shown,
)
from proxy.stores import StoreError
from proxy.stores.sqlite.opening import Layout

LAYOUT = Layout(
    application=0x486F6C64,  # "Hold"
    format=1,
    content="what it knew of keys",
    statements=(
        """
        CREATE TABLE keys (
            name TEXT PRIMARY KEY,
            version INTEGER NOT NULL,
            state TEXT NOT NULL,
            owner TEXT NOT NULL,
            fingerprint BLOB NOT NULL,
            route TEXT NOT NULL,
            created REAL NOT NULL,
            boot TEXT NOT NULL,
            lease REAL NOT NULL,
            lease_until REAL NOT NULL,
            expires REAL NOT NULL,
            result BLOB NOT NULL
        )
        """,
        "CREATE INDEX keys_by_expiry ON keys (expires)",
        """
        CREATE TABLE outcomes (
            owner TEXT PRIMARY KEY,
            boot TEXT NOT NULL,
            until REAL NOT NULL,
            result BLOB NOT NULL
        )
        """,
    ),
)

_VERSION = 1
"""Of a row. One of another version is not read."""
_COLUMNS = (
    "version, state, owner, fingerprint, route, created, boot, lease, lease_until, expires, result"
)
_LOT = 500
"""Expired rows that are deleted at once: others wait for the file meanwhile."""


def boot_id() -> str:
    """What tells this start of the machine from all others; empty where nothing does."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


class Table:
    """What is known of all keys."""

    def __init__(self, db: sqlite3.Connection, clock: Clock, boot: str) -> None:
        self._run: Callable[..., sqlite3.Cursor] = db.execute
        self._clock = clock
        self._boot = boot

    def claim(self, ask: Claim) -> Claimed:
        """Get a key, or hear why not."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        if ask.waited_for and (left := self._left(ask.waited_for, now)) is not None:
            return Claimed(Answer.LEFT, result=left)
        before = self._read(ask.name, now)
        after, claimed = claim(before, ask, now=now, wall=wall)
        if claimed.answer is Answer.NEW and after is not None:
            self._write(ask.name, after, ask.lease)
        return claimed

    def settle(self, name: str, owner: str, ending: Ending) -> bool:
        """End what *owner* has begun."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        record = self._find(name, now, wall)
        if record is None or not is_owned(record, owner):
            return False
        after = settle(record, ending, wall=wall)
        if after is None:
            self._run("DELETE FROM keys WHERE name = ?", (name,))
        else:
            self._write(name, after, 0.0)
        if ending.state is not State.DONE and ending.result:
            values = (owner, self._boot, now + LEFT_FOR, ending.result)
            self._run("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?)", values)
        return True

    def renew(self, name: str, owner: str, lease: float) -> bool:
        """*owner* is still alive."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        record = self._find(name, now, wall)
        if record is None or not is_owned(record, owner):
            return False
        self._write(name, renew(record, lease, now=now), lease)
        return True

    def show(self, name: str) -> Shown | None:
        """What is known of a key."""
        now = self._clock.monotonic()
        record = self._find(name, now, self._clock.wall())
        return None if record is None else shown(record, now=now)

    def drop(self, name: str) -> bool:
        """Forget a key, unless somebody alive has it."""
        now = self._clock.monotonic()
        record = self._find(name, now, self._clock.wall())
        if record is None or record.holds(now):
            return False
        self._run("DELETE FROM keys WHERE name = ?", (name,))
        return True

    def busy(self, names: list[str]) -> dict[str, str]:
        """Those of *names* that somebody alive has, and who."""
        now = self._clock.monotonic()
        rows = self._run(
            "SELECT name, owner FROM keys WHERE name IN (SELECT value FROM json_each(?))"
            " AND state = ? AND boot = ? AND lease_until > ? AND lease_until <= ? + lease"
            " AND expires > ?",
            (json.dumps(names), State.IN_FLIGHT.value, self._boot, now, now, self._clock.wall()),
        )
        return dict(rows.fetchall())

    def sweep(self) -> bool:
        """Delete some of what has expired; whether there may be more of it."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        gone = self._run(
            "DELETE FROM keys WHERE rowid IN (SELECT rowid FROM keys WHERE expires <= ? LIMIT ?)",
            (wall, _LOT),
        ).rowcount
        gone_too = self._run(
            "DELETE FROM outcomes WHERE rowid IN (SELECT rowid FROM outcomes"
            " WHERE boot != ? OR until <= ? OR until > ? LIMIT ?)",
            (self._boot, now, now + LEFT_FOR, _LOT),
        ).rowcount
        return max(gone, gone_too) >= _LOT

    # Rows.

    def _find(self, name: str, now: float, wall: float) -> Record | None:
        record = self._read(name, now)
        return None if record is None or record.expires <= wall else record

    def _read(self, name: str, now: float) -> Record | None:
        row = self._run(f"SELECT {_COLUMNS} FROM keys WHERE name = ?", (name,)).fetchone()  # noqa: S608 - a constant
        if row is None:
            return None
        record, boot, lease = _record(row)
        if boot != self._boot or record.lease_until > now + lease:
            # It ended with the machine's last start. Not -inf: it is written back as it is.
            return record._replace(lease_until=0.0)
        return record

    def _write(self, name: str, record: Record, lease: float) -> None:
        self._run(
            f"INSERT OR REPLACE INTO keys (name, {_COLUMNS})"  # noqa: S608 - constants
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                name,
                _VERSION,
                record.state.value,
                record.owner,
                record.fingerprint,
                record.route,
                record.created,
                self._boot,
                lease,
                record.lease_until,
                record.expires,
                record.result,
            ),
        )

    def _left(self, owner: str, now: float) -> bytes | None:
        row = self._run(
            "SELECT boot, until, result FROM outcomes WHERE owner = ?", (owner,)
        ).fetchone()
        match row:
            case None:
                return None
            case (str(boot), float(until), bytes(result)):
                return result if boot == self._boot and now < until <= now + LEFT_FOR else None
        raise StoreError("what is stored of an outcome makes no sense")


def _record(row: tuple[object, ...]) -> tuple[Record, str, float]:
    """What a row says, and of which start of the machine and how long its lease is."""
    match row:
        case (
            int(version),
            str(state),
            str(owner),
            bytes(fingerprint),
            str(route),
            float(created),
            str(boot),
            float(lease),
            float(lease_until),
            float(expires),
            bytes(result),
        ) if (
            version == _VERSION
            and state in set(State)
            and all(map(isfinite, (created, lease, lease_until, expires)))
        ):
            record = Record(
                State(state), owner, fingerprint, route, created, lease_until, expires, result
            )
            return record, boot, lease
    raise StoreError("what is stored of a key makes no sense, or is another version's")
