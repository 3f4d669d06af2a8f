"""Letters as rows of a file. Every function here runs within a transaction."""

import json
import sqlite3
from collections.abc import Callable

from proxy.core import Clock
from proxy.policy.failures import Category
from proxy.policy.letters import (
    Letter,
    LetterCounts,
    LetterState,
    Missing,
    Obstacle,
    Outline,
    RawHeaders,
    Run,
)
from proxy.stores import StoreError
from proxy.stores.letters.presence import Presence
from proxy.stores.sqlite.opening import Layout

# Whether a letter may be sent again without more ado, for the new row of a change and the old.
_NEW = "(NEW.missing = '' AND NOT NEW.may_have_run AND NEW.state = 'waiting')"
_OLD = "(OLD.missing = '' AND NOT OLD.may_have_run AND OLD.state = 'waiting')"

LAYOUT = Layout(
    application=0x486F6C4C,  # "HolL"
    format=1,
    content="the dead letters in it",
    waits_for_disk=True,
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
            headers TEXT NOT NULL,
            dropped TEXT NOT NULL,
            body BLOB NOT NULL
        )
        """,
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
        # How many there are is asked at each letter and each scrape: counting would be too slow.
        """
        CREATE TABLE totals (
            route TEXT PRIMARY KEY,
            letters INTEGER NOT NULL,
            bytes INTEGER NOT NULL,
            replayable INTEGER NOT NULL
        )
        """,
        f"""
        CREATE TRIGGER letter_came AFTER INSERT ON letters BEGIN
            INSERT INTO totals (route, letters, bytes, replayable)
            VALUES (NEW.route, 1, NEW.weight, {_NEW})
            ON CONFLICT (route) DO UPDATE SET letters = letters + 1, bytes = bytes + NEW.weight,
                replayable = replayable + {_NEW};
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
            DELETE FROM runs WHERE letter = OLD.id;
        END
        """,  # noqa: S608 - constants
    ),
)

_OUTLINE = (
    "id, created, expires, route, method, target, request_id, error, category, why, used, allowed,"
    " may_have_run, state, replays, size, missing"
)
_REST = "headers, dropped, body, peer, scheme, record, fallback"
_ALL = f"{_OUTLINE}, owner, weight, {_REST}"
_PLACES = ", ".join("?" * len(_ALL.split(",")))
_LOT = 200
"""Letters that are deleted at once: others wait for the file meanwhile."""


class Table:
    """All letters of the file."""

    def __init__(self, db: sqlite3.Connection, clock: Clock, presence: Presence) -> None:
        self._run: Callable[..., sqlite3.Cursor] = db.execute
        self._clock = clock
        self._presence = presence

    def keep(self, letter: Letter, most_letters: int, most_bytes: int) -> bool:
        """Put a letter with the others; False if there is no room for it."""
        headers = json.dumps([[_text(name), _text(value)] for name, value in letter.headers])
        (run,) = letter.runs
        attempts = json.dumps(run.attempts)
        weight = len(letter.body) + len(headers) + len(attempts) + len(letter.outline.target)
        letters, size = self._run(
            "SELECT coalesce(sum(letters), 0), coalesce(sum(bytes), 0) FROM totals"
        ).fetchone()
        if letters >= most_letters or size + weight > most_bytes:
            return False
        out = letter.outline
        values = (
            *(out.id, out.created, out.expires, out.route, out.method),
            out.target.encode("utf-8", "surrogateescape"),
            *(out.request_id, out.error, out.category.value, out.why, out.used, out.allowed),
            *(int(out.may_have_run), out.state.value, out.replays, out.size, out.missing or ""),
            *("", weight, headers, json.dumps(letter.dropped), letter.body),
            *(letter.peer, letter.scheme, letter.record, letter.fallback),
        )
        self._run(f"INSERT INTO letters ({_ALL}) VALUES ({_PLACES})", values)  # noqa: S608 - constants
        self._add_run(out.id, 0, run)
        return True

    def _add_run(self, letter: str, number: int, run: Run) -> None:
        values = (letter, number, run.time, run.result, json.dumps(run.attempts))
        self._run("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", values)

    def page(self, route: str | None, after: str, limit: int, *, newest: bool) -> list[Outline]:
        """Up to *limit* letters behind *after*, in their order."""
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
            f"SELECT {_OUTLINE} FROM letters {condition} ORDER BY id {order} LIMIT ?",  # noqa: S608 - constants
            (*values, limit),
        )
        return [_outline(row) for row in rows]

    def find(self, letter: str) -> Letter | None:
        """All of one letter."""
        self.find_abandoned()
        row = self._run(
            f"SELECT {_OUTLINE}, {_REST} FROM letters WHERE id = ?",  # noqa: S608 - constants
            (letter,),
        ).fetchone()
        if row is None:
            return None
        runs = self._run(
            "SELECT time, result, attempts FROM runs WHERE letter = ? ORDER BY number", (letter,)
        ).fetchall()
        return _letter(row, runs)

    def begin_replay(self, letter: str, ticket: str, *, force: bool) -> Letter | Obstacle:
        """Mark it as being sent again, if it may be; *ticket* tells this replay from others."""
        found = self.find(letter)
        if found is None:
            return Obstacle.UNKNOWN
        obstacle = found.outline.obstacle(force=force)
        if obstacle is not None:
            return obstacle
        self._run(
            "UPDATE letters SET state = ?, owner = ? WHERE id = ?",
            (LetterState.REPLAYING.value, f"{self._presence.token} {ticket}", letter),
        )
        return found

    def end_replay(
        self, letter: str, ticket: str, run: Run | None, *, may_have_run: bool, gone: bool
    ) -> None:
        """It was sent again, and is gone; or goes on waiting, with one more *run* on record."""
        owner = f"{self._presence.token} {ticket}"
        row = self._run("SELECT owner FROM letters WHERE id = ?", (letter,)).fetchone()
        if row is None or row[0] != owner:
            return  # it had not begun
        if gone:
            self._run("DELETE FROM letters WHERE id = ?", (letter,))
            return
        if run is not None:
            (number,) = self._run(
                "SELECT count(*) FROM runs WHERE letter = ?", (letter,)
            ).fetchone()
            self._add_run(letter, number, run)
        used = None if run is None else len(run.attempts)
        # What was uncertain before stays so: that it failed this time says nothing of the other.
        self._run(
            "UPDATE letters SET state = ?, owner = '', replays = replays + ?,"
            " used = coalesce(?, used), may_have_run = may_have_run OR ? WHERE id = ?",
            (LetterState.WAITING.value, int(run is not None), used, int(may_have_run), letter),
        )

    def find_abandoned(self) -> None:
        """What somebody was sending who is dead is uncertain."""
        rows = self._run("SELECT DISTINCT owner FROM letters WHERE state = 'replaying'").fetchall()
        for (owner,) in rows:
            if not self._presence.is_alive(owner.partition(" ")[0]):
                self._run(
                    "UPDATE letters SET state = ?, owner = '', may_have_run = 1"
                    " WHERE state = 'replaying' AND owner = ?",
                    (LetterState.UNCERTAIN.value, owner),
                )

    def drop(self, letter: str) -> bool | None:
        """Delete it; False if it is being sent again, None if there is none."""
        self.find_abandoned()
        row = self._run("SELECT state FROM letters WHERE id = ?", (letter,)).fetchone()
        if row is None:
            return None
        if row[0] == LetterState.REPLAYING.value:
            return False
        self._run("DELETE FROM letters WHERE id = ?", (letter,))
        return True

    def drop_some(self, route: str | None) -> int:
        """Delete some of a route, or of all, but for what is being sent again; how many."""
        self.find_abandoned()
        condition, values = ("AND route = ?", (route,)) if route is not None else ("", ())
        return self._run(
            "DELETE FROM letters WHERE id IN (SELECT id FROM letters"  # noqa: S608 - constants
            f" WHERE state != 'replaying' {condition} LIMIT ?)",
            (*values, _LOT),
        ).rowcount

    def sweep(self) -> tuple[dict[str, int], bool]:
        """Delete some of what has expired: how many of each route, and whether there is more."""
        self.find_abandoned()
        rows = self._run(
            "SELECT id, route FROM letters WHERE expires <= ? AND state != 'replaying' LIMIT ?",
            (self._clock.wall(), _LOT),
        ).fetchall()
        gone: dict[str, int] = {}
        for letter, route in rows:
            self._run("DELETE FROM letters WHERE id = ?", (letter,))
            gone[route] = gone.get(route, 0) + 1
        return gone, len(rows) == _LOT

    def counts(self) -> dict[str, LetterCounts]:
        """How many there are, by route."""
        found = {}
        for route, letters, size, replayable in self._run("SELECT * FROM totals").fetchall():
            (oldest,) = self._run(
                "SELECT created FROM letters WHERE route = ? ORDER BY id LIMIT 1", (route,)
            ).fetchone() or (0.0,)
            found[route] = LetterCounts(letters, replayable, size, oldest)
        return found


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _outline(row: tuple[object, ...]) -> Outline:
    match row:
        case (
            str(letter),
            float(created),
            float(expires),
            str(route),
            str(method),
            bytes(target),
            str(request_id),
            str(error),
            str(category),
            str(why),
            int(used),
            int(allowed),
            int(may_have_run),
            str(state),
            int(replays),
            int(size),
            str(missing),
        ) if category in set(Category) and state in set(LetterState):
            return Outline(
                id=letter,
                created=created,
                expires=expires,
                route=route,
                method=method,
                target=target.decode("utf-8", "surrogateescape"),
                request_id=request_id,
                error=error,
                category=Category(category),
                why=why,
                used=used,
                allowed=allowed,
                may_have_run=bool(may_have_run),
                state=LetterState(state),
                replays=replays,
                size=size,
                missing=Missing(missing) if missing in set(Missing) else None,
            )
    raise StoreError("what is stored of a letter makes no sense")


def _letter(row: tuple[object, ...], runs: list[tuple[float, str, str]]) -> Letter:
    outline, rest = _outline(row[:17]), row[17:]
    match rest:
        case (
            str(headers),
            str(dropped),
            bytes(body),
            str(peer),
            str(scheme),
            str(record),
            str(fallback),
        ):
            return Letter(
                outline=outline,
                headers=_headers(headers),
                dropped=tuple(_read(dropped)),
                body=body,
                peer=peer,
                scheme=scheme,
                record=record,
                fallback=fallback,
                runs=tuple(
                    Run(time, result, tuple(_read(attempts))) for time, result, attempts in runs
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
