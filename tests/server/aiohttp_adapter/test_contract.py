"""Every name of aiohttp's that is not documented and that the listener builds on.

A new aiohttp that changes one of them must fail here, loudly, and not in
production. The minor version is pinned for the same reason.
"""

import ast
import asyncio
import inspect
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpVersion10, HttpVersion11, RawRequestMessage, StreamWriter
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError, LineTooLong
from aiohttp.http_parser import HttpRequestParser
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import ERROR, RequestHandler

from proxy.server import proxy_server
from proxy.server.aiohttp_adapter.parse_errors import refusal_for
from proxy.server.aiohttp_adapter.parser import parser_name
from proxy.server.aiohttp_adapter.protocol import AiohttpConnection
from proxy.server.aiohttp_adapter.request import RequestHooks
from proxy.server.aiohttp_adapter.responses import CLOSE, KEEP_ALIVE
from proxy.server.aiohttp_adapter.same_task import same_task
from proxy.server.aiohttp_adapter.server import AiohttpServer
from proxy.server.connection import ClientConnection
from proxy.server.exchange import ClientExchange
from proxy.server.proxy_server import ProxyServer

LINE, FIELD, FIELDS = 100, 101, 20
HOST = b"Host: a\r\n"


async def _never_called(_: web.BaseRequest) -> web.StreamResponse:
    raise AssertionError


def parse(raw: bytes) -> list[tuple[RawRequestMessage, StreamReader]]:
    loop = asyncio.get_running_loop()
    parser = HttpRequestParser(
        BaseProtocol(loop),
        loop,
        2**16,
        max_line_size=LINE,
        max_field_size=FIELD,
        max_headers=FIELDS,
        auto_decompress=False,
    )
    messages, _, _ = parser.feed_data(raw)
    return messages


def test_version_is_the_one_that_was_read() -> None:
    assert version("aiohttp").startswith("3.14.")


def test_compiled_parser_is_known_by_its_module() -> None:
    assert HttpRequestParser.__module__ == "aiohttp._http_parser"
    assert parser_name() == "c"


# All that is not documented is used in the adapter.

PRIVATE = {
    name
    for kind in (RequestHandler, StreamReader, web.StreamResponse, web.Server)
    for name in (*dir(kind), *getattr(kind, "__annotations__", ()))
    if name.startswith("_") and not name.startswith("__")
} | {"_loop", "_connections", "_buffer", "_buffer_offset", "_keep_alive", "_eof_sent"}


def private_names(source: str) -> set[str]:
    """Names of aiohttp's that begin with an underscore, in what reads them of another object.

    Of ``self`` too where the class is one of aiohttp's, for which the next test stands.
    """
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr in PRIVATE
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }


def test_private_names_are_used_in_the_adapter_alone() -> None:
    server = Path(proxy_server.__file__).parent
    for file in server.rglob("*.py"):
        if "aiohttp_adapter" not in file.parts:
            assert private_names(file.read_text()) == set(), file


@pytest.mark.parametrize(
    ("ours", "adapter", "theirs"),
    [
        pytest.param(ClientConnection, AiohttpConnection, RequestHandler, id="connection"),
        pytest.param(ProxyServer, AiohttpServer, web.Server, id="server"),
    ],
)
def test_what_builds_on_the_adapter_neither_overrides_nor_reads_private_names(
    ours: type, adapter: type, theirs: type
) -> None:
    documented = {"connection_made", "connection_lost"} if theirs is web.Server else set()
    own = {name for name in vars(ours) if not name.startswith("__")}
    assert own & set(dir(theirs)) <= documented
    read = set(re.findall(r"self\.(_\w+)", inspect.getsource(ours)))
    assert read & PRIVATE <= set(dir(adapter)) - set(dir(theirs))


def test_slots_are_read_by_names_of_our_own() -> None:
    """Aliases of the descriptors: a read is no call."""
    assert vars(AiohttpConnection)["queued_messages"] is vars(RequestHandler)["_messages"]
    assert vars(AiohttpConnection)["has_upgraded"] is vars(BaseProtocol)["_upgraded"]
    assert vars(AiohttpConnection)["writing_paused"] is vars(BaseProtocol)["_paused"]


async def test_the_property_of_the_parent_returns_the_slot() -> None:
    parent = BaseProtocol(asyncio.get_running_loop())
    assert parent.writing_paused is False
    parent.pause_writing()
    assert parent.writing_paused is parent._paused is True


# The server and its connection.


async def test_server_keeps_the_factory_of_its_requests() -> None:
    factory: Any = ClientExchange
    assert web.Server(_never_called, request_factory=factory).request_factory is factory


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("connection_made", ["self", "handler", "transport"]),
        ("connection_lost", ["self", "handler", "exc"]),
        ("shutdown", ["self", "timeout"]),
        ("__call__", ["self"]),
    ],
)
def test_server_has_the_methods_that_we_override_or_call(
    method: str, parameters: list[str]
) -> None:
    assert list(inspect.signature(getattr(web.Server, method)).parameters) == parameters


async def test_server_knows_its_loop() -> None:
    assert web.Server(_never_called)._loop is asyncio.get_running_loop()


def test_server_takes_a_factory_for_requests() -> None:
    parameters = inspect.signature(web.Server.__init__).parameters
    assert {"request_factory", "handler_cancellation"} <= parameters.keys()


def test_request_factory_is_called_with_what_our_exchange_takes() -> None:
    ours = list(inspect.signature(ClientExchange.__init__).parameters)[1:]
    assert ours == ["message", "payload", "protocol", "writer", "task"]
    source = inspect.getsource(RequestHandler.start)
    call = source.partition("self._request_factory(\n")[2].partition(")\n")[0]
    assert [line.strip().rstrip(",") for line in call.splitlines()][:4] == [
        "message",
        "payload",
        "self",
        "writer",
    ]


async def test_connection_has_a_queue_of_messages_and_their_bodies() -> None:
    server = web.Server(_never_called)
    connection = RequestHandler(server, loop=asyncio.get_running_loop())
    assert len(connection._messages) == 0
    assert connection._upgraded is False
    assert connection.writing_paused is False
    assert connection.max_line_size > 0
    assert connection.transport is None


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("handle_error", ["self", "request", "status", "exc", "message"]),
        ("finish_response", ["self", "request", "resp", "start_time"]),
        ("set_parser", ["self", "parser", "data_received_cb"]),
        ("data_received", ["self", "data"]),
        ("connection_made", ["self", "transport"]),
        ("connection_lost", ["self", "exc"]),
        ("pause_writing", ["self"]),
        ("resume_writing", ["self"]),
        ("resume_reading", ["self", "resume_parser"]),
        ("_handle_request", ["self", "request", "start_time", "request_handler"]),
        ("close", ["self"]),
        ("force_close", ["self"]),
    ],
)
def test_hook_has_the_signature_that_we_override_or_call(
    method: str, parameters: list[str]
) -> None:
    assert list(inspect.signature(getattr(RequestHandler, method)).parameters) == parameters


async def test_connection_knows_whether_it_reads_and_who_serves_it() -> None:
    connection = RequestHandler(web.Server(_never_called), loop=asyncio.get_running_loop())
    assert connection._reading_paused is False
    assert connection._buffer_paused is False
    assert connection._payload_parser is None
    assert connection._request_handler is _never_called


def test_request_is_served_by_what_the_loop_of_its_connection_makes_of_the_handler() -> None:
    source = inspect.getsource(RequestHandler.start)
    assert "loop = self._loop\n" in source
    assert "coro = self._handle_request(request, start, request_handler)\n" in source
    assert "resp, reset = await task\n" in source
    asked = set(re.findall(r"\bloop\.(\w+)\(", source))
    assert asked == {"create_future", "create_task", "time", "call_at"}
    with asyncio.Runner() as runner:
        loop = same_task(runner.get_loop())
        assert all(callable(getattr(loop, name)) for name in asked)


def test_parser_is_told_of_requests_whose_turn_has_come() -> None:
    assert callable(HttpRequestParser.message_consumed)
    assert "self._parser.message_consumed()" in inspect.getsource(RequestHandler.start)


async def test_body_that_is_here_is_the_only_piece_in_its_buffer() -> None:
    _, body = parse(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\n\r\nbody")[0]
    assert body.is_eof()
    assert list(body._buffer) == [b"body"]
    assert body._buffer_offset == 0
    body._buffer.popleft()
    assert body.at_eof()


async def test_what_is_put_in_place_of_the_parser_gets_the_bytes() -> None:
    class Sink:
        fed = b""

        def feed_data(self, data: bytes) -> tuple[bool, bytes]:
            self.fed += data
            return False, b""

        def feed_eof(self) -> None:
            raise AssertionError

    connection = RequestHandler(web.Server(_never_called), loop=asyncio.get_running_loop())
    sink = Sink()
    connection.set_parser(sink)  # type: ignore[arg-type]  # as our tunnel does
    connection.data_received(b"frame")
    assert sink.fed == b"frame"


def test_what_aiohttp_asks_of_a_request_is_there() -> None:
    sources = "".join(
        inspect.getsource(function)
        for function in (
            RequestHandler.start,
            RequestHandler._handle_request,
            RequestHandler.finish_response,
            RequestHandler.connection_lost,
            RequestHandler.shutdown,
        )
    )
    for name in ("_task", "_finish", "_cancel"):
        assert f"request.{name}" in sources, f"aiohttp no longer uses {name}"
        assert name in dir(ClientExchange)
    assert issubclass(ClientExchange, RequestHooks)


def test_connection_reads_the_name_of_keep_alive_from_a_response() -> None:
    assert KEEP_ALIVE.keep_alive is True
    assert CLOSE.keep_alive is False
    assert "resp.keep_alive" in inspect.getsource(RequestHandler.start)
    assert {"_keep_alive", "_eof_sent"} <= set(dir(web.StreamResponse()))


async def test_writer_counts_what_it_wrote() -> None:
    writer = StreamWriter(BaseProtocol(asyncio.get_running_loop()), asyncio.get_running_loop())
    assert writer.output_size == 0
    writer.output_size += 5
    assert writer.output_size == 5
    # What the count is for: no second response behind one that has begun.
    assert "writer.output_size" in inspect.getsource(RequestHandler.handle_error)


def test_message_that_stands_in_for_one_that_could_not_be_read() -> None:
    assert (ERROR.method, ERROR.path, ERROR.should_close) == ("UNKNOWN", "/", True)
    assert not ERROR.raw_headers


def test_empty_body_is_always_at_its_end() -> None:
    assert EMPTY_PAYLOAD.is_eof()


# What the parser hands out.


async def test_message_keeps_case_order_and_bytes() -> None:
    raw = b"GET /%41%2f?q=%7e HTTP/1.1\r\nHost: a\r\nX-a:  1 \r\nx-A: \xff\r\n\r\n"
    ((message, payload),) = parse(raw)
    assert message.method == "GET"
    assert message.path == "/%41%2f?q=%7e"
    assert message.version == HttpVersion11
    assert message.raw_headers == ((b"Host", b"a"), (b"X-a", b"1"), (b"x-A", b"\xff"))
    assert message.should_close is False
    assert message.upgrade is False
    assert payload is EMPTY_PAYLOAD


@pytest.mark.parametrize(
    ("raw", "should_close"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n", False, id="1.1"),
        pytest.param(
            b"GET / HTTP/1.1\r\n" + HOST + b"Connection: x, close\r\n\r\n", True, id="1.1, close"
        ),
        pytest.param(b"GET / HTTP/1.0\r\n\r\n", True, id="1.0"),
    ],
)
async def test_should_close(raw: bytes, *, should_close: bool) -> None:
    ((message, _),) = parse(raw)
    assert message.should_close is should_close


async def test_1_0_is_told_from_1_1() -> None:
    ((message, _),) = parse(b"GET / HTTP/1.0\r\n\r\n")
    assert message.version == HttpVersion10


async def test_body_that_is_here_can_be_read_at_once() -> None:
    ((_, payload),) = parse(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nhello")
    assert payload.is_eof()
    assert payload.read_nowait() == b"hello"


async def test_body_is_not_decompressed() -> None:
    raw = (
        b"POST / HTTP/1.1\r\n"
        + HOST
        + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\0\0"
    )
    ((_, payload),) = parse(raw)
    assert payload.read_nowait() == b"\x1f\x8b\0\0"


async def test_exception_set_on_a_body_reaches_its_reader() -> None:
    ((_, payload),) = parse(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nhe")
    assert await payload.readany() == b"he"
    payload.set_exception(LookupError("ours"))
    with pytest.raises(LookupError, match="ours"):
        await payload.readany()


async def test_body_that_breaks_is_followed_by_something_else_and_never_ends() -> None:
    """What ``has_broken_body`` relies on."""
    loop = asyncio.get_running_loop()
    parser = HttpRequestParser(BaseProtocol(loop), loop, 2**16)
    messages, _, _ = parser.feed_data(
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    )
    with pytest.raises(HttpProcessingError):
        parser.feed_data(b"nonsense\r\n")
    assert not messages[0][1].is_eof()


# What it says when it gives up.


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        pytest.param(b"GET /" + b"a" * 200 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, id="target"),
        pytest.param(
            b"GET / HTTP/1.1\r\n" + HOST + b"X-A: " + b"a" * 200 + b"\r\n\r\n", 431, id="field"
        ),
        pytest.param(
            b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n" * 30 + b"\r\n", 431, id="number of fields"
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999\r\n\r\n",
            413,
            id="length beyond all bounds",
        ),
        pytest.param(b"nonsense\r\n\r\n", 400, id="anything else"),
    ],
)
async def test_error_is_told_apart(raw: bytes, status: int) -> None:
    with pytest.raises(BadHttpMessage) as caught:
        parse(raw)
    assert refusal_for(caught.value, LINE).status == status


async def test_long_line_names_the_limit_that_it_broke() -> None:
    with pytest.raises(LineTooLong) as caught:
        parse(b"GET /" + b"a" * 200 + b" HTTP/1.1\r\n" + HOST + b"\r\n")
    assert caught.value.args[1] == LINE
