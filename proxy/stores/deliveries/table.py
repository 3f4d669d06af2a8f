"""The deliveries in the file. Every method runs within a transaction.

Every change of a delivery counts up its ``version``: whoever settles one, or has decided by what it
was, names the version that it saw, and is refused if the delivery has changed since.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from proxy.core.clock import Clock
from proxy.core.ids import new_dead_letter_id
from proxy.policy.dead_letter import DeadLetterState
from proxy.policy.delivery import state as transitions
from proxy.policy.delivery.capacity import CapacityUse, lacking
from proxy.policy.delivery.counts import RouteDeliveries
from proxy.policy.delivery.history import RETRIED
from proxy.policy.delivery.key_rules import KeyStanding, KeyTerms, key_standing
from proxy.policy.delivery.state import (
    DeliveredResponse,
    Delivery,
    DeliveryRun,
    FailedForGood,
    Outcome,
    RetryLater,
    Settlement,
    TransitionRefusal,
)
from proxy.policy.delivery.words import DeferralReason, DeliveryState
from proxy.policy.failure_category import FailureCategory
from proxy.stores.dead_letters.layout import ALL, ENDED, OPEN, PENDING
from proxy.stores.deliveries.file_clock import FileClock
from proxy.stores.deliveries.ports import (
    Abandoned,
    Accepted,
    DeliveryPage,
    Gone,
    HeldKey,
    Mismatch,
    NewDelivery,
    NoCapacity,
    ShownDelivery,
    Taken,
    TakenBatch,
)
from proxy.stores.deliveries.rows import (
    COLUMNS,
    as_accepted,
    changes,
    headers_text,
    join_headers,
    read_delivery,
    read_run,
    run_values,
    split_headers,
    to_row,
    with_deferral,
)
from proxy.stores.sqlite_file.presence import Presence

BATCH = 200
"""Deliveries that are forgotten in one transaction."""
_MOST_RUNS = 100
"""Tries that are kept of one delivery, besides all that may have run."""
_DONE = frozenset({DeliveryState.DELIVERED, DeliveryState.CANCELLED})
"""States in which the body is not needed any more."""
_TAKES_ROOM = "state != 'delivered' AND state != 'cancelled'"
_SELECT = f"SELECT {COLUMNS.names} FROM deliveries"  # noqa: S608 - constants
_SELECT_WITH_HEADERS = f"SELECT {COLUMNS.names}, headers FROM deliveries"  # noqa: S608 - constants


class AcceptAnswer(NamedTuple):
    """What became of a delivery that was to be accepted, and the room that is taken now."""

    answer: Accepted | Mismatch | HeldKey | NoCapacity
    used: CapacityUse
    own: CapacityUse


class DeliveryTotals(NamedTuple):
    """All counts, as of one moment."""

    routes: dict[str, RouteDeliveries]
    used: CapacityUse


class DeliveryTable:
    """All deliveries of the file."""

    def __init__(
        self, db: sqlite3.Connection, clock: Clock, file_clock: FileClock, presence: Presence
    ) -> None:
        self._run: Callable[..., sqlite3.Cursor] = db.execute
        self._run_each: Callable[..., sqlite3.Cursor] = db.executemany
        self._clock = clock
        self._file_clock = file_clock
        self._presence = presence
        self.has_wiped = False
        """Whether credentials were wiped that the write-ahead log may still have."""

    # To accept.

    def accept(self, new: NewDelivery, most: CapacityUse) -> AcceptAnswer:
        """Insert a delivery, unless another one has its key, or there is no room."""
        used, own = self._use(new.caller)
        known = self._answer_by_key(new) if new.record else None
        if known is not None:
            return AcceptAnswer(known, used, own)
        headers, secrets, dropped = split_headers(new.headers, new.wiped)
        weight = len(new.body) + len(headers) + len(secrets) + len(new.target)
        asked = CapacityUse(1, weight)
        cause = lacking(asked, used, own, most)
        if cause is not None:
            return AcceptAnswer(NoCapacity(cause), used, own)
        correction = self._file_clock.correction()
        delivery = as_accepted(new, self._file_clock.now() + correction)
        self._run(
            f"INSERT INTO deliveries ({ALL.names}) VALUES ({ALL.parameters})",  # noqa: S608 - constants
            to_row(delivery, headers, dropped, weight, correction),
        )
        if new.body:
            self._run("INSERT INTO bodies VALUES (?, ?)", (new.id, new.body))
        if secrets:
            self._run("INSERT INTO credentials VALUES (?, ?)", (new.id, secrets))
        for run in new.runs:
            self._add_run(new.id, run)
        return AcceptAnswer(Accepted(delivery), used + asked, own + asked)

    def _answer_by_key(self, new: NewDelivery) -> Accepted | Mismatch | HeldKey | None:
        """Return what a delivery with the same key means for a *new* one; None: nothing."""
        first = self.find_record(new.record)
        if first is None or (new.key_terms is None and not first.is_open):
            return None
        terms = new.key_terms or KeyTerms(0.0, holds_ambiguous=False)
        match key_standing(first, new.fingerprint, terms, self._clock.wall()):
            case KeyStanding.FREE:
                return None
            case KeyStanding.DUPLICATE:
                return Accepted(first, is_duplicate=True)
            case KeyStanding.MISMATCH:
                return Mismatch(first.id)
            case KeyStanding.HELD:
                return HeldKey(first.id)

    def _use(self, caller: str) -> tuple[CapacityUse, CapacityUse]:
        entries, size = self._run(
            "SELECT coalesce(sum(entries), 0), coalesce(sum(bytes), 0) FROM tallies"  # noqa: S608 - constants
            f" WHERE {_TAKES_ROOM}"
        ).fetchone()
        own = self._run(
            "SELECT entries, bytes FROM callers WHERE caller = ?", (caller,)
        ).fetchone() or (0, 0)
        return CapacityUse(entries, size), CapacityUse(*own)

    def find_record(self, record: str) -> Delivery | None:
        """Return the open delivery of a key's record, or the newest that ended."""
        row = self._run(
            f"{_SELECT} WHERE record = ? AND record != '' AND accepted > 0"
            f" ORDER BY {OPEN} DESC, accepted DESC LIMIT 1",
            (record,),
        ).fetchone()
        return None if row is None else read_delivery(row, self._file_clock.correction())

    # To deliver.

    def take(self, route: str, limit: int, urls: Sequence[str], ticket: str) -> TakenBatch:
        """Take what is due; *ticket* identifies this call, should its answer not arrive."""
        now = self._file_clock.now()
        rows = self._run(
            "UPDATE deliveries SET state = 'sending', owner = ?, sending_to = ?, last_try = ?,"  # noqa: S608 - constants
            " deferred = '', version = version + 1 WHERE rowid IN (SELECT rowid FROM deliveries"
            f" WHERE route = ? AND {PENDING} AND due <= ? AND gives_up > ? ORDER BY due LIMIT ?)"
            " RETURNING id",
            (self._owner(ticket), json.dumps(list(urls)), now, route, now, now, limit),
        ).fetchall()
        (next_due,) = self._run(
            f"SELECT min(due) FROM deliveries WHERE route = ? AND {PENDING} AND gives_up > ?",  # noqa: S608 - constants
            (route, now),
        ).fetchone()
        taken = sorted(map(self._taken, rows), key=lambda each: each.delivery.due)
        return TakenBatch(tuple(taken), None if next_due is None else next_due - now)

    def take_one(self, delivery_id: str, urls: Sequence[str], ticket: str) -> Taken | None:
        """Take one that is open and not sending, due or not."""
        now = self._file_clock.now()
        row = self._run(
            "UPDATE deliveries SET state = 'sending', owner = ?, sending_to = ?, last_try = ?,"  # noqa: S608 - constants
            f" deferred = '', version = version + 1 WHERE id = ? AND {PENDING} AND gives_up > ?"
            " RETURNING id",
            (self._owner(ticket), json.dumps(list(urls)), now, delivery_id, now),
        ).fetchall()
        return self._taken(row[0]) if row else None

    def undo_take(self, ticket: str) -> None:
        """Give back what was taken by a call whose answer did not arrive: nothing was sent."""
        self._run(
            "UPDATE deliveries SET state = CASE WHEN tries > 0 THEN 'retrying' ELSE 'waiting' END,"
            " owner = '', sending_to = '[]', version = version + 1"
            " WHERE owner = ? AND state = 'sending'",
            (self._owner(ticket),),
        )

    def _owner(self, ticket: str) -> str:
        return f"{self._presence.token} {ticket}"

    def _taken(self, row: tuple[str]) -> Taken:
        # RETURNING has values that are not those of their columns' types.
        *values, headers = self._run(
            f"SELECT {COLUMNS.names}, headers FROM deliveries WHERE id = ?",  # noqa: S608 - constants
            row,
        ).fetchone()
        found = read_delivery(tuple(values), self._file_clock.correction())
        apart = "[]"
        if found.wiped:
            (apart,) = self._run(
                "SELECT fields FROM credentials WHERE delivery = ?", (found.id,)
            ).fetchone() or ("[]",)
        (body,) = self._run(
            "SELECT body FROM bodies WHERE delivery = ?", (found.id,)
        ).fetchone() or (b"",)
        return Taken(replace(found, headers=join_headers(str(headers), apart)), body)

    def candidates(self, route: str, not_tried_for: float, after: str, limit: int) -> DeliveryPage:
        """Return the oldest of a route that wait and were not tried for so long."""
        accepted, last_id = _read_cursor(after)
        now = self._file_clock.now()
        rows = self._run(
            f"{_SELECT_WITH_HEADERS} WHERE route = ? AND {OPEN} AND state != 'sending'"
            " AND last_try <= ? AND gives_up > ? AND (accepted, id) > (?, ?)"
            " ORDER BY accepted, id LIMIT ?",
            (route, now - not_tried_for, now, accepted, last_id, limit),
        ).fetchall()
        return self._page(rows, limit)

    def give_back(self, taken: Delivery, delay: float, deferred: DeferralReason | None) -> Outcome:
        """End a try of which nothing was sent."""
        correction = self._file_clock.correction()
        after = transitions.give_back(taken, self._file_clock.now() + correction, delay, deferred)
        return self._write_once(taken, after, correction)

    def settle(self, taken: Delivery, settlement: Settlement, run: DeliveryRun | None) -> Outcome:
        """End a try, and write what came of it."""
        correction = self._file_clock.correction()
        after = transitions.settle(taken, settlement, run, self._file_clock.now() + correction)
        response = None if isinstance(settlement, RetryLater) else settlement.response
        headers, size = "", 0
        if response is not None:
            headers = headers_text(response.headers)
            size = len(headers) + len(response.body or b"")
        weight = _size(taken) + size
        written = self._write_once(taken, after, correction, weight)
        if isinstance(written, TransitionRefusal) or written is not after:
            return written
        if run is not None:
            self._add_run(taken.id, run)
        if response is not None:
            self._run(
                "INSERT OR REPLACE INTO responses VALUES (?, ?, ?)",
                (taken.id, headers, response.body),
            )
        if isinstance(settlement, FailedForGood):
            if size:
                self._add_weight(taken.id, size)
            self._file_letter(written, settlement.category)
        return written

    def _add_weight(self, delivery_id: str, size: int) -> None:
        """Count the bytes of an answer that is kept besides the request: it failed by that."""
        self._run("UPDATE deliveries SET weight = weight + ? WHERE id = ?", (size, delivery_id))
        self._run(
            "UPDATE callers SET bytes = bytes + ?"
            " WHERE caller = (SELECT holder FROM deliveries WHERE id = ?)",
            (size, delivery_id),
        )

    def withdraw_letter(self, delivery_id: str) -> None:
        """Keep a delivery that failed as an ended one only, unless its letter is in use."""
        self._run(
            "UPDATE deliveries SET is_letter = 0, letter_ttl = 0.0, expires = ended + ttl"
            " WHERE id = ? AND state = 'failed' AND is_letter AND replay_state = 'waiting'"
            " AND replays = 0",
            (delivery_id,),
        )

    def forgive(self, delivery_ids: Sequence[str]) -> None:
        """Give an attempt back to those that are to be retried."""
        self._run_each(
            "UPDATE deliveries SET attempts = attempts - 1, version = version + 1"
            " WHERE id = ? AND state = 'retrying' AND attempts > 0",
            [(delivery_id,) for delivery_id in delivery_ids],
        )

    def _write_once(
        self, before: Delivery, after: Outcome, correction: float, weight: int = 0
    ) -> Outcome:
        """Write a change by the owner; if it was written before, though nobody heard, say so.

        Only its owner changes a delivery that is sending: what follows upon the version that the
        owner has is the owner's own doing.
        """
        if isinstance(after, TransitionRefusal) or self._write(before, after, correction, weight):
            return after
        row = self._run(f"{_SELECT} WHERE id = ?", (before.id,)).fetchone()
        if row is None:
            return TransitionRefusal.UNKNOWN
        found = read_delivery(row, correction)
        is_own = (found.version, found.state, found.tries) == (
            after.version,
            after.state,
            after.tries,
        )
        return found if is_own else TransitionRefusal.NOT_SENDING

    def _write(self, before: Delivery, after: Delivery, correction: float, weight: int = 0) -> bool:
        """Write a change of state; False, and nothing, if *before* is not what is there.

        *weight*: bytes that are kept of it if it has ended well.
        """
        values = changes(after, correction)
        if after.state in _DONE:
            values["weight"] = weight
        columns = ", ".join([f"{name} = :{name}" for name in values])
        is_written = self._run(
            f"UPDATE deliveries SET owner = '', {columns}"  # noqa: S608 - constants
            " WHERE id = :id AND version = :seen",
            {**values, "id": before.id, "seen": before.version},
        ).rowcount
        if not is_written:
            return False
        if not after.is_open:
            self._clear(after)
        return True

    def _clear(self, after: Delivery) -> None:
        """Forget what a delivery that has ended does not need any more; credentials above all."""
        if after.wiped:
            # Written over with zeroes, also in pages that are free then.
            self._run("PRAGMA secure_delete = ON").fetchone()
            wiped = self._run("DELETE FROM credentials WHERE delivery = ?", (after.id,)).rowcount
            self._run("PRAGMA secure_delete = FAST").fetchone()
            self.has_wiped = self.has_wiped or wiped > 0
        if after.state in _DONE:
            self._run("DELETE FROM bodies WHERE delivery = ?", (after.id,))

    def _file_letter(
        self, failed: Delivery, category: FailureCategory = FailureCategory.TRANSIENT
    ) -> None:
        """Make a delivery that failed a dead letter, if its route keeps them."""
        if failed.letter is None:
            return
        wall = self._clock.wall()
        self._run(
            "UPDATE deliveries SET is_letter = 1, filed = ?, created = ?, category = ?, used = ?,"
            " error = ?, replay_state = 'waiting', replays = 0 WHERE id = ?",
            (
                new_dead_letter_id(wall),
                wall,
                category.value,
                failed.attempts,
                failed.error or failed.reason,
                failed.id,
            ),
        )

    def _add_run(self, delivery_id: str, run: DeliveryRun) -> None:
        (number, kept) = self._run(
            "SELECT coalesce(max(number), -1) + 1, count(*) FROM runs WHERE delivery = ?",
            (delivery_id,),
        ).fetchone()
        if kept >= _MOST_RUNS:
            # The oldest stays: a key is as old as that. Where it may have run is in the row.
            self._run(
                "DELETE FROM runs WHERE delivery = ?1 AND number = (SELECT number FROM runs"
                " WHERE delivery = ?1 AND number > (SELECT min(number) FROM runs"
                " WHERE delivery = ?1) ORDER BY may_have_run, number LIMIT 1)",
                (delivery_id,),
            )
        self._run(
            "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)",
            (delivery_id, number, *run_values(run, self._file_clock.correction())),
        )

    def defer(self, route: str, reason: DeferralReason | None, seconds: float) -> None:
        """Note why a route sends nothing, and for how long that is true at most."""
        self._run("DELETE FROM deferrals WHERE route = ?", (route,))
        if reason is not None:
            until = self._file_clock.now() + seconds
            self._run("INSERT INTO deferrals VALUES (?, ?, ?)", (route, reason.value, until))

    def has_overdue(self) -> bool:
        """Say whether the time of a delivery is over."""
        now = self._file_clock.now()
        found = self._run(
            f"SELECT 1 FROM deliveries WHERE {PENDING} AND gives_up <= ? LIMIT 1",  # noqa: S608 - constants
            (now,),
        ).fetchone()
        return found is not None

    def write(self) -> None:
        """Write something, to see whether that is possible."""
        self._run("UPDATE clock SET correction = correction")

    def give_up(self, limit: int) -> list[Delivery]:
        """Fail those whose time is over."""
        now, correction = self._file_clock.now(), self._file_clock.correction()
        rows = self._run(
            f"{_SELECT} WHERE {PENDING} AND gives_up <= ? ORDER BY gives_up LIMIT ?",
            (now, limit),
        ).fetchall()
        ended = []
        for row in rows:
            before = read_delivery(row, correction)
            # Its dates are sums: they may be off by a rounding.
            after = transitions.give_up(before, max(now + correction, before.gives_up))
            if isinstance(after, Delivery) and self._write(before, after, correction):
                self._file_letter(after)
                ended.append(after)
        return ended

    # The tries of owners that died.

    def abandoned(self, limit: int) -> list[Delivery]:
        """Return deliveries that are sending, by processes that do not live."""
        owners = self._run(
            "SELECT DISTINCT owner FROM deliveries WHERE state = 'sending'"
        ).fetchall()
        dead = [owner for (owner,) in owners if not self._lives(owner)]
        found: list[tuple[object, ...]] = []
        for owner in dead:
            if len(found) < limit:
                found += self._run(
                    f"{_SELECT_WITH_HEADERS} WHERE state = 'sending' AND owner = ? LIMIT ?",
                    (owner, limit - len(found)),
                ).fetchall()
        correction = self._file_clock.correction()
        return [_read(row, correction) for row in found]

    def _lives(self, owner: str) -> bool:
        return self._presence.is_alive(owner.partition(" ")[0])

    def recover(self, decided: Iterable[tuple[Delivery, Abandoned]]) -> list[Delivery]:
        """End the tries of dead owners, as was decided."""
        correction = self._file_clock.correction()
        wall = self._file_clock.now() + correction
        recovered = []
        for before, fate in decided:
            after = transitions.owner_died(before, wall, fate.delay, repeatable=fate.repeatable)
            if isinstance(after, TransitionRefusal) or not self._write(before, after, correction):
                continue
            self._add_run(
                before.id,
                DeliveryRun(
                    before.last_try, "uncertain", (), may_have_run=True, urls=before.sending_to
                ),
            )
            if after.state is DeliveryState.FAILED:
                self._file_letter(after)
            recovered.append(after)
        return recovered

    # To see and to touch.

    def find(self, delivery_id: str) -> ShownDelivery | Gone:
        """Return all of a delivery but its body and its credentials."""
        row = self._run(
            f"{_SELECT_WITH_HEADERS} WHERE id = ? AND accepted > 0", (delivery_id,)
        ).fetchone()
        if row is None:
            was_there = self._run(
                "SELECT 1 FROM gone WHERE id = ? AND until > ?", (delivery_id, self._clock.wall())
            ).fetchone()
            return Gone.EXPIRED if was_there else Gone.UNKNOWN
        correction = self._file_clock.correction()
        found = _read(row, correction)
        if found.ended and found.expires <= self._clock.wall():
            return Gone.EXPIRED  # it is about to be forgotten
        runs = self._run(
            "SELECT time, result, attempts, may_have_run, urls FROM runs WHERE delivery = ?"
            " ORDER BY number",
            (delivery_id,),
        ).fetchall()
        kept = self._run(
            "SELECT headers, body FROM responses WHERE delivery = ?", (delivery_id,)
        ).fetchone()
        response = None
        if kept is not None:
            response = DeliveredResponse(found.response_status, join_headers(kept[0]), kept[1])
        shown = tuple(read_run(run, correction) for run in runs)
        return ShownDelivery(self._deferred([found])[0], shown, response)

    def progress(self, delivery_id: str) -> tuple[str, int] | None:
        """Return the state of a delivery and the number of its tries; None: there is none."""
        row = self._run(
            "SELECT state, tries FROM deliveries WHERE id = ? AND accepted > 0", (delivery_id,)
        ).fetchone()
        return None if row is None else (str(row[0]), int(row[1]))

    def page(
        self,
        route: str | None,
        state: DeliveryState | None,
        reason: str | None,
        after: str,
        limit: int,
        *,
        newest: bool,
    ) -> DeliveryPage:
        """Return some deliveries behind *after*, in the order of their acceptance."""
        where, values = ["accepted > 0"], list[object]()
        for column, value in (("route", route), ("state", state), ("why", reason)):
            if value is not None:
                where.append(f"{column} = ?")
                values.append(str(value))
        if after:
            where.append(f"(accepted, id) {'<' if newest else '>'} (?, ?)")
            values += _read_cursor(after)
        order = "accepted DESC, id DESC" if newest else "accepted, id"
        rows = self._run(
            f"{_SELECT} WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ?",
            (*values, limit),
        ).fetchall()
        return self._page(rows, limit)

    def _page(self, rows: Sequence[tuple[object, ...]], limit: int) -> DeliveryPage:
        correction = self._file_clock.correction()
        found = [_read(row, correction) for row in rows]
        if len(found) < limit:
            return DeliveryPage(tuple(self._deferred(found)), "")
        last = found[-1]
        (accepted,) = self._run(
            "SELECT accepted FROM deliveries WHERE id = ?", (last.id,)
        ).fetchone()
        return DeliveryPage(tuple(self._deferred(found)), f"{accepted!r},{last.id}")

    def _deferred(self, found: Sequence[Delivery]) -> list[Delivery]:
        """Return deliveries with the reason why their routes send nothing, where they are due."""
        now = self._file_clock.now()
        reasons = {
            route: reason
            for route, reason, until in self._run("SELECT * FROM deferrals").fetchall()
            if until > now
        }
        if not reasons:
            return list(found)
        wall = now + self._file_clock.correction()
        return [
            with_deferral(each, reasons.get(each.route, ""))
            if each.state in transitions.TAKEABLE and each.due <= wall
            else each
            for each in found
        ]

    def cancel(self, delivery_id: str) -> Outcome:
        """End a delivery that is not being sent."""
        correction = self._file_clock.correction()
        row = self._run(f"{_SELECT} WHERE id = ? AND accepted > 0", (delivery_id,)).fetchone()
        if row is None:
            return TransitionRefusal.UNKNOWN
        before = read_delivery(row, correction)
        after = transitions.cancel(before, self._file_clock.now() + correction)
        if isinstance(after, Delivery):
            self._write(before, after, correction)
        return after

    def retry(self, seen: Delivery, *, repeatable: bool, force: bool) -> Outcome:
        """Send a delivery again because a person asks."""
        correction = self._file_clock.correction()
        row = self._run(
            f"SELECT {COLUMNS.names}, replay_state FROM deliveries WHERE id = ? AND accepted > 0",  # noqa: S608 - constants
            (seen.id,),
        ).fetchone()
        if row is None:
            return TransitionRefusal.UNKNOWN
        *values, replay_state = row
        before = read_delivery(tuple(values), correction)
        refusal = _refusal_by_replay(replay_state, force=force)
        if refusal is not None:
            return refusal
        if before.version != seen.version:
            is_sending = before.state is DeliveryState.SENDING
            return TransitionRefusal.SENDING if is_sending else TransitionRefusal.CHANGED
        wall = self._file_clock.now() + correction
        after = transitions.retry(before, wall, repeatable=repeatable, force=force)
        if isinstance(after, TransitionRefusal):
            return after
        if not before.is_open and before.record:
            refusal = self._refusal_by_key(before, force=force)
            if refusal is not None:
                return refusal
        self._write(before, after, correction)
        self._run(
            "UPDATE deliveries SET is_letter = 0, replay_state = 'waiting', gives_up = ?"
            " WHERE id = ?",
            (after.gives_up - correction, seen.id),
        )
        if not before.is_open:
            self._drop_response(seen.id)
            if force or not before.may_have_run:
                # Else what may have run still binds it: its key, for as long as that is known.
                self._add_run(seen.id, DeliveryRun(wall, RETRIED, ()))
        return after

    def _drop_response(self, delivery_id: str) -> None:
        """Delete the answer by which a delivery failed, and what was counted for it."""
        found = self._run(
            "SELECT length(headers) + coalesce(length(body), 0) FROM responses WHERE delivery = ?",
            (delivery_id,),
        ).fetchone()
        if found is not None:
            self._add_weight(delivery_id, -found[0])
            self._run("DELETE FROM responses WHERE delivery = ?", (delivery_id,))

    def _refusal_by_key(self, before: Delivery, *, force: bool) -> TransitionRefusal | None:
        """Return why a delivery must not begin anew: another one with its key may have run.

        That this one did not run, or could be repeated, says nothing of the other.
        """
        newest = self.find_record(before.record)
        if newest is None or newest.id == before.id:
            return None
        if newest.is_open:
            return TransitionRefusal.DUPLICATE
        if newest.state is DeliveryState.DELIVERED:
            return TransitionRefusal.ENDED
        return TransitionRefusal.MAY_HAVE_RUN if newest.may_have_run and not force else None

    def expire(self, most: CapacityUse) -> tuple[dict[str, int], bool]:
        """Forget some that ended; return those that had failed by route, and if there are more.

        Those that went well are forgotten before their time where they are more than *most*, the
        oldest first: nothing is lost with them but that they can be asked for.
        """
        self._file_clock.notice()
        wall = self._clock.wall()
        rows = self._run(
            f"SELECT id, route, state FROM deliveries WHERE {ENDED} AND expires <= ?"  # noqa: S608 - constants
            " AND NOT is_letter LIMIT ?",
            (wall, BATCH),
        ).fetchall()
        if not rows:
            rows = self._surplus(most)
        gone: dict[str, int] = {}
        for _, route, state in rows:
            if state == DeliveryState.FAILED.value:
                gone[route] = gone.get(route, 0) + 1
        self._run_each(
            "INSERT OR REPLACE INTO gone SELECT id, filed, ? + ttl FROM deliveries WHERE id = ?",
            [(wall, delivery_id) for delivery_id, _, _ in rows],
        )
        self._run_each("DELETE FROM deliveries WHERE id = ?", [(row[0],) for row in rows])
        self._run("DELETE FROM gone WHERE until <= ?", (wall,))
        self._run(
            "DELETE FROM gone WHERE id IN (SELECT id FROM gone ORDER BY until"
            " LIMIT max((SELECT count(*) FROM gone) - ?, 0))",
            (most.entries,),
        )
        self._run("DELETE FROM tallies WHERE entries = 0")
        return gone, len(rows) == BATCH

    def _surplus(self, most: CapacityUse) -> list[tuple[str, str, str]]:
        entries, size = self._run(
            "SELECT coalesce(sum(entries), 0), coalesce(sum(bytes), 0) FROM tallies"
            " WHERE state IN ('delivered', 'cancelled')"
        ).fetchone()
        if entries <= most.entries and size <= most.size:
            return []
        return self._run(
            f"SELECT id, route, state FROM deliveries WHERE {ENDED} AND state != 'failed'"  # noqa: S608 - constants
            " ORDER BY expires LIMIT ?",
            (BATCH if size > most.size else min(BATCH, entries - most.entries),),
        ).fetchall()

    def counts(self) -> DeliveryTotals:
        """Return how many deliveries there are, by route and state."""
        correction = self._file_clock.correction()
        states: dict[str, dict[DeliveryState, int]] = {}
        sizes: dict[str, int] = {}
        used = CapacityUse()
        for route, state, entries, size in self._run("SELECT * FROM tallies").fetchall():
            if not entries:
                continue
            named = DeliveryState(state)
            states.setdefault(route, {})[named] = entries
            if named in transitions.OPEN or named is DeliveryState.FAILED:
                sizes[route] = sizes.get(route, 0) + size
                used += CapacityUse(entries, size)
        found = {}
        for route, by_state in states.items():
            (oldest,) = self._run(
                f"SELECT min(accepted) FROM deliveries WHERE route = ? AND {OPEN}",  # noqa: S608 - constants
                (route,),
            ).fetchone()
            (due,) = self._run(
                f"SELECT min(due) FROM deliveries WHERE route = ? AND {PENDING}",  # noqa: S608 - constants
                (route,),
            ).fetchone()
            found[route] = RouteDeliveries(
                by_state,
                sizes.get(route, 0),
                0.0 if oldest is None else oldest + correction,
                0.0 if due is None else due + correction,
            )
        return DeliveryTotals(found, used)


def _read(row: tuple[object, ...], correction: float) -> Delivery:
    """Return the delivery of a row, with its header fields if these are the last column."""
    if len(row) == len(COLUMNS):
        return read_delivery(row, correction)
    *values, headers = row
    return read_delivery(tuple(values), correction, join_headers(str(headers)))


def _size(delivery: Delivery) -> int:
    """Return about the bytes that are kept of a delivery without its body."""
    return len(delivery.target) + sum(len(name) + len(value) for name, value in delivery.headers)


def _refusal_by_replay(replay_state: str, *, force: bool) -> TransitionRefusal | None:
    """Return why a delivery whose dead letter was replayed is not sent again."""
    if replay_state == DeadLetterState.REPLAYING.value:
        return TransitionRefusal.REPLAYING
    # A replay died with its process: nothing says whether, or where, it was sent.
    is_uncertain = replay_state == DeadLetterState.UNCERTAIN.value
    return TransitionRefusal.MAY_HAVE_RUN if is_uncertain and not force else None


def _read_cursor(text: str) -> tuple[float, str]:
    """Return the place in the order of acceptance that a page ended at."""
    accepted, _, delivery_id = text.partition(",")
    try:
        return float(accepted or 0.0), delivery_id
    except ValueError:
        return 0.0, ""
