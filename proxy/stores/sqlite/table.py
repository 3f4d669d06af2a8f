"""The rules of a key, on rows of a file.

Every function here runs within a transaction that has the file to itself, so the rules
read, decide and write in one step.

Results have a bound. The caller that has most bytes of them gives up its oldest, of which a
marker stays: that it has run is not forgotten before its time. What may not be given up, in
flight or held, has one per caller. Triggers count what each caller has.

A lease is in seconds since the machine started, which all its processes count alike and
nobody can set. They mean nothing after the next start, so each lease says which start it
belongs to, and how long it is: one of another start has ended, and so has one that ends
later than any lease could that was given by now.
"""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from pathlib import Path

from proxy.core.clock import Clock
from proxy.policy.idempotency.record import (
    LEFT_FOR,
    Claim,
    ClaimAnswer,
    Claimed,
    Ending,
    Record,
    RecordState,
    Shown,
    claim,
    is_owned,
    renew,
    revoke,
    settle,
    shown,
)
from proxy.stores import LARGE, MOST_OPEN, StoreError
from proxy.stores.sqlite_file.opening import Layout

_OPEN = "('in_flight', 'held')"


def _counting(sign: str, row: str) -> str:
    """What changes in the room of a caller when a row comes (+) or goes (-)."""
    return f"""
        INSERT INTO rooms (caller, open, bytes)
            SELECT who, {sign}({row}.state IN {_OPEN}), {sign}length({row}.result)
            FROM (SELECT {row}.caller AS who UNION ALL SELECT '*') WHERE true
            ON CONFLICT (caller) DO UPDATE
                SET open = open + excluded.open, bytes = bytes + excluded.bytes;
    """  # noqa: S608 - constants


_ROOMS = (
    # What each caller has, and under * all of them together.
    """
    CREATE TABLE rooms (
        caller TEXT PRIMARY KEY,
        open INTEGER NOT NULL,
        bytes INTEGER NOT NULL
    )
    """,
    "CREATE INDEX rooms_by_bytes ON rooms (bytes)",
    "CREATE INDEX results_by_caller ON keys (caller, expires) WHERE state = 'done'",
    f"CREATE TRIGGER key_came AFTER INSERT ON keys BEGIN {_counting('+', 'NEW')} END",
    f"CREATE TRIGGER key_went AFTER DELETE ON keys BEGIN {_counting('-', 'OLD')} END",
    f"""CREATE TRIGGER key_changed AFTER UPDATE OF state, caller, result ON keys
        WHEN OLD.state != NEW.state OR OLD.caller != NEW.caller OR OLD.result != NEW.result
        BEGIN {_counting("-", "OLD")} {_counting("+", "NEW")} END""",
    """CREATE TRIGGER room_emptied AFTER UPDATE ON rooms
        WHEN NEW.open = 0 AND NEW.bytes = 0 AND NEW.caller != '*'
        BEGIN DELETE FROM rooms WHERE caller = NEW.caller; END""",
)

LAYOUT = Layout(
    application=0x486F6C64,  # "Hold"
    format=2,
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
            result BLOB NOT NULL,
            caller TEXT NOT NULL,
            waits INTEGER NOT NULL
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
        *_ROOMS,
    ),
    from_last_format=(
        "ALTER TABLE keys ADD COLUMN caller TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE keys ADD COLUMN waits INTEGER NOT NULL DEFAULT 0",
        *_ROOMS,
        f"""INSERT INTO rooms SELECT who, sum(state IN {_OPEN}), sum(length(result))
            FROM (SELECT '*' AS who UNION ALL SELECT ''), keys GROUP BY who""",  # noqa: S608 - a constant
    ),
)

_VERSION = 1
"""Of a row. One of another version is not read."""
_COLUMNS = (
    "version, state, owner, fingerprint, route, created, boot, lease, lease_until, expires,"
    " caller, waits, result"
)
_CHANGES = ", ".join(f"{name.strip()} = excluded.{name.strip()}" for name in _COLUMNS.split(","))
_WITHOUT_LARGE = _COLUMNS.replace(
    "result", f"CASE WHEN length(result) > {LARGE} THEN x'' ELSE result END, length(result)"
)
"""The same, but a large result is not read: SQLite knows its size without doing so."""
_HOLDS = "state = ? AND boot = ? AND lease_until > ? AND lease_until <= ? + lease"
"""Whether the owner of a row counts as alive, as :meth:`Record.holds` says of what was read."""
MOST_LEFT = 16 * 1024**2
"""Bytes of outcomes that are left behind for those who wait."""
_LOT = 500
"""Expired rows that are deleted at once: others wait for the file meanwhile."""


def boot_id() -> str:
    """What tells this start of the machine from all others; empty where nothing does."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


class KeyTable:
    """What is known of all keys."""

    def __init__(self, db: sqlite3.Connection, clock: Clock, boot: str, most_bytes: int) -> None:
        """*most_bytes* is what results may take, of all callers together."""
        self._most_bytes = most_bytes
        self._run: Callable[..., sqlite3.Cursor] = db.execute
        self._clock = clock
        self._boot = boot

    def claim(self, ask: Claim) -> Claimed:
        """Get a key, or hear why not."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        if ask.waited_for and (left := self._left(ask.waited_for, now)) is not None:
            return Claimed(ClaimAnswer.LEFT, result=left)
        before, _ = self._read(ask.name, now)
        after, claimed = claim(before, ask, now=now, wall=wall)
        if claimed.answer is ClaimAnswer.NEW:
            if self._has_too_many_open(ask.caller):
                return Claimed(ClaimAnswer.FULL)
            self._write(ask.name, after, ask.lease)
        elif after is not before:
            self._run("UPDATE keys SET waits = 1 WHERE name = ?", (ask.name,))
        return claimed

    def _has_too_many_open(self, caller: str) -> bool:
        row = self._run("SELECT open FROM rooms WHERE caller = ?", (caller,)).fetchone()
        return row is not None and row[0] >= MOST_OPEN

    def settle(self, name: str, owner: str, ending: Ending) -> bool:
        """End what *owner* has begun."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        record, _ = self._find(name, now, wall)
        if record is None or not is_owned(record, owner):
            return False
        after = settle(record, ending, wall=wall)
        if after is None:
            self._run("DELETE FROM keys WHERE name = ?", (name,))
        else:
            if after.result and not self._has_room_for(len(after.result)):
                after = after._replace(state=RecordState.UNSTORED, result=b"")
            self._write(name, after, 0.0)
        if record.waits and ending.state is not RecordState.DONE and ending.result:
            self._leave(owner, ending.result, now + LEFT_FOR)
        return True

    def _has_room_for(self, size: int) -> bool:
        """Make room for another result, if it fits at all; who has most gives up its oldest."""
        if size > self._most_bytes:
            return False
        while self._bytes_of("*") + size > self._most_bytes:
            (largest,) = self._run(
                "SELECT caller FROM rooms WHERE caller != '*' ORDER BY bytes DESC LIMIT 1"
            ).fetchone()
            given_up = self._run(
                "UPDATE keys SET state = 'unstored', result = x'' WHERE rowid = (SELECT rowid FROM"
                " keys WHERE caller = ? AND state = 'done' AND length(result) ORDER BY expires"
                " LIMIT 1)",
                (largest,),
            ).rowcount
            if not given_up:
                return False
        return True

    def _bytes_of(self, caller: str) -> int:
        row = self._run("SELECT bytes FROM rooms WHERE caller = ?", (caller,)).fetchone()
        return 0 if row is None else int(row[0])

    def _leave(self, owner: str, result: bytes, until: float) -> None:
        """Leave *result* behind for those who wait, if there is room for it."""
        (used,) = self._run("SELECT coalesce(sum(length(result)), 0) FROM outcomes").fetchone()
        if used + len(result) > MOST_LEFT:
            self._sweep_outcomes(self._clock.monotonic())
            (used,) = self._run("SELECT coalesce(sum(length(result)), 0) FROM outcomes").fetchone()
        if used + len(result) <= MOST_LEFT:
            values = (owner, self._boot, until, result)
            self._run("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?)", values)

    def renew(self, name: str, owner: str, lease: float, ttl: float) -> bool:
        """*owner* is still alive."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        record, _ = self._find(name, now, wall)
        if record is None or not is_owned(record, owner):
            return False
        self._write(name, renew(record, lease, ttl, now=now, wall=wall), lease)
        return True

    def show(self, name: str) -> Shown | None:
        """What is known of a key."""
        now = self._clock.monotonic()
        record, size = self._find(name, now, self._clock.wall())
        return None if record is None else replace(shown(record, now=now), size=size)

    def result(self, name: str, owner: str) -> bytes | None:
        """The result of a key that is done; with *owner*, what that one left behind."""
        now = self._clock.monotonic()
        if owner:
            return self._left(owner, now, largest=None)
        row = self._run(
            "SELECT result FROM keys WHERE name = ? AND version = ? AND state = ? AND expires > ?",
            (name, _VERSION, RecordState.DONE.value, self._clock.wall()),
        ).fetchone()
        match row:
            case None:
                return None
            case (bytes(result),):
                return result
        raise StoreError(_NONSENSE)

    def drop(self, name: str) -> bool:
        """Forget a key, unless somebody alive has it."""
        now = self._clock.monotonic()
        record, _ = self._find(name, now, self._clock.wall())
        if record is None or record.holds(now):
            return False
        self._run("DELETE FROM keys WHERE name = ?", (name,))
        return True

    def revoke(self, name: str) -> bool:
        """Take a key from the owner that has it, so that it is held."""
        now = self._clock.monotonic()
        record, _ = self._find(name, now, self._clock.wall())
        if record is None or not record.holds(now):
            return False
        self._write(name, revoke(record), 0.0)
        return True

    def busy(self, names: list[str]) -> dict[str, str]:
        """Those of *names* that somebody alive has, and who."""
        now = self._clock.monotonic()
        rows = self._run(
            "SELECT name, owner FROM keys WHERE"  # noqa: S608 - a constant
            f" name IN (SELECT value FROM json_each(?)) AND {_HOLDS}",
            (json.dumps(names), *self._holding(now)),
        )
        return dict(rows.fetchall())

    def sweep(self) -> bool:
        """Delete some of what has expired; whether there may be more of it."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        gone = self._run(
            "DELETE FROM keys WHERE rowid IN (SELECT rowid FROM keys"  # noqa: S608 - a constant
            f" WHERE expires <= ? AND NOT ({_HOLDS}) LIMIT ?)",
            (wall, *self._holding(now), _LOT),
        ).rowcount
        return max(gone, self._sweep_outcomes(now)) >= _LOT

    def _sweep_outcomes(self, now: float) -> int:
        """Delete some of what was left behind, and has had its time; how much that was."""
        return self._run(
            "DELETE FROM outcomes WHERE rowid IN (SELECT rowid FROM outcomes"
            " WHERE boot != ? OR until <= ? OR until > ? LIMIT ?)",
            (self._boot, now, now + LEFT_FOR, _LOT),
        ).rowcount

    # Rows.

    def _find(self, name: str, now: float, wall: float) -> tuple[Record | None, int]:
        """What is known of a key, and the size of its result; None if it is unknown or expired."""
        record, size = self._read(name, now)
        if record is None or record.has_expired(now=now, wall=wall):
            return None, 0
        return record, size

    def _holding(self, now: float) -> tuple[str, str, float, float]:
        """What :data:`_HOLDS` is asked with."""
        return RecordState.IN_FLIGHT.value, self._boot, now, now

    def _read(self, name: str, now: float) -> tuple[Record | None, int]:
        """What is known of a key, without a result that is large, and the size of that."""
        row = self._run(f"SELECT {_WITHOUT_LARGE} FROM keys WHERE name = ?", (name,)).fetchone()  # noqa: S608 - a constant
        if row is None:
            return None, 0
        *columns, size = row
        record, boot, lease = _record(tuple(columns))
        if not isinstance(size, int):
            raise StoreError(_NONSENSE)
        if boot != self._boot or record.lease_until > now + lease:
            # It ended with the machine's last start. Not -inf: it is written back as it is.
            record = record._replace(lease_until=0.0)
        return record, size

    def _write(self, name: str, record: Record, lease: float) -> None:
        # Not "or replace", which the triggers would not hear of.
        self._run(
            f"INSERT INTO keys (name, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants
            f" ON CONFLICT (name) DO UPDATE SET {_CHANGES}",
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
                record.caller,
                int(record.waits),
                record.result,
            ),
        )

    def _left(self, owner: str, now: float, largest: int | None = LARGE) -> bytes | None:
        """What *owner* left behind; nothing of it, but not None, if it is larger than *largest*."""
        row = self._run(
            "SELECT boot, until, CASE WHEN length(result) > ? THEN x'' ELSE result END"
            " FROM outcomes WHERE owner = ?",
            (largest, owner),
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
            str(caller),
            int(waits),
            bytes(result),
        ) if (
            version == _VERSION
            and state in set(RecordState)
            and all(map(isfinite, (created, lease, lease_until, expires)))
        ):
            record = Record(
                *(RecordState(state), owner, fingerprint, route, created, lease_until, expires),
                *(result, caller, bool(waits)),
            )
            return record, boot, lease
    raise StoreError(_NONSENSE)


_NONSENSE = "what is stored of a key makes no sense, or is another version's"
