"""The life of one request, from a parsed message to the last byte."""

import asyncio
import logging

from proxy.core import Refused
from proxy.policy.refusal import Reason, Refusal
from proxy.server.admission import admit
from proxy.server.exchange import ClientExchange
from proxy.server.responses import CLOSE, KEEP_ALIVE, LingeringClose, Written

_DRAINING = Refusal(Reason.DRAINING, "This proxy is shutting down.", close=True)
_UNKNOWN = Refusal(Reason.UNKNOWN, "The request could not be served.", close=True)
_CLIENT_LEFT = 499
_SWITCHING = 101

_log = logging.getLogger("holdfast")


async def serve(exchange: ClientExchange) -> Written:
    """Handle one request. Raises only if its client is gone."""
    client = exchange.client
    try:
        if client.writing_paused:
            await client.caught_up()
        refusal = admit(exchange)
        exchange.route.recorder.started()
        if refusal is None:
            refusal = await exchange.route.handle(exchange)
        if refusal is not None:
            exchange.answer(refusal)
    except Refused as refused:
        exchange.answer(refused.refusal)
    except asyncio.CancelledError:
        if not _cut_by_us(exchange):
            _client_left(exchange)
            raise
    except Exception:  # noqa: BLE001 - our own fault must not become aiohttp's error page
        _failed(exchange)
    finally:
        exchange.finish()
    if exchange.keep_alive and not client.server.is_draining:
        return KEEP_ALIVE
    return CLOSE if exchange.payload.is_eof() else LingeringClose(client)


def _failed(exchange: ClientExchange) -> None:
    _log.exception("request %s failed inside the proxy", exchange.request_id)
    if exchange.code:
        exchange.relay_cut()  # too late for an answer
    else:
        exchange.answer(_UNKNOWN)


def _cut_by_us(exchange: ClientExchange) -> bool:
    """Whether the drain's time has run out; the client gets to know if it still can."""
    if not exchange.client.is_cut:
        return False
    if exchange.code:
        exchange.relay_cut()
    else:
        exchange.answer(_DRAINING)
    return True


def _client_left(exchange: ClientExchange) -> None:
    if exchange.code == _SWITCHING or exchange.is_answered:
        return  # the usual end of a tunnel, or nothing was left to be said
    if exchange.code:
        phase = "response"
    elif exchange.waiting_since:
        phase = "body"
    else:
        phase = "upstream"
    exchange.route.recorder.disconnected(phase)
    exchange.code = _CLIENT_LEFT
