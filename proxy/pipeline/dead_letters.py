"""The dead-letter stage: keeps a request that failed for good, before its client is answered.

::

    the next stage ──► a response that is no failure ────────────────────► the client
                              a response whose status is listed in ``on`` ─┐
                              no response ─────────────────────────────────┤
                                                                           ▼
                                    on disk, then the client, with the dead letter's id

A refusal by the proxy is no failure: the request was not sent, and its client can repeat it;
:class:`KeptRefusals` keeps those where the configuration says so. If an attempt had failed before
the refusal, the request has failed. No failure either is a client that left, that gave the request
less time than its route does, or that sent a bad body. But the owner of a key goes on after its
client left, and if it fails then, no client was told: such a request is kept.

The head of a failing response is withheld until the dead letter is on disk; the body is not read
any further meanwhile (back-pressure).
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Container, Mapping

from proxy.core.attempt_json import attempt_json, start_by_date
from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.ids import new_dead_letter_id
from proxy.core.ports import DeadLetterSink, Receiver, Refused
from proxy.core.route import Handler
from proxy.http.fields import HOP_BY_HOP, nominated
from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.response_head import ResponseHead
from proxy.policy.attempt import FIRST_FAILURE, Attempt, FailureKind
from proxy.policy.dead_letter import (
    FAILED,
    REFUSED,
    DeadLetter,
    DeadLetterRules,
    DeadLetterState,
    DeadLetterSummary,
    Missing,
    ReplayResult,
    ReplayRun,
    credentials_sent,
    headers_to_keep,
)
from proxy.policy.failure_category import FailureCategory, category
from proxy.policy.idempotency.key import KeyReader, scope_digest
from proxy.policy.reasons import KeyResult, VerdictReason
from proxy.policy.repeatable import may_have_run
from proxy.policy.retry.hints import NO_HINT, read_hint
from proxy.policy.retry.verdict import AttemptResult
from proxy.policy.settings import FallbackSettings, RouteSettings, UpstreamSettings
from proxy.policy.throttle.wait_queue import ThrottleCause
from proxy.stores import StoreError

_log = logging.getLogger("holdfast")

NOT_KEPT = HOP_BY_HOP | {
    # They follow from the body, or were meant for the proxy alone.
    *(b"content-length", b"expect", b"holdfast-timeout", b"x-request-id"),
}
"""Header fields, in lower case, that no request keeps on disk."""
_Error = FailureKind | int | RefusalReason
"""How a request failed: a kind, a status, or the reason why no attempt was made."""

_OF_DUPLICATES = frozenset({KeyResult.JOINED, KeyResult.REPLAYED})

_LOST = {
    VerdictReason.BODY_TOO_LARGE: Missing.TOO_LARGE,
    VerdictReason.BUFFER_FULL: Missing.BUFFER_FULL,
}


class DeadLetterWriter:
    """Decides which requests of a route become dead letters, and writes them."""

    def __init__(
        self,
        settings: RouteSettings,
        upstream: UpstreamSettings,
        sink: DeadLetterSink,
        clock: Clock,
        known_scopes: Container[str] = (),
    ) -> None:
        """*known_scopes*: digests of callers for whom a good response was kept under a key."""
        assert settings.dead_letter is not None  # noqa: S101 - for the type checker
        self._settings = settings.dead_letter
        self._route = settings.name
        self._rules = DeadLetterRules(settings.dead_letter, upstream)
        self.keeps_refusals = self._rules.keeps_refusals
        self._allowed = 1 if settings.retry is None else settings.retry.attempts
        self._refused = upstream.refused
        keys = settings.idempotency
        scope = () if keys is None else keys.scope
        self._credentials = settings.dead_letter.drop | frozenset(scope)
        """Names of the header fields that identify a caller."""
        self._scope: KeyReader | None = None
        if keys is not None and scope:
            self._scope = KeyReader(keys.header.encode(), [name.encode() for name in scope])
        self._known_scopes = known_scopes
        self._sink = sink
        self._clock = clock

    # Which requests.

    def may_want(self, exchange: Exchange) -> bool:
        """Say whether the request becomes a dead letter if it fails."""
        if exchange.is_replay:
            return False
        return self._rules.may_want(exchange.method, is_tunnel=bool(exchange.upgrade))

    def wants(self, exchange: Exchange, result: AttemptResult) -> bool:
        """Say whether a request that ended with *result* becomes a dead letter.

        A request whose client gave it too little time has not failed: the client chose so, and
        was told.
        """
        if exchange.client_timeout_passed or not self.may_want(exchange):
            return False
        return self._rules.wants(result)

    def wants_response(self, exchange: Exchange, head: ResponseHead) -> bool:
        """Say whether a request whose last attempt brought this response becomes a dead letter."""
        status = head.status
        if status < FIRST_FAILURE:
            return False
        hint = NO_HINT
        if self._rules.heeds_hint(status):
            hint = read_hint(status, head.fields(), self._clock.wall())
        return self.wants(exchange, AttemptResult(None, status, hint=hint))

    def error_of(self, exchange: Exchange, refusal: Refusal) -> "_Error | None":
        """Return how a request failed that gets *refusal*; None if it becomes no dead letter.

        After an attempt, that attempt is what failed, even if the proxy refused to make another.
        """
        reason, attempts = refusal.reason, exchange.attempts
        if exchange.dead_letter:
            return None
        if not attempts:
            is_wanted = self.keeps_refusals and reason in REFUSED and self.may_want(exchange)
            return reason if is_wanted and not _is_hurried(exchange, refusal) else None
        last = attempts[-1]
        if reason in FAILED:
            error: FailureKind | int = FAILED[reason]
        elif reason in REFUSED:
            error = last.kind or last.status
        else:
            return None
        result = (
            AttemptResult(error) if isinstance(error, FailureKind) else AttemptResult(None, error)
        )
        return error if self.wants(exchange, result) else None

    # Writing dead letters.

    async def keep_before_fallback(self, exchange: Exchange, fallback: FallbackSettings) -> None:
        """Keep a request that failed, before its client gets the *fallback*."""
        last = exchange.attempts[-1]
        body = None if exchange.body is None else await exchange.body.rest()
        await self.write(exchange, last.kind or last.status, body, fallback.upstream or "-")

    async def keep_if_failed(
        self, exchange: Exchange, refusal: Refusal, fallback: FallbackSettings | None = None
    ) -> None:
        """Keep the request if it failed; it gets *refusal*, or the *fallback* in its place."""
        error = self.error_of(exchange, refusal)
        if error is None:
            return
        body = None if exchange.body is None else await exchange.body.rest()
        instead = "" if fallback is None else fallback.upstream or "-"
        await self.write(exchange, error, body, instead)

    async def keep_if_cancelled(self, exchange: Exchange) -> None:
        """Keep a cancelled request that cannot end, and has no client any more to be told.

        Its response was discarded for another attempt when its client left; or an attempt was
        under way when the drain ran out of time.
        """
        last = exchange.attempts[-1] if exchange.attempts else None
        if last is None or exchange.dead_letter or not self.may_want(exchange):
            return
        is_failure = last.kind is None and self.wants(exchange, AttemptResult(None, last.status))
        if not is_failure and not (
            last.kind is FailureKind.CANCELLED and last.sent and not last.status
        ):
            return
        body = None if exchange.body is None else exchange.body.kept()
        await self.write(exchange, last.kind or last.status, body)

    async def write(
        self, exchange: Exchange, error: "_Error", body: bytes | None, fallback: str = ""
    ) -> None:
        """Write the dead letter to disk; the exchange then has its id, unless that failed.

        *body* is None if there is none, or if it was not kept.
        """
        kept = False
        try:
            dead_letter = self._dead_letter(exchange, error, body, fallback)
            kept = await self._sink.keep(dead_letter)
            if kept:
                exchange.dead_letter = dead_letter.id
            else:
                _log.warning(
                    "there is no room for another dead letter: request %s is lost",
                    exchange.request_id,
                )
        except StoreError as failure:
            _log.warning(
                "request %s could not be kept as a dead letter (%s)", exchange.request_id, failure
            )
        except Exception:  # noqa: BLE001 - the client gets its answer whatever our fault is
            _log.exception("request %s could not be kept as a dead letter", exchange.request_id)
        if kept:
            exchange.route.recorder.count("holdfast_dead_letters_total")
        else:
            exchange.route.recorder.count("holdfast_dead_letters_dropped_total", "lost")

    def _dead_letter(
        self, exchange: Exchange, error: "_Error", body: bytes | None, fallback: str
    ) -> DeadLetter:
        settings, attempts = self._settings, exchange.attempts
        missing = None
        if exchange.body is not None and body is None:
            lost = exchange.body.lost
            missing = Missing.INCOMPLETE if lost is None else _LOST.get(lost, Missing.TOO_LARGE)
        elif body is not None and len(body) > settings.max_body:
            body, missing = None, Missing.TOO_LARGE
        connection = [
            value for name, value in exchange.raw_headers if name.lower() == b"connection"
        ]
        headers, dropped = headers_to_keep(
            exchange.raw_headers, NOT_KEPT | nominated(connection), settings.drop
        )
        sent = credentials_sent(exchange.raw_headers, self._credentials)
        wall = self._clock.wall()
        ran = any(may_have_run(attempt, self._refused) for attempt in attempts)
        summary = DeadLetterSummary(
            id=new_dead_letter_id(wall),
            created=wall,
            expires=wall + settings.ttl,
            route=self._route,
            method=exchange.method,
            target=exchange.target,
            request_id=exchange.request_id,
            error=str(error),
            category=_category(error),
            verdict=(attempts[-1].verdict or "") if attempts else "",
            used=len(attempts),
            allowed=self._allowed,
            # Whether the fallback's upstream will run it is not known yet.
            may_have_run=ran or fallback not in {"", "-"},
            state=DeadLetterState.WAITING,
            replays=0,
            size=len(body or b""),
            missing=missing,
            caller=self._sink.digest(sent) if sent else "",
            credentials=tuple(sorted(self._credentials)),
        )
        result = ReplayResult.FAILED if attempts else ReplayResult.REFUSED
        run = ReplayRun(wall, result, attempt_records(attempts, self._clock))
        return DeadLetter(
            summary=summary,
            headers=headers,
            dropped=dropped,
            body=body or b"",
            peer=exchange.peer,
            scheme=exchange.scheme,
            record=exchange.record,
            fallback=fallback,
            runs=(run,),
            holder=self._share_owner(exchange),
        )

    def _share_owner(self, exchange: Exchange) -> str:
        """Return whose share of the sink the dead letter takes: its scope's, if that is known.

        Otherwise a caller could have a share of its own for each name that it makes up.
        """
        if self._scope is not None:
            caller = self._scope.read(exchange.raw_headers).caller
            scope = scope_digest(caller) if caller else ""
            if scope in self._known_scopes:
                return self._sink.digest(scope.encode())
        return exchange.caller()


class DeadLetters:
    """The dead-letter stage: keeps requests that fail in the stages behind it."""

    __slots__ = ("_inner", "_writer")

    def __init__(self, inner: Handler, writer: DeadLetterWriter) -> None:
        self._inner = inner
        self._writer = writer

    def handle(self, exchange: Exchange) -> Awaitable[Refusal | None]:
        """Pass on requests that would not be kept in any case; watch the others."""
        if not self._writer.may_want(exchange):
            return self._inner(exchange)
        return self._watched(exchange)

    async def _watched(self, exchange: Exchange) -> Refusal | None:
        writer, outer = self._writer, exchange.capture
        relay = exchange.capture = DelayedRelay(exchange, outer or exchange, writer)
        try:
            refusal = await self._inner(exchange)
            if refusal is None:
                await relay.settle()
            elif exchange.attempts:
                await writer.keep_if_failed(exchange, refusal)
        except Refused as refused:
            if exchange.attempts:
                await writer.keep_if_failed(exchange, refused.refusal)
            raise
        except asyncio.CancelledError:
            if exchange.client_is_gone:
                await writer.keep_if_cancelled(exchange)
            raise
        finally:
            relay.close()
            exchange.capture = outer
        return refusal


class KeptRefusals:
    """Keeps requests that were refused without an attempt; outside all stages that refuse."""

    __slots__ = ("_inner", "_writer")

    def __init__(self, inner: Handler, writer: DeadLetterWriter) -> None:
        self._inner = inner
        self._writer = writer

    async def handle(self, exchange: Exchange) -> Refusal | None:
        """Keep a refused request before its client is answered."""
        try:
            refusal = await self._inner(exchange)
        except Refused as refused:
            await self._keep(exchange, refused.refusal)
            raise
        if refusal is not None:
            await self._keep(exchange, refusal)
        return refusal

    async def _keep(self, exchange: Exchange, refusal: Refusal) -> None:
        # A duplicate gets the outcome of the first request, which is kept already.
        if not exchange.attempts and exchange.key_result not in _OF_DUPLICATES:
            await self._writer.keep_if_failed(exchange, refusal)


class DelayedRelay:
    """Between an upstream's response and its receiver (core.ports.Receiver).

    A response that is no failure is relayed at once. The head of a failure is withheld until the
    dead letter is on disk.
    """

    __slots__ = (
        "_complete",
        "_exchange",
        "_head",
        "_is_closed",
        "_is_cut",
        "_outer",
        "_pieces",
        "_writer",
        "_writing",
    )

    def __init__(self, exchange: Exchange, outer: Receiver, writer: DeadLetterWriter) -> None:
        self._exchange = exchange
        self._outer = outer
        self._writer = writer
        self._head: ResponseHead | None = None
        """The head while it is withheld; None before and after."""
        self._pieces: list[bytes] = []
        self._complete = False
        self._is_cut = False
        self._is_closed = False
        self._writing: asyncio.Task[None] | None = None

    @property
    def reads_ahead(self) -> bool:
        """Whether the receiver reads ahead; False while the head is withheld."""
        return self._head is None and self._outer.reads_ahead

    def outlive_client(self) -> bool:
        """Ask the receiver behind this one whether the request outlives its client."""
        return self._outer.outlive_client()

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """Relay the head, or withhold it if it tells of a failure."""
        exchange = self._exchange
        if exchange.fallback or not self._writer.wants_response(exchange, head):
            self._outer.relay_head(head, pieces, complete=complete)
            return
        self._head, self._pieces, self._complete = head, pieces, complete
        body = None if exchange.body is None else exchange.body.kept()
        if not complete:
            exchange.code = head.status  # the time for the whole exchange ends here
            if exchange.stream is not None:
                exchange.stream.pause_reading()
        elif exchange.body is not None and body is None:
            return  # the rest of the request's body can be read once the attempt is over
        self._writing = asyncio.get_running_loop().create_task(self._write(body))

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """Relay more of the body, or withhold it behind its head."""
        if self._head is None:
            self._outer.relay_data(pieces, complete=complete)
        else:
            self._pieces = self._pieces + pieces
            self._complete = complete

    def relay_cut(self) -> None:
        """Relay that the body broke off, or note it behind a withheld head."""
        if self._head is None:
            self._outer.relay_cut()
        else:
            self._is_cut = True

    async def settle(self) -> None:
        """Relay a withheld response once the dead letter is written; the attempt is over."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing.result()
        elif self._head is not None:
            body = self._exchange.body
            await self._write(None if body is None else await body.rest())

    async def _write(self, body: bytes | None) -> None:
        head = self._head
        if head is not None:
            await self._writer.write(self._exchange, head.status, body)
        self._release()

    def _release(self) -> None:
        exchange, outer, head = self._exchange, self._outer, self._head
        if head is None or self._is_closed:
            return  # no client is left
        self._head = None
        outer.relay_head(head, self._pieces, complete=self._complete)
        if self._is_cut:
            outer.relay_cut()
        elif exchange.stream is not None and (outer.reads_ahead or not exchange.is_behind):
            exchange.stream.resume_reading()

    def close(self) -> None:
        """Relay nothing any more; a dead letter that is being written is written."""
        self._is_closed = True


def _is_hurried(exchange: Exchange, refusal: Refusal) -> bool:
    """Say whether the request was refused because its client grants less time than the route."""
    asked, granted = exchange.client_timeout, exchange.route.settings.timeout
    in_time = (
        refusal.reason is not RefusalReason.TIMEOUT and refusal.cause != ThrottleCause.DEADLINE
    )
    return not in_time and asked is not None and (granted is None or asked < granted)


def _category(error: _Error) -> FailureCategory:
    if isinstance(error, RefusalReason):
        return FailureCategory.TRANSIENT
    # A response becomes a dead letter only if its status is listed.
    statuses = frozenset[int]() if isinstance(error, FailureKind) else frozenset({error})
    return category(error, statuses) or FailureCategory.TRANSIENT


def attempt_records(
    attempts: list[Attempt], clock: Clock, offset: float | None = None
) -> tuple[Mapping[str, object], ...]:
    """Return each attempt as in the access log, but with the date at which it began.

    *offset* is what dates are ahead of the monotonic clock, unless they are the wall clock's.
    """
    now = clock.monotonic()
    offset = clock.wall() - now if offset is None else offset
    return tuple(
        json.loads(
            attempt_json(
                attempt,
                start_by_date(attempt, offset),
                # The last attempt may be under way: its response is withheld until this is written.
                now - attempt.started,
                None if attempt is attempts[-1] else VerdictReason.RETRIED,
            )
        )
        for attempt in attempts
    )
