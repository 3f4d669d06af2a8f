"""The table of idempotency keys in the file, and the rules of a key on its rows.

Every method runs within a transaction that has the file locked, so the rules
read, decide and write in one atomic step.

The bytes of results are bounded. The caller that has most of them loses its oldest, of which a
marker stays: that it has run is not forgotten before its time. Records that may not be evicted, in
flight or held, have a bound per caller. Triggers count what each caller has.

A lease is in seconds since the machine started, which all its processes count alike and
which cannot be set. They mean nothing after the next start, so each lease says which start it
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
    LOOKED_AT,
    PAGE,
    Claim,
    ClaimAnswer,
    Claimed,
    Ending,
    KeyFilter,
    KeyPage,
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
from proxy.stores.sqlite_file.columns import Columns
from proxy.stores.sqlite_file.opening import Layout

_NONSENSE = "what is stored of a key is invalid, or of another version"
_COLUMNS = Columns(
    "version INTEGER, state TEXT, owner TEXT, fingerprint BLOB, route TEXT, created REAL,"
    " boot TEXT, lease REAL, lease_until REAL, expires REAL, result BLOB, caller TEXT,"
    " waits INTEGER",
    _NONSENSE,
)
_OPEN = "('in_flight', 'held')"


def _counting(sign: str, row: str) -> str:
    """Return the statement that updates a caller's totals when a row comes (+) or goes (-)."""
    return f"""
        INSERT INTO rooms (caller, open, bytes)
            SELECT who, {sign}({row}.state IN {_OPEN}), {sign}length({row}.result)
            FROM (SELECT {row}.caller AS who UNION ALL SELECT '*') WHERE true
            ON CONFLICT (caller) DO UPDATE
                SET open = open + excluded.open, bytes = bytes + excluded.bytes;
    """  # noqa: S608 - constants


_TOTALS = (
    # The totals of each caller, and under * of all of them together.
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
        f"CREATE TABLE keys (name TEXT PRIMARY KEY, {_COLUMNS.definition})",
        "CREATE INDEX keys_by_expiry ON keys (expires)",
        """
        CREATE TABLE outcomes (
            owner TEXT PRIMARY KEY,
            boot TEXT NOT NULL,
            until REAL NOT NULL,
            result BLOB NOT NULL
        )
        """,
        *_TOTALS,
    ),
    from_last_format=(
        "ALTER TABLE keys ADD COLUMN caller TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE keys ADD COLUMN waits INTEGER NOT NULL DEFAULT 0",
        *_TOTALS,
        f"""INSERT INTO rooms SELECT who, sum(state IN {_OPEN}), sum(length(result))
            FROM (SELECT '*' AS who UNION ALL SELECT ''), keys GROUP BY who""",  # noqa: S608 - a constant
    ),
)

_VERSION = 1
"""Version of a row. One of another version is not read."""
_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.names.split(", "))
_WITHOUT_LARGE = _COLUMNS.names.replace(
    "result", f"CASE WHEN length(result) > {LARGE} THEN x'' ELSE result END"
)
"""The columns, but a large result is not read: SQLite knows its size without doing so."""
_WITHOUT_RESULT = _COLUMNS.names.replace("result", "x''")
_IS_LEASED = "state = ? AND boot = ? AND lease_until > ? AND lease_until <= ? + lease"
"""Whether the owner of a row counts as alive, as :meth:`Record.is_leased` tells of a record."""
MOST_LEFT = 16 * 1024**2
"""Bytes of outcomes that are left behind for the requests that wait."""
_BATCH = 500
"""Expired rows that are deleted in one transaction: other processes wait for the file meanwhile."""


def boot_id() -> str:
    """Return what tells this start of the machine from all others; empty where it is not known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


class KeyTable:
    """The records of all keys."""

    def __init__(self, db: sqlite3.Connection, clock: Clock, boot: str, most_bytes: int) -> None:
        """Keep at most *most_bytes* of results, of all callers together."""
        self._most_bytes = most_bytes
        self._run: Callable[..., sqlite3.Cursor] = db.execute
        self._clock = clock
        self._boot = boot

    def claim(self, ask: Claim) -> Claimed:
        """Claim a key; the answer tells who has it otherwise."""
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
        """Finish what *owner* has begun."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        record, _ = self._find(name, now, wall)
        if record is None or not is_owned(record, owner):
            return False
        after = settle(record, ending, wall=wall)
        if after is None:
            self._run("DELETE FROM keys WHERE name = ?", (name,))
        else:
            if after.result and not self._has_space_for(len(after.result)):
                after = after._replace(state=RecordState.UNSTORED, result=b"")
            self._write(name, after, 0.0)
        if record.waits and ending.state is not RecordState.DONE and ending.result:
            self._leave(owner, ending.result, now + LEFT_FOR)
        return True

    def _has_space_for(self, size: int) -> bool:
        """Make space for a result, if it fits at all; the caller that has most loses its oldest."""
        if size > self._most_bytes:
            return False
        while self._bytes_of("*") + size > self._most_bytes:
            (largest,) = self._run(
                "SELECT caller FROM rooms WHERE caller != '*' ORDER BY bytes DESC LIMIT 1"
            ).fetchone()
            evicted = self._run(
                "UPDATE keys SET state = 'unstored', result = x'' WHERE rowid = (SELECT rowid FROM"
                " keys WHERE caller = ? AND state = 'done' AND length(result) ORDER BY expires"
                " LIMIT 1)",
                (largest,),
            ).rowcount
            if not evicted:
                return False
        return True

    def _bytes_of(self, caller: str) -> int:
        row = self._run("SELECT bytes FROM rooms WHERE caller = ?", (caller,)).fetchone()
        return 0 if row is None else int(row[0])

    def _leave(self, owner: str, result: bytes, until: float) -> None:
        """Leave *result* behind for the requests that wait, if there is space for it."""
        (used,) = self._run("SELECT coalesce(sum(length(result)), 0) FROM outcomes").fetchone()
        if used + len(result) > MOST_LEFT:
            self._sweep_outcomes(self._clock.monotonic())
            (used,) = self._run("SELECT coalesce(sum(length(result)), 0) FROM outcomes").fetchone()
        if used + len(result) <= MOST_LEFT:
            values = (owner, self._boot, until, result)
            self._run("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?)", values)

    def renew(self, name: str, owner: str, lease: float, ttl: float) -> bool:
        """Renew the lease of *owner*."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        record, _ = self._find(name, now, wall)
        if record is None or not is_owned(record, owner):
            return False
        self._write(name, renew(record, lease, ttl, now=now, wall=wall), lease)
        return True

    def show(self, name: str) -> Shown | None:
        """Return a key's record for an operator."""
        now = self._clock.monotonic()
        record, size = self._find(name, now, self._clock.wall())
        return None if record is None else replace(shown(record, now=now), size=size)

    def page(self, wanted: KeyFilter, after: str) -> KeyPage:
        """Return records for an operator, in the order of their names, from *after*."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        rows = self._run(
            f"SELECT name, length(result), {_WITHOUT_RESULT} FROM keys"  # noqa: S608 - a constant
            " WHERE name > ? ORDER BY name LIMIT ?",
            (after, LOOKED_AT),
        )
        found: list[tuple[str, Shown]] = []
        looked, last = 0, ""
        for name, size, *row in rows:
            looked, last = looked + 1, str(name)
            try:
                record = self._leased_now(tuple(row), now)
            except StoreError:
                continue  # the others are to be shown
            if not record.has_expired(now=now, wall=wall):
                seen = replace(shown(record, now=now), size=size)
                if wanted.accepts(seen):
                    found.append((last, seen))
            if len(found) == PAGE:
                return KeyPage(tuple(found), last)
        return KeyPage(tuple(found), last if looked == LOOKED_AT else "")

    def result(self, name: str, owner: str) -> bytes | None:
        """Return the result of a key that is done; with *owner*, what that owner left behind."""
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
        """Forget a key, unless its owner is alive."""
        now = self._clock.monotonic()
        record, _ = self._find(name, now, self._clock.wall())
        if record is None or record.is_leased(now):
            return False
        self._run("DELETE FROM keys WHERE name = ?", (name,))
        return True

    def revoke(self, name: str) -> bool:
        """Take a key from its owner, so that it is held."""
        now = self._clock.monotonic()
        record, _ = self._find(name, now, self._clock.wall())
        if record is None or not record.is_leased(now):
            return False
        self._write(name, revoke(record), 0.0)
        return True

    def busy(self, names: list[str]) -> dict[str, str]:
        """Return those of *names* whose owner is alive, and the owner."""
        now = self._clock.monotonic()
        rows = self._run(
            "SELECT name, owner FROM keys WHERE"  # noqa: S608 - a constant
            f" name IN (SELECT value FROM json_each(?)) AND {_IS_LEASED}",
            (json.dumps(names), *self._lease_parameters(now)),
        )
        return dict(rows.fetchall())

    def sweep(self) -> bool:
        """Delete some expired records; tell whether there may be more."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        gone = self._run(
            "DELETE FROM keys WHERE rowid IN (SELECT rowid FROM keys"  # noqa: S608 - a constant
            f" WHERE expires <= ? AND NOT ({_IS_LEASED}) LIMIT ?)",
            (wall, *self._lease_parameters(now), _BATCH),
        ).rowcount
        return max(gone, self._sweep_outcomes(now)) >= _BATCH

    def _sweep_outcomes(self, now: float) -> int:
        """Delete some outcomes that were left behind and have expired; return how many."""
        return self._run(
            "DELETE FROM outcomes WHERE rowid IN (SELECT rowid FROM outcomes"
            " WHERE boot != ? OR until <= ? OR until > ? LIMIT ?)",
            (self._boot, now, now + LEFT_FOR, _BATCH),
        ).rowcount

    # Rows.

    def _find(self, name: str, now: float, wall: float) -> tuple[Record | None, int]:
        """Return a key's record and the size of its result; None if it is unknown or expired."""
        record, size = self._read(name, now)
        if record is None or record.has_expired(now=now, wall=wall):
            return None, 0
        return record, size

    def _lease_parameters(self, now: float) -> tuple[str, str, float, float]:
        """Return the parameters of :data:`_IS_LEASED`."""
        return RecordState.IN_FLIGHT.value, self._boot, now, now

    def _read(self, name: str, now: float) -> tuple[Record | None, int]:
        """Return a key's record, without a result that is large, and the size of that."""
        row = self._run(
            f"SELECT length(result), {_WITHOUT_LARGE} FROM keys WHERE name = ?",  # noqa: S608 - a constant
            (name,),
        ).fetchone()
        if row is None:
            return None, 0
        return self._leased_now(row[1:], now), row[0]

    def _leased_now(self, row: tuple[object, ...], now: float) -> Record:
        """Return a row's record, with a lease that is one at present, or none."""
        record, boot, lease = _record(row)
        if boot != self._boot or record.lease_until > now + lease:
            # It ended with the machine's last start. Not -inf: it is written back as it is.
            record = record._replace(lease_until=0.0)
        return record

    def _write(self, name: str, record: Record, lease: float) -> None:
        # Not "or replace", which would not fire the triggers.
        self._run(
            f"INSERT INTO keys (name, {_COLUMNS.names}) VALUES (:name, {_COLUMNS.parameters})"  # noqa: S608 - constants
            f" ON CONFLICT (name) DO UPDATE SET {_CHANGES}",
            {
                **record._asdict(),
                "name": name,
                "version": _VERSION,
                "state": record.state.value,
                "boot": self._boot,
                "lease": lease,
            },
        )

    def _left(self, owner: str, now: float, largest: int | None = LARGE) -> bytes | None:
        """Return what *owner* left behind; empty, but not None, if it is larger than *largest*."""
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
        raise StoreError("what is stored of an outcome is invalid")


def _record(row: tuple[object, ...]) -> tuple[Record, str, float]:
    """Return a row's record, the start of the machine it belongs to, and its lease."""
    values = _COLUMNS.read(row)
    version, boot, lease = (values.pop(name) for name in ("version", "boot", "lease"))
    times = (lease, values["created"], values["lease_until"], values["expires"])
    if (
        version != _VERSION
        or values["state"] not in set(RecordState)
        or not all(map(isfinite, times))
    ):
        raise StoreError(_NONSENSE)
    values.update(state=RecordState(values["state"]), waits=bool(values["waits"]))
    return Record(**values), boot, lease
