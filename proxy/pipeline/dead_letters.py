"""The stage of a route that keeps what failed for good, before its client hears of it.

::

    the rest of the chain ──► a response that is no failure ─────────────► the client
                              a response whose status is listed in ``on`` ─┐
                              no response ─────────────────────────────────┤
                                                                           ▼
                                    on disk, then the client, which is told the letter's id

A refusal of ours is no failure: the request was not wanted, and its client can repeat it.
Nor is a client that left, or that sent a bad body. The head of a failing response is
withheld until the letter is on disk; its body is not read any further meanwhile.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Any

from proxy.core import Clock, Drawer, Exchange, Handler, Receiver, new_letter_id
from proxy.policy.failures import Category, category
from proxy.policy.fields import HOP_BY_HOP, nominated
from proxy.policy.hints import NO_ADVICE, read_advice
from proxy.policy.keeping import may_have_run
from proxy.policy.letters import (
    FAILED,
    Letter,
    LetterRules,
    LetterState,
    Missing,
    Outline,
    ReplayResult,
    Run,
    headers_to_keep,
)
from proxy.policy.outcome import FIRST_FAILURE, Attempt, Kind
from proxy.policy.reasons import Why
from proxy.policy.refusal import Refusal
from proxy.policy.response_head import ResponseHead
from proxy.policy.settings import FallbackSettings, RouteSettings, UpstreamSettings
from proxy.policy.verdict import Result
from proxy.stores import StoreError

_log = logging.getLogger("holdfast")

_NOT_KEPT = HOP_BY_HOP | {
    # They follow from the body, or were said to us alone.
    *(b"content-length", b"expect", b"holdfast-timeout", b"x-request-id"),
}
_LOST = {Why.BODY_TOO_LARGE: Missing.TOO_LARGE, Why.BUFFER_FULL: Missing.NO_ROOM}


class LetterWriter:
    """Knows which requests of a route become letters, and writes them."""

    def __init__(
        self, settings: RouteSettings, upstream: UpstreamSettings, drawer: Drawer, clock: Clock
    ) -> None:
        assert settings.dead_letter is not None  # noqa: S101 - for the type checker
        self._settings = settings.dead_letter
        self._route = settings.name
        self._rules = LetterRules(settings.dead_letter, settings, upstream)
        self._allowed = 1 if settings.retry is None else settings.retry.attempts
        self._refused = upstream.refused
        self._drawer = drawer
        self._clock = clock

    # Which ones.

    def may_want(self, exchange: Exchange) -> bool:
        """Whether it becomes a letter if it fails."""
        if exchange.is_replay:
            return False
        return self._rules.may_want(exchange.method, is_tunnel=bool(exchange.upgrade))

    def wants(self, exchange: Exchange, result: Result) -> bool:
        """Whether it becomes a letter, now that it ended like this."""
        if exchange.client_is_gone or not self.may_want(exchange):
            return False
        return self._rules.wants(result)

    def wants_response(self, exchange: Exchange, head: ResponseHead) -> bool:
        """The same of one whose last attempt brought this response."""
        status = head.status
        if status < FIRST_FAILURE:
            return False
        advice = NO_ADVICE
        if self._rules.heeds_hint(status):
            advice = read_advice(status, head.fields(), self._clock.wall())
        return self.wants(exchange, Result(None, status, advice=advice))

    # Writing them.

    async def before_fallback(self, exchange: Exchange, fallback: FallbackSettings) -> None:
        """It failed, and its client is about to get something else."""
        last = exchange.attempts[-1]
        body = None if exchange.body is None else await exchange.body.rest()
        await self.write(exchange, last.kind, body, fallback=fallback.upstream or "-")

    async def write(
        self, exchange: Exchange, kind: Kind | None, body: bytes | None, *, fallback: str = ""
    ) -> None:
        """Put it on disk; afterwards it has the letter's id, unless that cannot be done.

        *kind*: how it failed; None if its status says so. *body* is None if there is none, or
        if it was not kept.
        """
        kept = False
        try:
            letter = self._letter(exchange, kind, body, fallback)
            kept = await self._drawer.keep(letter)
            if kept:
                exchange.dead_letter = letter.id
            else:
                _log.warning(
                    "there is no room for another dead letter: request %s is lost",
                    exchange.request_id,
                )
        except StoreError as error:
            _log.warning("request %s is no dead letter (%s)", exchange.request_id, error)
        except Exception:  # noqa: BLE001 - the client gets its answer whatever our fault is
            _log.exception("request %s is no dead letter", exchange.request_id)
        exchange.route.recorder.lettered(kept=kept)

    def _letter(
        self, exchange: Exchange, kind: Kind | None, body: bytes | None, fallback: str
    ) -> Letter:
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
            exchange.raw_headers, _NOT_KEPT | nominated(connection), settings.drop
        )
        wall = self._clock.wall()
        last = attempts[-1]
        ran = any(may_have_run(attempt, self._refused) for attempt in attempts)
        outline = Outline(
            id=new_letter_id(wall),
            created=wall,
            expires=wall + settings.ttl,
            route=self._route,
            method=exchange.method,
            target=exchange.target,
            request_id=exchange.request_id,
            error=str(last.status) if kind is None else kind.value,
            # A response becomes a letter only if its status is listed.
            category=category(kind or last.status, frozenset({last.status})) or Category.PERMANENT,
            why=last.why or "",
            used=len(attempts),
            allowed=self._allowed,
            # Whether another upstream will do it is not known yet.
            may_have_run=ran or fallback not in {"", "-"},
            state=LetterState.WAITING,
            replays=0,
            size=len(body or b""),
            missing=missing,
        )
        run = Run(wall, ReplayResult.FAILED, described(attempts, self._clock))
        return Letter(
            outline=outline,
            headers=headers,
            dropped=dropped,
            body=body or b"",
            peer=exchange.peer,
            scheme=exchange.scheme,
            record=exchange.record,
            fallback=fallback,
            runs=(run,),
        )


class DeadLetters:
    """Keeps what comes to grief in the rest of the chain."""

    __slots__ = ("_inner", "_writer")

    def __init__(self, inner: Handler, writer: LetterWriter) -> None:
        self._inner = inner
        self._writer = writer

    def handle(self, exchange: Exchange) -> Awaitable[Refusal | None]:
        """Send on what would not be kept anyway; watch the rest."""
        if not self._writer.may_want(exchange):
            return self._inner(exchange)
        return self._watched(exchange)

    async def _watched(self, exchange: Exchange) -> Refusal | None:
        writer, outer = self._writer, exchange.keeper
        withholder = exchange.keeper = Withholder(exchange, outer or exchange, writer)
        try:
            refusal = await self._inner(exchange)
            if refusal is None:
                await withholder.settle()
            elif self._has_failed(exchange, refusal):
                body = None if exchange.body is None else await exchange.body.rest()
                await writer.write(exchange, FAILED[refusal.reason], body)
        finally:
            withholder.close()
            exchange.keeper = outer
        return refusal

    def _has_failed(self, exchange: Exchange, refusal: Refusal) -> bool:
        """Whether it is a failure, that was tried and is not kept yet."""
        kind = FAILED.get(refusal.reason)
        if kind is None or not exchange.attempts or exchange.dead_letter:
            return False
        return self._writer.wants(exchange, Result(kind))


class Withholder:
    """Between an upstream's response and whoever gets it (core.Receiver).

    A response that is no failure passes through. The head of one that is waits until the
    letter is on disk.
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

    def __init__(self, exchange: Exchange, outer: Receiver, writer: LetterWriter) -> None:
        self._exchange = exchange
        self._outer = outer
        self._writer = writer
        self._head: ResponseHead | None = None
        """Withheld; None before and after."""
        self._pieces: list[bytes] = []
        self._complete = False
        self._is_cut = False
        self._is_closed = False
        self._writing: asyncio.Task[None] | None = None

    @property
    def reads_ahead(self) -> bool:
        """Not while the head is withheld."""
        return self._head is None and self._outer.reads_ahead

    def outlive_client(self) -> bool:
        """It is not for us to say."""
        return self._outer.outlive_client()

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """The head: withhold it if it tells of a failure."""
        exchange = self._exchange
        if exchange.fallback or not self._writer.wants_response(exchange, head):
            self._outer.relay_head(head, pieces, complete=complete)
            return
        self._head, self._pieces, self._complete = head, pieces, complete
        body = None if exchange.body is None else exchange.body.kept()
        if not complete:
            exchange.code = head.status  # the time for the whole exchange reaches up to here
            if exchange.stream is not None:
                exchange.stream.pause()
        elif exchange.body is not None and body is None:
            return  # the rest of it can be had once the attempt is over
        self._writing = asyncio.get_running_loop().create_task(self._write(body))

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """More of the body: behind its head."""
        if self._head is None:
            self._outer.relay_data(pieces, complete=complete)
        else:
            self._pieces = self._pieces + pieces
            self._complete = complete

    def relay_cut(self) -> None:
        """The body broke off."""
        if self._head is None:
            self._outer.relay_cut()
        else:
            self._is_cut = True

    async def settle(self) -> None:
        """The attempt is over: let its client have the response, if it was withheld."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing.result()
        elif self._head is not None:
            body = self._exchange.body
            await self._write(None if body is None else await body.rest())

    async def _write(self, body: bytes | None) -> None:
        await self._writer.write(self._exchange, None, body)
        self._let_go()

    def _let_go(self) -> None:
        exchange, outer, head = self._exchange, self._outer, self._head
        if head is None or self._is_closed:
            return  # nobody is there any more
        self._head = None
        outer.relay_head(head, self._pieces, complete=self._complete)
        if self._is_cut:
            outer.relay_cut()
        elif exchange.stream is not None and (outer.reads_ahead or not exchange.is_behind):
            exchange.stream.resume()

    def close(self) -> None:
        """Nobody waits for it any more: what is being written is, but nothing is relayed."""
        self._is_closed = True


def described(attempts: list[Attempt], clock: Clock) -> tuple[Mapping[str, object], ...]:
    """Each attempt as the access log has it, but with the date at which it began."""
    wall, now = clock.wall(), clock.monotonic()
    return tuple(
        _described(attempt, wall - now, now, is_last=attempt is attempts[-1])
        for attempt in attempts
    )


def _described(
    attempt: Attempt, offset: float, now: float, *, is_last: bool
) -> Mapping[str, object]:
    # The last one may be under way: its response is withheld until this is written.
    duration = attempt.duration or now - attempt.started
    why = attempt.why or ("" if is_last else Why.RETRIED)
    record: dict[str, Any] = {
        "n": attempt.number,
        "upstream": attempt.upstream,
        "address": attempt.address,
        "start": round(offset + attempt.started, 6),
        "ms": round(duration * 1000, 3),
        "outcome": attempt.outcome,
        "status": attempt.status or None,
        "sent": attempt.sent,
        "received": attempt.received,
        "reused": attempt.reused,
    }
    if attempt.pause is not None:
        record["wait_ms"] = round(attempt.pause.seconds * 1000, 3)
        record["wait_for"] = attempt.pause.source
    if attempt.queued:
        record["queue_ms"] = round(attempt.queued * 1000, 3)
    if why:
        record["why"] = str(why)
    return record
