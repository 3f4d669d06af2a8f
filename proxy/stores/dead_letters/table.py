"""The table of dead letters in the file. Every method runs within a transaction."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from enum import Enum, auto

from proxy.core.clock import Clock
from proxy.http.fields import RawHeaders
from proxy.policy.dead_letter import (
    DELIVERY_PREFIX,
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
from proxy.stores.dead_letters.layout import ALL, ENDED, NONSENSE, REST, SUMMARY
from proxy.stores.sqlite_file.presence import Presence

_NEVER_A_DELIVERY = {
    **dict.fromkeys(("upstream", "scope", "added_key", "deferred"), ""),
    **dict.fromkeys(("ran_at", "sending_to", "wiped"), "[]"),
    **dict.fromkeys(
        ("accepted", "gives_up", "give_up_after", "due", "last_try", "ttl", "letter_ttl", "ended"),
        0.0,
    ),
    **dict.fromkeys(("attempts", "tries", "has_key", "response_status", "version"), 0),
    "fingerprint": b"",
    "state": "failed",
    "is_letter": 1,
}
"""The columns of a delivery in the row of a request that failed while its client waited."""
_BEHIND_ALL = "~"
"""Sorts behind all dead letters."""
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
            "replay_state": out.state.value,
            "missing": out.missing or "",
            "credentials": json.dumps(out.credentials),
            "owner": "",
            "weight": weight,
            "headers": headers,
            "dropped": json.dumps(dead_letter.dropped),
            **_NEVER_A_DELIVERY,
            "filed": out.id,
        }
        self._run(f"INSERT INTO deliveries ({ALL.names}) VALUES ({ALL.parameters})", values)  # noqa: S608 - constants
        if dead_letter.body:
            self._run("INSERT INTO bodies VALUES (?, ?)", (out.id, dead_letter.body))
        self._add_run(out.id, 0, run)
        return Kept.YES

    def _add_run(self, dead_letter_id: str, number: int, run: ReplayRun) -> None:
        values = (dead_letter_id, number, run.time, run.result, json.dumps(run.attempts))
        self._run(
            "INSERT INTO runs (delivery, number, time, result, attempts) VALUES (?, ?, ?, ?, ?)",
            values,
        )

    def page(
        self, route: str | None, after: str, limit: int, *, newest: bool
    ) -> list[DeadLetterSummary]:
        """Return up to *limit* dead letters behind *after*, in their order."""
        self.find_abandoned()
        where, values = ["is_letter"], list[object]()
        if route is not None:
            where.append("route = ?")
            values.append(route)
        if after:
            where.append("filed < ?" if newest else "filed > ?")
            values.append(self._position(after, "" if newest else _BEHIND_ALL))
        condition, order = " AND ".join(where), "DESC" if newest else "ASC"
        rows = self._run(
            f"SELECT {SUMMARY.names} FROM deliveries WHERE {condition}"  # noqa: S608 - constants
            f" ORDER BY filed {order} LIMIT ?",
            (*values, limit),
        )
        return [_summary(row) for row in rows]

    def _position(self, dead_letter_id: str, unknown: str) -> str:
        """Return where a dead letter is, or was, in the order of all; *unknown*: nobody knows.

        The id of one that never was a delivery says so itself.
        """
        row = self._run(
            "SELECT filed FROM deliveries WHERE id = :id"
            " UNION ALL SELECT filed FROM gone WHERE id = :id LIMIT 1",
            {"id": dead_letter_id},
        ).fetchone()
        if row is not None:
            return str(row[0])
        return unknown if dead_letter_id.startswith(DELIVERY_PREFIX) else dead_letter_id

    def find(self, dead_letter_id: str) -> DeadLetter | None:
        """Return all of one dead letter."""
        self.find_abandoned()
        row = self._run(
            f"SELECT {SUMMARY.names}, {REST.names} FROM deliveries WHERE id = ? AND is_letter",  # noqa: S608 - constants
            (dead_letter_id,),
        ).fetchone()
        if row is None:
            return None
        runs = self._run(
            "SELECT time, result, attempts FROM runs WHERE delivery = ? ORDER BY number",
            (dead_letter_id,),
        ).fetchall()
        (body,) = self._run(
            "SELECT body FROM bodies WHERE delivery = ?", (dead_letter_id,)
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
            "UPDATE deliveries SET replay_state = ?, owner = ? WHERE id = ?",
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
        row = self._run("SELECT owner FROM deliveries WHERE id = ?", (dead_letter_id,)).fetchone()
        if row is None or row[0] != owner:
            return  # the replay had not begun
        if gone:
            self._end_well(dead_letter_id)
            return
        if run is not None:
            (number,) = self._run(
                "SELECT coalesce(max(number), -1) + 1 FROM runs WHERE delivery = ?",
                (dead_letter_id,),
            ).fetchone()
            self._add_run(dead_letter_id, number, run)
        used = None if run is None else len(run.attempts)
        # What was uncertain before stays so: that it failed this time says nothing of the other.
        self._run(
            "UPDATE deliveries SET replay_state = ?, owner = '', replays = replays + ?,"
            " used = coalesce(?, used), may_have_run = may_have_run OR ?,"
            " version = version + 1 WHERE id = ?",
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
        rows = self._run(
            "SELECT DISTINCT owner FROM deliveries WHERE replay_state = 'replaying'"
        ).fetchall()
        for (owner,) in rows:
            if not self._presence.is_alive(owner.partition(" ")[0]):
                self._run(
                    "UPDATE deliveries SET replay_state = ?, owner = '', may_have_run = 1,"
                    " version = version + 1 WHERE replay_state = 'replaying' AND owner = ?",
                    (DeadLetterState.UNCERTAIN.value, owner),
                )

    def drop(self, dead_letter_id: str) -> bool | None:
        """Delete a dead letter; False if it is being replayed, None if there is none."""
        self.find_abandoned()
        row = self._run(
            "SELECT replay_state FROM deliveries WHERE id = ? AND is_letter", (dead_letter_id,)
        ).fetchone()
        if row is None:
            return None
        if row[0] == DeadLetterState.REPLAYING.value:
            return False
        self._delete([dead_letter_id])
        return True

    def drop_some(self, route: str | None, after: str, until: str, limit: int) -> list[str]:
        """Delete up to *limit* dead letters of a route, or of all; return their ids.

        They are behind *after*, up to *until*. Those that are being replayed stay.
        """
        self.find_abandoned()
        condition, values = ("AND route = ?", (route,)) if route is not None else ("", ())
        rows = self._run(
            "SELECT id FROM deliveries WHERE is_letter AND replay_state != 'replaying'"  # noqa: S608 - constants
            f" AND filed > ? AND filed <= ? {condition} ORDER BY filed LIMIT ?",
            (self._position(after, _BEHIND_ALL), self._position(until, ""), *values, limit),
        ).fetchall()
        ids = [dead_letter_id for (dead_letter_id,) in rows]
        self._delete(ids)
        return ids

    def _delete(self, ids: Sequence[str]) -> None:
        """Delete dead letters; that one was a delivery is known for a while."""
        wall = self._clock.wall()
        self._run_each(
            "INSERT OR REPLACE INTO gone SELECT id, filed, ? + ttl FROM deliveries"
            " WHERE id = ? AND accepted > 0",
            [(wall, dead_letter_id) for dead_letter_id in ids],
        )
        self._run_each("DELETE FROM deliveries WHERE id = ?", [(each,) for each in ids])

    def _end_well(self, dead_letter_id: str) -> None:
        """Delete a dead letter whose replay succeeded; if it was a delivery, it is delivered."""
        wall = self._clock.wall()
        was_delivery = self._run(
            "UPDATE deliveries SET state = 'delivered', is_letter = 0, replay_state = 'waiting',"
            " owner = '', why = '', error = '', weight = 0, tries = tries + 1,"
            " attempts = attempts + 1, ended = ?, expires = ? + ttl, version = version + 1"
            " WHERE id = ? AND accepted > 0",
            (wall, wall, dead_letter_id),
        ).rowcount
        if was_delivery:
            self._run("DELETE FROM bodies WHERE delivery = ?", (dead_letter_id,))
        else:
            self._run("DELETE FROM deliveries WHERE id = ?", (dead_letter_id,))

    def sweep(self) -> tuple[dict[str, int], bool]:
        """Delete some expired dead letters; return the number by route, and if there are more."""
        self.find_abandoned()
        rows = self._run(
            f"SELECT id, route FROM deliveries WHERE {ENDED} AND expires <= ?"  # noqa: S608 - constants
            " AND is_letter AND replay_state != 'replaying' LIMIT ?",
            (self._clock.wall(), BATCH),
        ).fetchall()
        gone: dict[str, int] = {}
        for _, route in rows:
            gone[route] = gone.get(route, 0) + 1
        self._delete([dead_letter_id for dead_letter_id, _ in rows])
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
                "SELECT created FROM deliveries WHERE route = ? AND is_letter"
                " ORDER BY filed LIMIT 1",
                (route,),
            ).fetchone() or (0.0,)
            found[route] = DeadLetterCounts(count, replayable, size, oldest)
        return found


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _summary(row: tuple[object, ...]) -> DeadLetterSummary:
    values = SUMMARY.read(row)
    category, state, missing = values["category"], values.pop("replay_state"), values["missing"]
    if category not in set(FailureCategory) or state not in set(DeadLetterState):
        raise StoreError(NONSENSE)
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
    values = REST.read(row[len(SUMMARY) :])
    values.update(headers=_headers(values["headers"]), dropped=tuple(_read(values["dropped"])))
    return DeadLetter(
        summary=_summary(row[: len(SUMMARY)]),
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
        raise StoreError(NONSENSE)
    return found
