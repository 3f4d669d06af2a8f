"""The handlers for deliveries: list, show, send now, cancel.

A delivery has what its client sent, so every handler needs the token, and nothing but ids and
counts is in the metrics or in the log. Its body and its credentials are not shown.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from aiohttp import hdrs, web

from proxy.admin.declaration import Endpoint, StoreSilent, WorkerRule
from proxy.admin.records import BAD_LIMIT, USUAL_PAGE, date_text, is_limit, run_json
from proxy.admin.request_body import SlowBody, read_object
from proxy.admin.responses import document, problem
from proxy.http.target import readable_target
from proxy.policy.dead_letter import read_delivery_id
from proxy.policy.delivery.state import TAKEABLE, Delivery, DeliveryRun, TransitionRefusal
from proxy.policy.delivery.words import DeliveryEnd, DeliveryState
from proxy.policy.explain_command import ExplainContext
from proxy.policy.reasons import VerdictReason

_is_cursor = re.compile(r"[0-9.e+]{1,32},d_[A-Za-z0-9_-]{1,64}").fullmatch
_RETRY_MEMBERS = frozenset({"force", "dry_run"})
_RETRY_BODY = 'Send {"force": true, "dry_run": true}, or nothing.'
_STATES = frozenset(DeliveryState)
_REASONS = frozenset({*VerdictReason, *DeliveryEnd})

_REFUSALS = {
    TransitionRefusal.UNKNOWN: (
        404,
        (
            "There is no such delivery: it has ended and its time is over, or it is in the state "
            "folder of another machine."
        ),
    ),
    TransitionRefusal.SENDING: (409, "It is being sent just now. Look at it again later."),
    TransitionRefusal.ENDED: (409, "It has ended: it was delivered, or cancelled, or has failed."),
    TransitionRefusal.REPLAYING: (
        409,
        "Its dead letter is being sent again just now. Look at it again later.",
    ),
    TransitionRefusal.MAY_HAVE_RUN: (
        409,
        (
            "It may have run, and may not run twice. Find out, then drop its dead letter or send "
            "it with force."
        ),
    ),
    TransitionRefusal.DUPLICATE: (
        409,
        "Another delivery with the same idempotency key is open: that one is sent.",
    ),
    TransitionRefusal.CHANGED: (409, "It changes just now. Look at it again."),
}


class DeliveryOperations(Protocol):
    """What an operator may do with deliveries: any worker can answer, the file is shared.

    All of it raises StoreSilent.
    """

    @WorkerRule()
    async def list_deliveries(
        self,
        route: str | None,
        state: DeliveryState | None,
        reason: str | None,
        after: str,
        limit: int,
        *,
        newest: bool,
    ) -> tuple[Sequence[Delivery], str]:
        """Return up to *limit* deliveries behind *after*, and where the next page begins.

        In the order of their acceptance, or the *newest* first. The second value is empty on the
        last page.
        """

    @WorkerRule()
    async def find_delivery(self, name: str) -> tuple[Delivery, Sequence[DeliveryRun]] | None:
        """Return a delivery, without its body, and its tries; None if there is none."""

    @WorkerRule()
    async def retry_obstacle(self, name: str, *, force: bool) -> TransitionRefusal | None:
        """Say why :meth:`retry_delivery` would not send it now; None if it would."""

    @WorkerRule()
    async def retry_delivery(
        self, name: str, *, force: bool, by: str
    ) -> Delivery | TransitionRefusal:
        """Send a delivery now, or say why not; *by* names the peer for the log."""

    @WorkerRule()
    async def cancel_delivery(self, name: str, *, by: str) -> Delivery | TransitionRefusal:
        """End a delivery that is not being sent, or say why not; *by* names the peer."""


class _Explains(DeliveryOperations, Protocol):
    def explain_context(self) -> ExplainContext:
        """Return the configuration in force, as far as requests are explained by it."""


class DeliveriesResource:
    """The handlers of ``/deliveries``."""

    def __init__(self, operations: _Explains) -> None:
        self._operations = operations

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield every endpoint of deliveries."""
        one = "/deliveries/{delivery}"
        yield Endpoint("GET", "/deliveries", self._list, "/deliveries", has_head=False)
        yield Endpoint("GET", one, self._show, has_head=False)
        yield Endpoint("DELETE", one, self._cancel)
        yield Endpoint("POST", f"{one}/retry", self._retry)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        order, limit = query.get("order", "newest"), query.get("limit", str(USUAL_PAGE))
        state, reason, after = query.get("state"), query.get("why"), query.get("after", "")
        refusal = _list_fault(order, limit, state, reason, after)
        if refusal is not None:
            return refusal
        try:
            deliveries, after = await self._operations.list_deliveries(
                query.get("route"),
                None if state is None else DeliveryState(state),
                reason,
                after,
                int(limit),
                newest=order == "newest",
            )
        except StoreSilent:
            return _silent()
        return document(
            {"deliveries": [delivery_json(each) for each in deliveries], "next": after or None}
        )

    async def _show(self, request: web.Request) -> web.StreamResponse:
        name = read_delivery_id(request.match_info["delivery"])
        try:
            found = None if name is None else await self._operations.find_delivery(name)
        except StoreSilent:
            return _silent()
        if found is None:
            return _refused(TransitionRefusal.UNKNOWN)
        delivery, runs = found
        context = self._operations.explain_context()
        return document(
            {
                **delivery_json(delivery),
                "client": delivery.peer or None,
                "record": delivery.record or None,
                "key_added": bool(delivery.added_key),
                "headers": [[_latin(name), _latin(value)] for name, value in delivery.headers],
                "runs": [run_json(run, context) for run in runs],
            }
        )

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        name = read_delivery_id(request.match_info["delivery"])
        if name is None:
            return _refused(TransitionRefusal.UNKNOWN)
        try:
            ended = await self._operations.cancel_delivery(name, by=_peer(request))
        except StoreSilent:
            return _silent()
        if isinstance(ended, TransitionRefusal):
            return _refused(ended)
        return document({"result": "cancelled", "id": name, "route": ended.route})

    async def _retry(self, request: web.Request) -> web.StreamResponse:
        try:
            content = await read_object(request, _RETRY_MEMBERS)
        except SlowBody as slow:
            return slow.response()
        if content is None or not all(isinstance(value, bool) for value in content.values()):
            return _bad(_RETRY_BODY)
        name = read_delivery_id(request.match_info["delivery"])
        if name is None:
            return _refused(TransitionRefusal.UNKNOWN)
        force, dry_run = content.get("force") is True, content.get("dry_run") is True
        outcome: Delivery | TransitionRefusal | None
        try:
            if dry_run:
                outcome = await self._operations.retry_obstacle(name, force=force)
            else:
                by = _peer(request)
                outcome = await self._operations.retry_delivery(name, force=force, by=by)
        except StoreSilent:
            return _silent()
        return _refused(outcome) if isinstance(outcome, TransitionRefusal) else _due(name, outcome)


def _due(name: str, delivery: Delivery | None) -> web.Response:
    """Return the answer for a delivery that is sent now; None: that would be."""
    if delivery is None:
        return document({"result": "would_be_sent", "id": name})
    state = delivery.state.value
    return document({"result": "due", "id": name, "route": delivery.route, "state": state})


def _list_fault(
    order: str, limit: str, state: str | None, reason: str | None, after: str
) -> web.Response | None:
    """Return what is wrong with the query of a list; None if nothing is."""
    if order not in {"newest", "oldest"}:
        return _bad("Write order=newest or order=oldest.")
    if not is_limit(limit):
        return _bad(BAD_LIMIT)
    if state is not None and state not in _STATES:
        return _bad(f"Write a state: {', '.join(DeliveryState)}.")
    if reason is not None and reason not in _REASONS:
        return _bad("Write why=REASON with a reason that deliveries have, such as gave_up.")
    if after and not _is_cursor(after):
        return _bad("Write after=TEXT, as next of the page before has it.")
    return None


def delivery_json(delivery: Delivery) -> dict[str, object]:
    """Return what a list shows of a delivery, in values that JSON can carry."""
    waits, ended = delivery.state in TAKEABLE, bool(delivery.ended)
    return {
        "id": delivery.id,
        "state": delivery.state.value,
        "route": delivery.route,
        "upstream": delivery.upstream,
        "method": delivery.method,
        "target": readable_target(delivery.target),
        "request_id": delivery.request_id,
        "accepted": date_text(delivery.accepted),
        "gives_up": None if ended else date_text(delivery.gives_up),
        "next_attempt": date_text(delivery.due) if waits else None,
        "ended": date_text(delivery.ended) if ended else None,
        "expires": date_text(delivery.expires) if ended else None,
        "attempts": delivery.attempts,
        "tries": delivery.tries,
        "why": delivery.reason or None,
        "error": delivery.error or None,
        "deferred": None if delivery.deferred is None else delivery.deferred.value,
        "may_have_run": delivery.may_have_run,
        "body_bytes": delivery.size,
        "response": {"status": delivery.response_status} if delivery.response_status else None,
        "caller": delivery.caller or None,
    }


def _peer(request: web.Request) -> str:
    return f"admin ({request.remote or 'unix socket'})"


def _latin(value: bytes) -> str:
    return value.decode("latin-1")


def _refused(refusal: TransitionRefusal) -> web.Response:
    # The other refusals are about a change that came between two looks.
    reason = refusal if refusal in _REFUSALS else TransitionRefusal.CHANGED
    status, detail = _REFUSALS[reason]
    return problem(status, reason.value, detail)


def _bad(detail: str) -> web.Response:
    return problem(400, "bad_request", detail)


def _silent() -> web.Response:
    return problem(
        503,
        "deliveries",
        "The file of the deliveries does not answer; the log says why. Ask again later.",
        {hdrs.RETRY_AFTER: "1"},
    )
