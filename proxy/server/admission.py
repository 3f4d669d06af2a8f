"""Admission of requests: from a parsed message to one that may be served, or a refusal.

aiohttp's parser has done its part (RFC 9112's grammar, lengths, singletons);
here follows what it lets through, in the order in which the answers matter.
Nothing in this module waits.
"""

from aiohttp.http import HttpVersion10, HttpVersion11

from proxy.core.ids import new_request_id
from proxy.http.framing import CHUNKED
from proxy.http.hosts import BAD_HOST, host_name
from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.request_head import RequestHead, read_request_head
from proxy.http.target import ASTERISK, split_target
from proxy.server.aiohttp_adapter.parse_errors import HEAD_TOO_LARGE
from proxy.server.aiohttp_adapter.payload import take_whole
from proxy.server.body.buffered import BufferedBody
from proxy.server.body.memory_budget import LARGE_HEAD, NO_MEMORY
from proxy.server.body.streaming import MALFORMED, TOO_LARGE, StreamingBody, reserve_memory
from proxy.server.exchange import ClientExchange

_VERSION = Refusal(RefusalReason.VERSION, "Use HTTP/1.1 or HTTP/1.0.", close=True)
_METHOD = Refusal(RefusalReason.METHOD, "CONNECT and TRACE are not supported.", close=True)
_EXPECTATION = Refusal(RefusalReason.EXPECTATION, "The only supported expectation is 100-continue.")

_NEVER_SERVED = frozenset({"CONNECT", "TRACE"})


def admit(exchange: ClientExchange) -> Refusal | None:
    """Read the head, find the route and apply its limits; None if all is well."""
    version = exchange.message.version
    if version is not HttpVersion11:
        if version != HttpVersion10:
            exchange.set_request_id(new_request_id())
            return _VERSION
        exchange.http_1_0 = True
        exchange.keep_alive = False  # RFC 9112 9.3: not through an intermediary
    head = read_request_head(
        exchange.raw_headers, http_1_0=exchange.http_1_0, hop=exchange.router.hop
    )
    if isinstance(head, Refusal):
        exchange.set_request_id(new_request_id())
        return head
    exchange.head = head
    exchange.client_timeout = head.timeout
    exchange.set_request_id(head.request_id or new_request_id())
    if exchange.method in _NEVER_SERVED:
        return _METHOD
    client = exchange.client
    if client.largest_head > exchange.router.usual_head:
        size = _size(exchange)
        if size > exchange.router.settings.limits.header_bytes:
            return HEAD_TOO_LARGE
        if size > LARGE_HEAD and not client.reserve_head_memory(size):
            return NO_MEMORY
    return _find_route(exchange, head) or _apply_limits(exchange, head)


def _size(exchange: ClientExchange) -> int:
    """Return the bytes of the head, where it may be too large as a whole."""
    fields = sum(len(name) + len(value) + 4 for name, value in exchange.raw_headers)
    return len(exchange.target) + fields


def _find_route(exchange: ClientExchange, head: RequestHead) -> Refusal | None:
    target = split_target(exchange.method, exchange.target)
    if isinstance(target, Refusal):
        return target
    path, exchange.target, authority = target
    host = host_name(head.host)
    if authority is not None and host is not None:
        # RFC 9112 3.2.2: an absolute target's authority replaces Host.
        head.host = authority.encode("latin-1")
        host = host_name(authority)
    if host is None:
        return BAD_HOST
    if exchange.method == "OPTIONS" and (path == ASTERISK or head.max_forwards == 0):
        exchange.route = exchange.router.itself
    else:
        route = exchange.router.find(exchange.method, host, path, exchange.raw_headers)
        exchange.route = route
        if route.single_fields is not None:
            return route.single_fields.refusal(exchange.raw_headers, exchange.target)
    return None


def _apply_limits(exchange: ClientExchange, head: RequestHead) -> Refusal | None:
    settings = exchange.route.settings
    expects = False
    if head.expect and not exchange.http_1_0:
        if head.expect.lower() != b"100-continue":
            return _EXPECTATION
        expects = True
    length = head.length
    if length:
        if settings.max_body is not None and length != CHUNKED and length > settings.max_body:
            return TOO_LARGE
        if not exchange.came_in_parts:
            data = take_whole(exchange.payload)
            if settings.max_body is not None and len(data) > settings.max_body:
                return TOO_LARGE
            exchange.body = BufferedBody(exchange, data)
        elif (refusal := _expect_body(exchange, length, expects=expects)) is not None:
            return refusal
    if exchange.message.upgrade:
        exchange.upgrade = (
            head.upgrade.lower() == b"websocket"
            and "websocket" in settings.upgrades
            and exchange.method == "GET"
            and exchange.body is None
            and not exchange.http_1_0
        )
        if not exchange.upgrade:
            # Bytes behind a declined Upgrade may already be lost in the parser.
            exchange.keep_alive = False
    return None


def _expect_body(exchange: ClientExchange, length: int, *, expects: bool) -> Refusal | None:
    """Reserve memory for a body that is still coming, and set it on *exchange*."""
    if exchange.client.has_broken_body(exchange):
        return MALFORMED
    if not reserve_memory(exchange, length):
        return NO_MEMORY
    exchange.body = StreamingBody(exchange, exchange.payload, length, waits_for_continue=expects)
    return None
