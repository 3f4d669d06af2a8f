"""The life of one request, from a parsed message to the last byte."""

import asyncio
import logging

from aiohttp.web import StreamResponse

from proxy.core.ports import Refused
from proxy.http.refusal import Refusal, RefusalReason
from proxy.policy.failure_answers import DRAINING
from proxy.server.admission import admit
from proxy.server.aiohttp_adapter.responses import KEEP_ALIVE
from proxy.server.exchange import ClientExchange

_UNKNOWN = Refusal(RefusalReason.UNKNOWN, "The request could not be served.", close=True)
_CLIENT_LEFT = 499
_SWITCHING = 101

_log = logging.getLogger("holdfast")


_GO_ON = (KEEP_ALIVE, False)


async def serve(exchange: ClientExchange) -> tuple[StreamResponse, bool]:
    """Handle one request; return whether its connection goes on, in the terms of aiohttp.

    Raises only if the client is gone.
    """
    client = exchange.client
    if client.writing_paused:
        await _until_caught_up(exchange)
    try:
        refusal = admit(exchange)
        exchange.route.recorder.started()
        if refusal is None:
            refusal = await exchange.route.handle(exchange)
        if refusal is not None:
            exchange.answer(refusal)
    except Refused as refused:
        _answer_or_cut(exchange, refused.refusal)
    except asyncio.CancelledError:
        if not _cut_by_us(exchange):
            _record_disconnect(exchange)
            raise
    except Exception:  # noqa: BLE001 - our own fault must not become aiohttp's error page
        _log.exception("request %s failed inside the proxy", exchange.request_id)
        _answer_or_cut(exchange, _UNKNOWN)
    finally:
        exchange.finish()
    goes_on = exchange.keep_alive and not client.server.is_draining
    if goes_on and not client.has_upgraded:
        return _GO_ON
    # Also where the connection goes on, if aiohttp's parser has to be told.
    return await client.after_response(exchange, goes_on=goes_on)


async def _until_caught_up(exchange: ClientExchange) -> None:
    """Wait until the client has read its earlier responses; the request's time begins then."""
    try:
        await exchange.client.caught_up()
    except asyncio.CancelledError:
        exchange.route.recorder.started()
        _record_disconnect(exchange, phase="response")
        exchange.finish()
        raise
    exchange.started = exchange.now()


def _answer_or_cut(exchange: ClientExchange, refusal: Refusal) -> None:
    if not exchange.code:
        exchange.answer(refusal)
    elif not exchange.is_answered:
        exchange.relay_cut()  # too late for an answer


def _cut_by_us(exchange: ClientExchange) -> bool:
    """Whether the drain's time has run out; the client is told so if it still can be."""
    if not exchange.client.is_cut:
        return False
    _answer_or_cut(exchange, DRAINING)
    return True


def _record_disconnect(exchange: ClientExchange, phase: str = "") -> None:
    if exchange.code == _SWITCHING or exchange.is_answered:
        return  # the usual end of a tunnel, or all was sent
    phase = phase or exchange.left_during or exchange.phase
    exchange.route.recorder.count("holdfast_client_disconnects_total", phase)
    exchange.code = _CLIENT_LEFT
