"""The table of dead letters in the file. Every method runs within a transaction."""

import json
import sqlite3
from collections.abc import Callable
from enum import Enum, auto

from proxy.core.clock import Clock
from proxy.http.fields import RawHeaders
from proxy.policy.dead_letter import (
    DeadLetter,
    DeadLetterCounts,
    DeadLetterState,
    DeadLetterSummary,
    Missing,
    Obstacle,
    ReplayRun,
)
from proxy.policy.failure_category import FailureCategory
from proxy.policy.fair_share import limit_for_one_caller
from proxy.stores import StoreError
from proxy.stores.dead_letters.presence import Presence
from proxy.stores.sqlite_file.columns import Columns
from proxy.stores.sqlite_file.opening import Layout

_NONSENSE = "what is stored of a letter is invalid"
_SUMMARY = Columns(
    "id TEXT, created REAL, expires REAL, route TEXT, method TEXT, target BLOB, request_id TEXT,"
    " error TEXT, category TEXT, why TEXT, used INTEGER, allowed INTEGER, may_have_run INTEGER,"
    " state TEXT, replays INTEGER, size INTEGER, missing TEXT, caller TEXT, credentials TEXT",
    _NONSENSE,
)
_REST = Columns(
    "peer TEXT, scheme TEXT, record TEXT, fallback TEXT, holder TEXT, headers TEXT, dropped TEXT",
    _NONSENSE,
)
_OWN = Columns("owner TEXT, weight INTEGER", _NONSENSE)
"""For the table alone: which replay has the dead letter, and the bytes that it takes."""
_ALL = _SUMMARY + _OWN + _REST

# Whether a dead letter may be replayed without force, for the new row of a change and the old.
_NEW = "(NEW.missing = '' AND NOT NEW.may_have_run AND NEW.state = 'waiting')"
_OLD = "(OLD.missing = '' AND NOT OLD.may_have_run AND OLD.state = 'waiting')"

LAYOUT = Layout(
    application=0x486F6C4C,  # "HolL"
    format=2,
    content="the dead letters in it",
    waits_for_disk=True,
    can_shrink=True,
    statements=(
        f"CREATE TABLE letters ({_ALL.definition}, PRIMARY KEY (id))",
        # Apart from the rest, which is written anew whenever the state changes.
        "CREATE TABLE bodies (letter TEXT PRIMARY KEY, body BLOB NOT NULL)",
        "CREATE INDEX letters_by_route ON letters (route, id)",
        "CREATE INDEX letters_by_expiry ON letters (expires)",
        "CREATE INDEX letters_at_work ON letters (state) WHERE state = 'replaying'",
        # Append-only: the first run and each replay has rows of its own.
        """
        CREATE TABLE runs (
            letter TEXT NOT NULL,
            number INTEGER NOT NULL,
            time REAL NOT NULL,
            result TEXT NOT NULL,
            attempts TEXT NOT NULL,
            PRIMARY KEY (letter, number)
        )
        """,
        # The counts are asked for at each dead letter and each scrape: counting would be too slow.
        """
        CREATE TABLE totals (
            route TEXT PRIMARY KEY,
            letters INTEGER NOT NULL,
            bytes INTEGER NOT NULL,
            replayable INTEGER NOT NULL
        )
        """,
        # The same for how much each holder uses.
        """
        CREATE TABLE holders (
            holder TEXT PRIMARY KEY,
            letters INTEGER NOT NULL,
            bytes INTEGER NOT NULL
        )
        """,
        # The key of the digests of callers: without it, no one can try out credentials.
        "CREATE TABLE secrets (name TEXT PRIMARY KEY, secret BLOB NOT NULL)",
        "INSERT INTO secrets VALUES ('callers', randomblob(32))",
        f"""
        CREATE TRIGGER letter_came AFTER INSERT ON letters BEGIN
            INSERT INTO totals (route, letters, bytes, replayable)
            VALUES (NEW.route, 1, NEW.weight, {_NEW})
            ON CONFLICT (route) DO UPDATE SET letters = letters + 1, bytes = bytes + NEW.weight,
                replayable = replayable + {_NEW};
            INSERT INTO holders (holder, letters, bytes) VALUES (NEW.holder, 1, NEW.weight)
            ON CONFLICT (holder) DO UPDATE SET letters = letters + 1, bytes = bytes + NEW.weight;
        END
        """,  # noqa: S608 - constants
        f"""
        CREATE TRIGGER letter_changed AFTER UPDATE ON letters BEGIN
            UPDATE totals SET replayable = replayable + {_NEW} - {_OLD} WHERE route = NEW.route;
        END
        """,  # noqa: S608 - constants
        f"""
        CREATE TRIGGER letter_went AFTER DELETE ON letters BEGIN
            UPDATE totals SET letters = letters - 1, bytes = bytes - OLD.weight,
                replayable = replayable - {_OLD} WHERE route = OLD.route;
            DELETE FROM totals WHERE route = OLD.route AND letters = 0;
            UPDATE holders SET letters = letters - 1, bytes = bytes - OLD.weight
                WHERE holder = OLD.holder;
            DELETE FROM holders WHERE holder = OLD.holder AND letters = 0;
            DELETE FROM runs WHERE letter = OLD.id;
            DELETE FROM bodies WHERE letter = OLD.id;
        END
        """,  # noqa: S608 - constants
    ),
)

BATCH = 200
"""Dead letters that are deleted in one transaction: other processes wait for the file meanwhile."""
_ENOUGH_TO_SHRINK = 256
"""Free pages below which a file does not shrink: the next dead letters use them."""


class Kept(Enum):
    """Whether a dead letter was kept, and why not."""

    YES = auto()
    FULL = auto()
    """All space is taken by dead letters that clients were promised."""
    NO_SHARE = auto()
    """The holder has half of all space and is not alone, or all but what is left to others."""


class DeadLetterTable:
    """All dead letters of the file."""

    def __init__(self, db: sqlite3.Connection, clock: Clock, presence: Presence) -> None:
        self._run: Callable[..., sqlite3.Cursor] = db.execute
        self._run_each: Callable[..., sqlite3.Cursor] = db.executemany
        self._clock = clock
        self._presence = presence

    def keep(self, dead_letter: DeadLetter, max_count: int, max_bytes: int) -> Kept:
        """Insert a dead letter, if there is space for it.

        Its client was promised that it is kept, so none is evicted for another. How one holder is
        kept from taking all of the space: see :mod:`proxy.policy.fair_share`.
        """
        headers = json.dumps([[_text(name), _text(value)] for name, value in dead_letter.headers])
        (run,) = dead_letter.runs
        attempts = json.dumps(run.attempts)
        weight = (
            len(dead_letter.body) + len(headers) + len(attempts) + len(dead_letter.summary.target)
        )
        count, size = self._run(
            "SELECT coalesce(sum(letters), 0), coalesce(sum(bytes), 0) FROM totals"
        ).fetchone()
        own_count, own_size = self._run(
            "SELECT letters, bytes FROM holders WHERE holder = ?", (dead_letter.holder,)
        ).fetchone() or (0, 0)
        if count >= max_count or size + weight > max_bytes:
            return Kept.FULL
        if count == own_count:
            share, share_bytes = (
                limit_for_one_caller(max_count),
                limit_for_one_caller(max_bytes),
            )
        else:
            share, share_bytes = max_count // 2, max_bytes // 2
        if own_count >= share or own_size + weight > share_bytes:
            return Kept.NO_SHARE
        out = dead_letter.summary
        values = {
            **{name: getattr(out, name) for name in DeadLetterSummary.__slots__},
            **{name: getattr(dead_letter, name) for name in ("peer", "scheme", "record")},
            "fallback": dead_letter.fallback,
            "holder": dead_letter.holder,
            "target": out.target.encode("utf-8", "surrogateescape"),
            "category": out.category.value,
            "why": out.verdict,
            "state": out.state.value,
            "missing": out.missing or "",
            "credentials": json.dumps(out.credentials),
            "owner": "",
            "weight": weight,
            "headers": headers,
            "dropped": json.dumps(dead_letter.dropped),
        }
        self._run(f"INSERT INTO letters ({_ALL.names}) VALUES ({_ALL.parameters})", values)  # noqa: S608 - constants
        if dead_letter.body:
            self._run("INSERT INTO bodies VALUES (?, ?)", (out.id, dead_letter.body))
        self._add_run(out.id, 0, run)
        return Kept.YES

    def _add_run(self, dead_letter_id: str, number: int, run: ReplayRun) -> None:
        values = (dead_letter_id, number, run.time, run.result, json.dumps(run.attempts))
        self._run("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", values)

    def page(
        self, route: str | None, after: str, limit: int, *, newest: bool
    ) -> list[DeadLetterSummary]:
        """Return up to *limit* dead letters behind *after*, in their order."""
        self.find_abandoned()
        where, values = [], list[object]()
        if route is not None:
            where.append("route = ?")
            values.append(route)
        if after:
            where.append("id < ?" if newest else "id > ?")
            values.append(after)
        condition = f"WHERE {' AND '.join(where)}" if where else ""
        order = "DESC" if newest else "ASC"
        rows = self._run(
            f"SELECT {_SUMMARY.names} FROM letters {condition} ORDER BY id {order} LIMIT ?",  # noqa: S608 - constants
            (*values, limit),
        )
        return [_summary(row) for row in rows]

    def find(self, dead_letter_id: str) -> DeadLetter | None:
        """Return all of one dead letter."""
        self.find_abandoned()
        row = self._run(
            f"SELECT {_SUMMARY.names}, {_REST.names} FROM letters WHERE id = ?",  # noqa: S608 - constants
            (dead_letter_id,),
        ).fetchone()
        if row is None:
            return None
        runs = self._run(
            "SELECT time, result, attempts FROM runs WHERE letter = ? ORDER BY number",
            (dead_letter_id,),
        ).fetchall()
        (body,) = self._run(
            "SELECT body FROM bodies WHERE letter = ?", (dead_letter_id,)
        ).fetchone() or (b"",)
        return _dead_letter(row, body, runs)

    def begin_replay(
        self, dead_letter_id: str, ticket: str, *, force: bool
    ) -> DeadLetter | Obstacle:
        """Mark a dead letter as being replayed, if it may be; *ticket* identifies the replay."""
        found = self.find(dead_letter_id)
        if found is None:
            return Obstacle.UNKNOWN
        obstacle = found.summary.obstacle(force=force)
        if obstacle is not None:
            return obstacle
        self._run(
            "UPDATE letters SET state = ?, owner = ? WHERE id = ?",
            (DeadLetterState.REPLAYING.value, f"{self._presence.token} {ticket}", dead_letter_id),
        )
        return found

    def end_replay(
        self,
        dead_letter_id: str,
        ticket: str,
        run: ReplayRun | None,
        *,
        may_have_run: bool,
        gone: bool,
    ) -> None:
        """End a replay: the dead letter is *gone*, or waits with one more *run* on record."""
        owner = f"{self._presence.token} {ticket}"
        row = self._run("SELECT owner FROM letters WHERE id = ?", (dead_letter_id,)).fetchone()
        if row is None or row[0] != owner:
            return  # the replay had not begun
        if gone:
            self._run("DELETE FROM letters WHERE id = ?", (dead_letter_id,))
            return
        if run is not None:
            (number,) = self._run(
                "SELECT count(*) FROM runs WHERE letter = ?", (dead_letter_id,)
            ).fetchone()
            self._add_run(dead_letter_id, number, run)
        used = None if run is None else len(run.attempts)
        # What was uncertain before stays so: that it failed this time says nothing of the other.
        self._run(
            "UPDATE letters SET state = ?, owner = '', replays = replays + ?,"
            " used = coalesce(?, used), may_have_run = may_have_run OR ? WHERE id = ?",
            (
                DeadLetterState.WAITING.value,
                int(run is not None),
                used,
                int(may_have_run),
                dead_letter_id,
            ),
        )

    def find_abandoned(self) -> None:
        """Mark as uncertain what a process was replaying that is dead now."""
        rows = self._run("SELECT DISTINCT owner FROM letters WHERE state = 'replaying'").fetchall()
        for (owner,) in rows:
            if not self._presence.is_alive(owner.partition(" ")[0]):
                self._run(
                    "UPDATE letters SET state = ?, owner = '', may_have_run = 1"
                    " WHERE state = 'replaying' AND owner = ?",
                    (DeadLetterState.UNCERTAIN.value, owner),
                )

    def drop(self, dead_letter_id: str) -> bool | None:
        """Delete a dead letter; False if it is being replayed, None if there is none."""
        self.find_abandoned()
        row = self._run("SELECT state FROM letters WHERE id = ?", (dead_letter_id,)).fetchone()
        if row is None:
            return None
        if row[0] == DeadLetterState.REPLAYING.value:
            return False
        self._run("DELETE FROM letters WHERE id = ?", (dead_letter_id,))
        return True

    def drop_some(self, route: str | None, after: str, until: str, limit: int) -> list[str]:
        """Delete up to *limit* dead letters of a route, or of all; return their ids.

        They are behind *after*, up to *until*. Those that are being replayed stay.
        """
        self.find_abandoned()
        condition, values = ("AND route = ?", (route,)) if route is not None else ("", ())
        rows = self._run(
            "SELECT id FROM letters WHERE state != 'replaying' AND id > ? AND id <= ?"  # noqa: S608 - constants
            f" {condition} ORDER BY id LIMIT ?",
            (after, until, *values, limit),
        ).fetchall()
        self._run_each("DELETE FROM letters WHERE id = ?", rows)
        return [dead_letter_id for (dead_letter_id,) in rows]

    def sweep(self) -> tuple[dict[str, int], bool]:
        """Delete some expired dead letters; return the number by route, and if there are more."""
        self.find_abandoned()
        rows = self._run(
            "SELECT id, route FROM letters WHERE expires <= ? AND state != 'replaying' LIMIT ?",
            (self._clock.wall(), BATCH),
        ).fetchall()
        gone: dict[str, int] = {}
        for dead_letter_id, route in rows:
            self._run("DELETE FROM letters WHERE id = ?", (dead_letter_id,))
            gone[route] = gone.get(route, 0) + 1
        return gone, len(rows) == BATCH

    def loose_pages(self) -> int:
        """Return the number of free pages to be given back to the disk; 0 if they are few."""
        free: int = self._run("PRAGMA freelist_count").fetchone()[0]
        return free if free >= _ENOUGH_TO_SHRINK else 0

    def secret(self) -> bytes:
        """Return the key of the digests of callers: one for all processes that use the file."""
        row = self._run("SELECT secret FROM secrets WHERE name = 'callers'").fetchone()
        match row:
            case (bytes(secret),):
                return secret
        raise StoreError("the file of the dead letters has lost its secret")

    def counts(self) -> dict[str, DeadLetterCounts]:
        """Return how many dead letters there are, by route."""
        found = {}
        for route, count, size, replayable in self._run("SELECT * FROM totals").fetchall():
            (oldest,) = self._run(
                "SELECT created FROM letters WHERE route = ? ORDER BY id LIMIT 1", (route,)
            ).fetchone() or (0.0,)
            found[route] = DeadLetterCounts(count, replayable, size, oldest)
        return found


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _summary(row: tuple[object, ...]) -> DeadLetterSummary:
    values = _SUMMARY.read(row)
    category, state, missing = values["category"], values["state"], values["missing"]
    if category not in set(FailureCategory) or state not in set(DeadLetterState):
        raise StoreError(_NONSENSE)
    values.update(
        target=values["target"].decode("utf-8", "surrogateescape"),
        category=FailureCategory(category),
        verdict=values.pop("why"),
        may_have_run=bool(values["may_have_run"]),
        state=DeadLetterState(state),
        missing=Missing(missing) if missing in set(Missing) else None,
        credentials=tuple(_read(values["credentials"])),
    )
    return DeadLetterSummary(**values)


def _dead_letter(
    row: tuple[object, ...], body: bytes, runs: list[tuple[float, str, str]]
) -> DeadLetter:
    values = _REST.read(row[len(_SUMMARY) :])
    values.update(headers=_headers(values["headers"]), dropped=tuple(_read(values["dropped"])))
    return DeadLetter(
        summary=_summary(row[: len(_SUMMARY)]),
        body=body,
        runs=tuple(
            ReplayRun(time, result, tuple(_read(attempts))) for time, result, attempts in runs
        ),
        **values,
    )


def _headers(text: str) -> RawHeaders:
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in _read(text))


def _read(text: str) -> list:  # type: ignore[type-arg]  # whatever we wrote
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise StoreError(_NONSENSE)
    return found
