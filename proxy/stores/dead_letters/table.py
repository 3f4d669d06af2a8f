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
from proxy.stores.sqlite_file.opening import Layout

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
        """
        CREATE TABLE letters (
            id TEXT PRIMARY KEY,
            created REAL NOT NULL,
            expires REAL NOT NULL,
            route TEXT NOT NULL,
            method TEXT NOT NULL,
            target BLOB NOT NULL,
            request_id TEXT NOT NULL,
            error TEXT NOT NULL,
            category TEXT NOT NULL,
            why TEXT NOT NULL,
            used INTEGER NOT NULL,
            allowed INTEGER NOT NULL,
            may_have_run INTEGER NOT NULL,
            state TEXT NOT NULL,
            owner TEXT NOT NULL,
            replays INTEGER NOT NULL,
            size INTEGER NOT NULL,
            missing TEXT NOT NULL,
            weight INTEGER NOT NULL,
            peer TEXT NOT NULL,
            scheme TEXT NOT NULL,
            record TEXT NOT NULL,
            fallback TEXT NOT NULL,
            holder TEXT NOT NULL,
            caller TEXT NOT NULL,
            credentials TEXT NOT NULL,
            headers TEXT NOT NULL,
            dropped TEXT NOT NULL
        )
        """,
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

_SUMMARY = (
    "id, created, expires, route, method, target, request_id, error, category, why, used, allowed,"
    " may_have_run, state, replays, size, missing, caller, credentials"
)
_REST = "headers, dropped, peer, scheme, record, fallback, holder"
_ALL = f"{_SUMMARY}, owner, weight, {_REST}"
_PLACEHOLDERS = ", ".join("?" * len(_ALL.split(",")))
_SUMMARY_COLUMNS = len(_SUMMARY.split(","))
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
        values = (
            *(out.id, out.created, out.expires, out.route, out.method),
            out.target.encode("utf-8", "surrogateescape"),
            *(out.request_id, out.error, out.category.value, out.verdict, out.used, out.allowed),
            *(int(out.may_have_run), out.state.value, out.replays, out.size, out.missing or ""),
            *(out.caller, json.dumps(out.credentials)),
            *("", weight, headers, json.dumps(dead_letter.dropped)),
            *(
                dead_letter.peer,
                dead_letter.scheme,
                dead_letter.record,
                dead_letter.fallback,
                dead_letter.holder,
            ),
        )
        self._run(f"INSERT INTO letters ({_ALL}) VALUES ({_PLACEHOLDERS})", values)  # noqa: S608 - constants
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
            f"SELECT {_SUMMARY} FROM letters {condition} ORDER BY id {order} LIMIT ?",  # noqa: S608 - constants
            (*values, limit),
        )
        return [_summary(row) for row in rows]

    def find(self, dead_letter_id: str) -> DeadLetter | None:
        """Return all of one dead letter."""
        self.find_abandoned()
        row = self._run(
            f"SELECT {_SUMMARY}, {_REST} FROM letters WHERE id = ?",  # noqa: S608 - constants
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
    match row:
        case (
            str(dead_letter_id),
            float(created),
            float(expires),
            str(route),
            str(method),
            bytes(target),
            str(request_id),
            str(error),
            str(category),
            str(verdict),
            int(used),
            int(allowed),
            int(may_have_run),
            str(state),
            int(replays),
            int(size),
            str(missing),
            str(caller),
            str(credentials),
        ) if category in set(FailureCategory) and state in set(DeadLetterState):
            return DeadLetterSummary(
                id=dead_letter_id,
                created=created,
                expires=expires,
                route=route,
                method=method,
                target=target.decode("utf-8", "surrogateescape"),
                request_id=request_id,
                error=error,
                category=FailureCategory(category),
                verdict=verdict,
                used=used,
                allowed=allowed,
                may_have_run=bool(may_have_run),
                state=DeadLetterState(state),
                replays=replays,
                size=size,
                missing=Missing(missing) if missing in set(Missing) else None,
                caller=caller,
                credentials=tuple(_read(credentials)),
            )
    raise StoreError("what is stored of a letter makes no sense")


def _dead_letter(
    row: tuple[object, ...], body: bytes, runs: list[tuple[float, str, str]]
) -> DeadLetter:
    summary, rest = _summary(row[:_SUMMARY_COLUMNS]), row[_SUMMARY_COLUMNS:]
    match rest:
        case (
            str(headers),
            str(dropped),
            str(peer),
            str(scheme),
            str(record),
            str(fallback),
            str(holder),
        ):
            return DeadLetter(
                summary=summary,
                headers=_headers(headers),
                dropped=tuple(_read(dropped)),
                body=body,
                peer=peer,
                scheme=scheme,
                record=record,
                fallback=fallback,
                holder=holder,
                runs=tuple(
                    ReplayRun(time, result, tuple(_read(attempts)))
                    for time, result, attempts in runs
                ),
            )
    raise StoreError("what is stored of a letter makes no sense")


def _headers(text: str) -> RawHeaders:
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in _read(text))


def _read(text: str) -> list:  # type: ignore[type-arg]  # whatever we wrote
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise StoreError("what is stored of a letter makes no sense")
    return found
