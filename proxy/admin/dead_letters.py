"""The handlers for dead letters: list, show, send again, drop and export.

A dead letter has what its client sent, so every handler needs the token, and nothing but ids and
counts is in the metrics or in the log.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from aiohttp import hdrs, web

from proxy.admin.declaration import Endpoint, StoreSilent, WorkerRule
from proxy.admin.records import BAD_LIMIT, USUAL_PAGE, date_text, is_limit, run_json
from proxy.admin.request_body import SlowBody, read_object
from proxy.admin.responses import STREAMED, document, problem
from proxy.http.fields import RawHeaders
from proxy.http.target import readable_target
from proxy.policy.dead_letter import (
    DeadLetter,
    DeadLetterSummary,
    Missing,
    Obstacle,
    Replayed,
    read_dead_letter_id,
)
from proxy.policy.explain_command import EndedRequest, ExplainContext, key_fields
from proxy.policy.idempotency.record import RecordState

_UNAVAILABLE = 503
_FRAMING_FIELDS = frozenset(
    {b"connection", b"content-length", b"host", b"transfer-encoding", b"upgrade", b"expect"}
)

_OBSTACLES = {
    Obstacle.UNKNOWN: (
        404,
        (
            "There is no such letter: it was sent again or dropped, has expired, or is in the "
            "state folder of another machine."
        ),
    ),
    Obstacle.REPLAYING: (409, "It is being sent again just now. Look at it again later."),
    Obstacle.NO_BODY: (409, "Its body was not kept, so it cannot be sent again."),
    Obstacle.UNCERTAIN: (
        409,
        (
            "A replay of it was interrupted by a crash and may have reached the upstream. Find "
            "out, then drop it or send it with force."
        ),
    ),
    Obstacle.MAY_HAVE_RUN: (
        409,
        "It may have run. Find out, then drop it or send it with force.",
    ),
    Obstacle.NO_ROUTE: (
        409,
        "The route that it came by is not configured any more. Bring it back, or drop the letter.",
    ),
    Obstacle.BAD_HEADERS: (400, "With these header fields it is not a valid request."),
    Obstacle.DRAINING: (503, "This proxy is shutting down."),
}


class DeadLetterOperations(Protocol):
    """What an operator may do with dead letters, which all workers share.

    All of it raises StoreSilent, but for :meth:`explain_context`.
    """

    def explain_context(self) -> ExplainContext:
        """Return the configuration in force, as far as requests are explained by it."""

    @WorkerRule(logged_as="page_of_letters")
    async def list_dead_letters(
        self, route: str | None, after: str, limit: int, *, newest: bool
    ) -> list[DeadLetterSummary]:
        """Return up to *limit* dead letters behind *after*, the oldest or the *newest* first."""

    @WorkerRule(logged_as="find_letter")
    async def find_dead_letter(self, name: str) -> DeadLetter | None:
        """Return all of one dead letter; None if there is none."""

    @WorkerRule(logged_as="drop_letter")
    async def drop_dead_letter(self, name: str) -> bool | None:
        """Delete a dead letter; False if it is being sent again, None if there is none."""

    @WorkerRule(logged_as="drop_letters", takes_long=True)
    async def drop_dead_letters(self, route: str | None, until: str) -> int:
        """Delete those of a route, or all, except those being sent again; return how many.

        Only up to the dead letter *until*; empty: up to the newest one.
        """

    @WorkerRule(logged_as="letter_obstacle")
    async def replay_obstacle(
        self, name: str, given: RawHeaders, *, force: bool
    ) -> Obstacle | RecordState | None:
        """Say why :meth:`replay_dead_letter` would not send it now; None if it would.

        A state is that of its idempotency key, which answers in place of the upstream.
        """

    @WorkerRule(logged_as="replay_letter", takes_long=True)
    async def replay_dead_letter(
        self, name: str, given: RawHeaders, *, force: bool
    ) -> Replayed | Obstacle:
        """Send a dead letter again, with the header fields *given* in addition; or say why not."""


class DeadLettersResource:
    """The handlers of ``/dead-letters``."""

    def __init__(self, operations: DeadLetterOperations) -> None:
        self._operations = operations

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield every endpoint of dead letters."""
        one, all_ = "/dead-letters/{letter}", "/dead-letters"
        yield Endpoint("GET", all_, self._list, "/dead-letters", has_head=False)
        yield Endpoint("DELETE", all_, self._drop_all)
        yield Endpoint("GET", "/dead-letters/export", self._export, has_head=False)
        yield Endpoint("GET", one, self._show, has_head=False)
        yield Endpoint("DELETE", one, self._drop)
        yield Endpoint("POST", "/dead-letters/{letter}/replay", self._replay)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        order, limit = query.get("order", "newest"), query.get("limit", str(USUAL_PAGE))
        after = read_dead_letter_id(query["after"]) if "after" in query else ""
        if order not in {"newest", "oldest"}:
            return _bad("Write order=newest or order=oldest.")
        if not is_limit(limit):
            return _bad(BAD_LIMIT)
        if after is None:
            return _bad("Write after=ID, as next of the page before has it.")
        try:
            page = await self._operations.list_dead_letters(
                query.get("route"), after, int(limit) + 1, newest=order == "newest"
            )
        except StoreSilent:
            return _silent()
        context = self._operations.explain_context()
        # One more than requested tells whether there is another page.
        shown = page[: int(limit)]
        return document(
            {
                "letters": [summary_json(summary, context) for summary in shown],
                "next": shown[-1].id if len(page) > len(shown) else None,
            }
        )

    async def _show(self, request: web.Request) -> web.StreamResponse:
        name = read_dead_letter_id(request.match_info["letter"])
        try:
            dead_letter = None if name is None else await self._operations.find_dead_letter(name)
        except StoreSilent:
            return _silent()
        return (
            _obstacle(Obstacle.UNKNOWN)
            if dead_letter is None
            else document(dead_letter_json(dead_letter, self._operations.explain_context()))
        )

    async def _drop(self, request: web.Request) -> web.StreamResponse:
        name = read_dead_letter_id(request.match_info["letter"])
        try:
            dropped = None if name is None else await self._operations.drop_dead_letter(name)
        except StoreSilent:
            return _silent()
        if not dropped:
            return _obstacle(Obstacle.UNKNOWN if dropped is None else Obstacle.REPLAYING)
        return document({"result": "dropped", "id": name})

    async def _drop_all(self, request: web.Request) -> web.StreamResponse:
        route, everything = request.query.get("route"), request.query.get("all")
        if (route is None) == (everything is None) or everything not in {None, "true"}:
            return _bad("Write route=NAME, or all=true.")
        until = read_dead_letter_id(request.query["until"]) if "until" in request.query else ""
        if until is None:
            return _bad("Write until=ID, the newest letter that is to go.")
        try:
            dropped = await self._operations.drop_dead_letters(route, until)
        except StoreSilent:
            return _silent()
        return document({"result": "dropped", "letters": dropped})

    async def _replay(self, request: web.Request) -> web.StreamResponse:
        name = read_dead_letter_id(request.match_info["letter"])
        wanted = await _read_replay_request(request)
        if isinstance(wanted, web.Response):
            return wanted
        if name is None:
            return _obstacle(Obstacle.UNKNOWN)
        replayed: Replayed | Obstacle | RecordState | None
        operations, headers, force = self._operations, wanted.headers, wanted.force
        try:
            if wanted.dry_run:
                replayed = await operations.replay_obstacle(name, headers, force=force)
            else:
                replayed = await operations.replay_dead_letter(name, headers, force=force)
        except StoreSilent:
            return _silent()
        match replayed:
            case Obstacle():
                return _obstacle(replayed)
            case Replayed():
                content = _replayed_json(replayed)
            case RecordState():
                content = {"result": "would_not_be_sent", "id": name, "key": replayed.value}
            case None:
                content = {"result": "would_be_sent", "id": name}
        return document(content)

    async def _export(self, request: web.Request) -> web.StreamResponse:
        """Stream a line for each, the oldest first; break off if the file does not answer."""
        response = web.StreamResponse(headers={**STREAMED, hdrs.CONTENT_TYPE: "application/jsonl"})
        operations, route, after = self._operations, request.query.get("route"), ""
        context = operations.explain_context()
        try:
            page = await operations.list_dead_letters(route, after, USUAL_PAGE, newest=False)
            await response.prepare(request)
            while page:
                for summary in page:
                    dead_letter = await operations.find_dead_letter(summary.id)
                    if dead_letter is not None:
                        await response.write(
                            json.dumps(dead_letter_json(dead_letter, context)).encode() + b"\n"
                        )
                page = await operations.list_dead_letters(
                    route, page[-1].id, USUAL_PAGE, newest=False
                )
        except StoreSilent:
            if not response.prepared:
                return _silent()
            raise  # the connection is closed before the end, so that the client notices
        await response.write_eof()
        return response


@dataclass(frozen=True, slots=True)
class _ReplayRequest:
    """How a dead letter is to be sent again."""

    headers: RawHeaders = ()
    force: bool = False
    dry_run: bool = False


_REPLAY_MEMBERS = frozenset({"headers", "force", "dry_run"})
_NO_FIELD = "A header field has a name and a value of one line, and is not one of framing."
_REPLAY_BODY = 'Send {"headers": [["Name", "value"]], "force": true, "dry_run": true}, or nothing.'


async def _read_replay_request(request: web.Request) -> _ReplayRequest | web.Response:
    """Read the body of a replay; return a problem if it is wrong."""
    try:
        content = await read_object(request, _REPLAY_MEMBERS)
    except SlowBody as slow:
        return slow.response()
    if content is None:
        return _bad(_REPLAY_BODY)
    headers, force = content.get("headers", []), content.get("force", False)
    dry_run = content.get("dry_run", False)
    if not (isinstance(force, bool) and isinstance(dry_run, bool) and isinstance(headers, list)):
        return _bad(_REPLAY_BODY)
    fields = []
    for field in headers:
        match field:
            case [str(name), str(value)] if _is_field(name, value):
                fields.append((name.encode("latin-1"), value.encode("latin-1")))
            case _:
                return _bad(_NO_FIELD)
    return _ReplayRequest(tuple(fields), force, dry_run)


def _is_field(name: str, value: str) -> bool:
    try:
        lower, text = name.lower().encode("ascii"), value.encode("latin-1")
    except UnicodeEncodeError:
        return False
    is_name = bool(lower) and all(c.isalnum() or c in "!#$%&'*+-.^_`|~" for c in name)
    has_control = any((byte < 0x20 and byte != 0x09) or byte == 0x7F for byte in text)
    return is_name and not has_control and text == text.strip() and lower not in _FRAMING_FIELDS


def summary_json(summary: DeadLetterSummary, context: ExplainContext) -> dict[str, object]:
    """Return what a list shows of a dead letter, in values that JSON can carry."""
    status = int(summary.error) if summary.error.isdecimal() else None
    upstream = context.upstream_of(summary.route)
    last = {"why": summary.verdict, "status": status, "upstream": upstream}
    return {
        "id": summary.id,
        "time": date_text(summary.created),
        "expires": date_text(summary.expires),
        "route": summary.route,
        "method": summary.method,
        "target": readable_target(summary.target),
        "request_id": summary.request_id,
        "error": summary.error,
        "category": summary.category.value,
        "why": summary.verdict or None,
        "meaning": context.meaning(last),
        "attempts_used": summary.used,
        "attempts_allowed": summary.allowed,
        "may_have_run": summary.may_have_run,
        "state": summary.state.value,
        "replays": summary.replays,
        "body_bytes": summary.size,
        "body_missing": summary.missing.value if summary.missing else None,
        "replayable": summary.obstacle(force=False) is None,
        "caller": summary.caller or None,
        "credentials": list(summary.credentials),
    }


def dead_letter_json(dead_letter: DeadLetter, context: ExplainContext) -> dict[str, object]:
    """Return all of a dead letter, in values that JSON can carry."""
    try:
        body = {"body": dead_letter.body.decode("utf-8")}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(dead_letter.body).decode()}
    if dead_letter.summary.missing is not None:
        body = {}
    return {
        **summary_json(dead_letter.summary, context),
        "client": dead_letter.peer,
        "record": dead_letter.record or None,
        "fallback": dead_letter.fallback or None,
        "headers": [[_latin(name), _latin(value)] for name, value in dead_letter.headers],
        "headers_dropped": list(dead_letter.dropped),
        **body,
        "runs": [run_json(run, context) for run in dead_letter.runs],
        "explain": context.arguments(_ended_request(dead_letter, context)) or None,
    }


def _ended_request(dead_letter: DeadLetter, context: ExplainContext) -> EndedRequest:
    """Return what is known of the request of a dead letter, in the last run that was sent."""
    summary = dead_letter.summary
    names = key_fields(context.settings)
    sent = [run.attempts for run in dead_letter.runs if run.attempts]
    return EndedRequest(
        summary.method,
        summary.target,
        summary.route,
        sent[-1] if sent else (),
        any(name.lower() in names for name, _ in dead_letter.headers),
        -1 if summary.missing is Missing.TOO_LARGE else summary.size,
    )


def _replayed_json(replayed: Replayed) -> dict[str, object]:
    content: dict[str, object] = {
        "result": replayed.result.value,
        "id": replayed.dead_letter_id,
        "route": replayed.route,
        "status": replayed.status,
        "attempts": replayed.attempts,
    }
    if replayed.error:
        content |= {
            "error": replayed.error,
            "detail": replayed.detail,
            "may_have_run": replayed.may_have_run,
        }
    if replayed.record:
        content["record"] = replayed.record
    return content


def _latin(value: bytes) -> str:
    return value.decode("latin-1")


def _obstacle(obstacle: Obstacle) -> web.Response:
    status, detail = _OBSTACLES[obstacle]
    headers: dict[str, str] = {hdrs.RETRY_AFTER: "1"} if status == _UNAVAILABLE else {}
    return problem(status, obstacle.value, detail, headers)


def _bad(detail: str) -> web.Response:
    return problem(400, "bad_request", detail)


def _silent() -> web.Response:
    return problem(
        503,
        "letters",
        "The file of the dead letters does not answer; the log says why. Ask again later.",
        {hdrs.RETRY_AFTER: "1"},
    )
