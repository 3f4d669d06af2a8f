import asyncio
import io
import json
import logging
import ssl
from collections.abc import Iterator

import pytest
from aiohttp import web
from aiohttp.http_exceptions import BadStatusLine
from aiohttp.test_utils import TestServer

from proxy.observe.logs.process_log import configure

NAMES = ("holdfast", "aiohttp", "asyncio")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(each, each.handlers, each.level, each.propagate) for each in loggers]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers = handlers
        logger.setLevel(level)
        logger.propagate = propagate


def test_one_json_object_per_line() -> None:
    stream = io.StringIO()
    configure(stream)
    logging.getLogger("holdfast").info("listening on %s", "127.0.0.1:8080\nforged")
    line = json.loads(stream.getvalue())
    assert stream.getvalue().count("\n") == 1
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "holdfast",
        "message": "listening on 127.0.0.1:8080\nforged",
    }


def test_plain_text_for_a_person() -> None:
    stream = Terminal()
    configure(stream)
    logging.getLogger("holdfast").warning("draining")
    assert stream.getvalue().endswith(" WARNING draining\n")


def test_a_module_below_ours_needs_no_setting() -> None:
    stream = io.StringIO()
    configure(stream)
    logging.getLogger("holdfast.admin").info("hello")
    assert json.loads(stream.getvalue())["logger"] == "holdfast.admin"


def test_an_error_of_our_own_keeps_its_traceback() -> None:
    stream = io.StringIO()
    configure(stream)
    error = ConnectionResetError("the store is gone")
    logging.getLogger("holdfast").error("cannot go on", exc_info=error)
    assert "the store is gone" in json.loads(stream.getvalue())["exception"]


def test_to_configure_again_moves_the_log_instead_of_doubling_it() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure(first)
    configure(second)
    logging.getLogger("holdfast").info("once")
    assert (first.getvalue(), second.getvalue().count("once")) == ("", 1)


@pytest.mark.parametrize(
    ("name", "error", "logged"),
    [
        pytest.param("aiohttp.server", BadStatusLine("x"), False, id="a malformed request"),
        pytest.param("asyncio", ConnectionResetError(), False, id="a client that left"),
        pytest.param("asyncio", ssl.SSLError(1, "x"), False, id="a bad handshake"),
        pytest.param("aiohttp.server", KeyError("x"), True, id="a bug of ours"),
        pytest.param("asyncio", RuntimeError("x"), True, id="a task that died"),
    ],
)
def test_clients_cannot_fill_the_log_with_tracebacks(
    *, name: str, error: Exception, logged: bool
) -> None:
    stream = io.StringIO()
    configure(stream)
    logging.getLogger(name).error("something happened", exc_info=error)
    assert bool(stream.getvalue()) == logged


async def test_a_malformed_request_to_a_real_server_leaves_no_trace() -> None:
    stream = io.StringIO()
    configure(stream)
    async with TestServer(web.Application()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"this is not HTTP\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.0 400")
        writer.close()
        await writer.wait_closed()
    assert stream.getvalue() == ""
