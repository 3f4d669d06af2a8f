"""The handlers for idempotency keys: list them, show what is known of one, and release it.

A key is asked for by the name of its record, which responses and the log show. Neither
the key nor anything of its request or response is shown.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from math import ceil
from typing import Protocol

from aiohttp import hdrs, web

from proxy.admin.declaration import Endpoint, StoreSilent, WorkerRule
from proxy.admin.responses import document, problem
from proxy.policy.idempotency.key import read_record_name
from proxy.policy.idempotency.record import KeyFilter, KeyPage, RecordState, Released, Shown


class KeyOperations(Protocol):
    """What an operator may do with keys. They are in a store that all workers share."""

    @WorkerRule()
    async def show_key(self, name: str) -> Shown | None:
        """Return what is known of the key whose record is called *name*; None if nothing is.

        Raises StoreSilent.
        """

    @WorkerRule()
    async def list_keys(self, wanted: KeyFilter, after: str) -> KeyPage | None:
        """Return a page of the records that are *wanted*; *after* is empty, or of the page before.

        None if *after* is of no page. Raises StoreSilent.
        """

    @WorkerRule()
    async def release_key(self, name: str, *, force: bool) -> Released:
        """Forget a key, unless a running request owns it; with *force* that request loses it.

        The key is then treated as if the request's time were over: unstored if its response has
        begun, else ``on_ambiguous`` decides; held if the request runs in another instance, since
        this one cannot know. Raises StoreSilent; it may have been done all the same.
        """


class KeysResource:
    """The handlers of ``/keys`` and ``/keys/RECORD``."""

    def __init__(self, operations: KeyOperations) -> None:
        self._operations = operations

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield every endpoint of keys."""
        yield Endpoint("GET", "/keys", self._list, "/keys")
        yield Endpoint("GET", "/keys/{record}", self._show, "/keys/RECORD")
        yield Endpoint("DELETE", "/keys/{record}", self._release)

    async def _list(self, request: web.Request) -> web.Response:
        """Answer with a page of records; ``next`` says where the next one begins."""
        query = request.query
        states = _states(query.get("state", RecordState.HELD.value))
        after = query.get("after", "")
        if states is None or query.keys() - {"state", "route", "after"} or not _is_cursor(after):
            return problem(400, "bad_request", _LIST_USAGE)
        try:
            page = await self._operations.list_keys(KeyFilter(states, query.get("route")), after)
        except StoreSilent:
            return _no_store()
        if page is None:
            return problem(400, "bad_request", _LIST_USAGE)
        # Others may write into a store; what is no record's name is none of ours.
        found = [(name, shown) for name, shown in page.records if read_record_name(name) == name]
        content: dict[str, object] = {"keys": [_described(name, shown) for name, shown in found]}
        if page.after:
            content["next"] = page.after
        return document(content)

    async def _show(self, request: web.Request) -> web.Response:
        """Answer with what is known of a key."""
        record = read_record_name(request.match_info["record"])
        if record is None:
            return _no_name()
        try:
            shown = await self._operations.show_key(record)
        except StoreSilent:
            return _no_store(record)
        return _unknown(record) if shown is None else document(_described(record, shown))

    async def _release(self, request: web.Request) -> web.Response:
        """Forget a key; ``force`` takes it from a request that is running."""
        record = read_record_name(request.match_info["record"])
        force = _FORCES.get(request.query.get("force", "false"))
        if record is None:
            return _no_name()
        if force is None or request.query.keys() - {"force"}:
            return problem(400, "bad_request", "Write ?force=true, or nothing.")
        try:
            released = await self._operations.release_key(record, force=force)
        except StoreSilent:
            return _no_store(record)
        was, now = released.was, released.now
        if was is None:
            return _unknown(record)
        if now is not None and not force:
            return _in_flight(record, now.lease_left)
        answer: dict[str, object] = {
            "result": "released" if now is None else "taken",
            "record": record,
            "was": was.state.value,
            "route": was.route,
        }
        if was.state is RecordState.IN_FLIGHT:
            answer |= {"now": "free" if now is None else now.state.value, "may_be_running": True}
        return document(answer)


_is_cursor = re.compile(r"[0-9a-f]{0,64}").fullmatch
_LIST_USAGE = (
    "Write ?state=held (or several of in_flight, done, unstored, held with commas between them, or "
    "all), ?route=NAME, and ?after= the next of the page before."
)


def _states(text: str) -> frozenset[RecordState] | None:
    """Return the states that a list of words names; None if one is no state."""
    if text == "all":
        return frozenset(RecordState)
    words = text.split(",")
    known = set(RecordState)
    return frozenset(map(RecordState, words)) if all(word in known for word in words) else None


_FORCES = {"true": True, "false": False}


def _described(record: str, shown: Shown) -> dict[str, object]:
    content: dict[str, object] = {
        "record": record,
        "state": shown.state.value,
        "route": shown.route,
        "created": _date(shown.created),
        "expires": _date(shown.expires),
        "bytes": shown.size,
    }
    if shown.state is RecordState.IN_FLIGHT:
        content["lease_left_seconds"] = round(shown.lease_left, 3)
    return content


def _date(seconds: float) -> str:
    """Format a time as RFC 3339, in UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def _no_name() -> web.Response:
    return problem(
        400,
        "bad_request",
        "Write the record as the 409 or the access log has it: 32 hexadecimal digits.",
    )


def _unknown(record: str) -> web.Response:
    return problem(
        404,
        "no_record",
        "Nothing is known of it: it has expired or was released, and its key is free; or it is "
        "in another store.",
        record=record,
    )


def _in_flight(record: str, lease_left: float) -> web.Response:
    wait = max(ceil(lease_left), 1)
    return problem(
        409,
        "key_in_flight",
        f"Its request is still running. The lease ends in {wait} s unless it is renewed: look "
        f"again then, or take the key away with ?force=true.",
        {hdrs.RETRY_AFTER: str(wait)},
        record=record,
        lease_left_seconds=round(lease_left, 3),
    )


def _no_store(record: str | None = None) -> web.Response:
    return problem(
        503,
        "store",
        "The store does not answer; the log says why, and /status whether it is up. Ask again "
        "later.",
        {hdrs.RETRY_AFTER: "1"},
        **({} if record is None else {"record": record}),
    )
