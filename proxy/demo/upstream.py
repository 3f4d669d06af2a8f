"""An HTTP upstream that fails, delays and rate-limits when it is asked to.

The upstream misbehaves on request only, so whatever you see through the proxy can be seen
again: counts start over after a success, and chance comes from a seed. All that it
remembers is bounded.
"""

import asyncio
import json
import re
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import ceil
from random import Random

from aiohttp import WSMsgType, web
from aiohttp.typedefs import Handler, Middleware

HELP = """\
The demo upstream. It misbehaves on request:

  /echo                      what arrived, as JSON: method, path, headers, body
  /status/503                that status; ?retry_after=2 adds the header
  /delay/1500ms              200 after that long, at most 60s
  /flaky?fail=2&id=a         503 twice for this id, then 200; ?chance=0.3 fails at random
  /orders                    POST places an order, each time another one
  /pay                       POST books a payment, each time another one, and answers 503
  /bank/pay                  the same, but an Idempotency-Key is booked once and then gets 200
  /limited                   two a second; beyond that 429 with Retry-After
  /reset                     drops the connection without an answer
  /stream?ticks=10&every=1s  server-sent events
  /bytes/1MiB                a body of that size, at most 1GiB
  /ws                        a WebSocket that echoes
"""

MAX_ECHO = 1024 * 1024
MAX_DELAY = 60.0
MAX_BYTES = 1024**3
MAX_TICKS = 1000
MAX_IDS = 1000

_UNITS = {
    "ms": 0.001,
    "s": 1,
    "B": 1,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
}
_CHUNK = bytes(64 * 1024)


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong with every request, whatever its path; the page that lists paths aside."""

    errors: float = 0.0
    """Share of the requests that get :attr:`status`."""
    status: int = 503
    resets: float = 0.0
    """Share of the requests whose connection is closed without an answer."""
    delay: float = 0.0
    """Seconds before each answer."""


def make_app(
    clock: Callable[[], float], seed: int = 0, faults: Faults | None = None
) -> web.Application:
    """Make the upstream as an application. *clock* gives monotonic seconds.

    With *faults* it stands for an API of any kind: paths that it does not know are echoed, too.
    """
    upstream = _Upstream(clock, Random(seed))
    middlewares = [] if faults is None else [_failing(faults, Random(seed))]
    app = web.Application(client_max_size=MAX_ECHO, middlewares=middlewares)
    app.router.add_get("/", upstream.help)
    app.router.add_get("/stream", upstream.stream)
    app.router.add_get("/ws", upstream.websocket)
    app.router.add_route("*", "/echo", upstream.echo)
    app.router.add_route("*", "/status/{code}", upstream.status)
    app.router.add_route("*", "/delay/{duration}", upstream.delay)
    app.router.add_route("*", "/flaky", upstream.flaky)
    app.router.add_post("/orders", upstream.orders)
    app.router.add_post("/pay", upstream.pay)
    app.router.add_post("/bank/pay", upstream.bank)
    app.router.add_route("*", "/limited", upstream.limited)
    app.router.add_route("*", "/reset", upstream.reset)
    app.router.add_route("*", "/bytes/{size}", upstream.bytes)
    if faults is not None:
        app.router.add_route("*", "/{path:.*}", upstream.echo)
    return app


def _failing(faults: Faults, random: Random) -> Middleware:
    """Return what makes requests fail before they are handled."""

    @web.middleware
    async def fail(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/":
            return await handler(request)
        await asyncio.sleep(faults.delay)
        roll = random.random()
        if roll < faults.resets:
            return _cut(request)
        if roll < faults.resets + faults.errors:
            return web.Response(status=faults.status, text="bad luck\n")
        return await handler(request)

    return fail


def _cut(request: web.Request) -> web.Response:
    """Close the connection; the response goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


class _Upstream:
    """The handlers, and the little that they remember between requests."""

    def __init__(self, clock: Callable[[], float], random: Random) -> None:
        self._clock = clock
        self._random = random
        self._failures: OrderedDict[str, int] = OrderedDict()
        self._admitted: deque[float] = deque(maxlen=2)
        self._orders = count(1)
        self._payments = count(1)
        self._paid: OrderedDict[str, int] = OrderedDict()
        """Payments by the key under which the bank booked them."""

    async def help(self, _request: web.Request) -> web.Response:
        return web.Response(text=HELP)

    async def echo(self, request: web.Request) -> web.Response:
        body = await request.read()
        seen = {
            "method": request.method,
            "path": request.raw_path,
            "headers": [[name, value] for name, value in request.headers.items()],
            "body": body.decode(errors="replace"),
        }
        return web.json_response(seen, dumps=lambda value: json.dumps(value, indent=2) + "\n")

    async def status(self, request: web.Request) -> web.Response:
        code = _whole(request.match_info["code"], "status", least=200, most=599)
        headers = {}
        if "retry_after" in request.query:
            seconds = _whole(request.query["retry_after"], "retry_after", least=0, most=86_400)
            headers["Retry-After"] = str(seconds)
        return web.Response(status=code, headers=headers)

    async def delay(self, request: web.Request) -> web.Response:
        seconds = _duration(request.match_info["duration"])
        await asyncio.sleep(seconds)
        return web.Response(text=f"after {seconds:g} s\n")

    async def flaky(self, request: web.Request) -> web.Response:
        """Fail the first ``fail`` requests of each ``id``, or any by ``chance``."""
        if self._random.random() < _chance(request.query.get("chance", "0")):
            return web.Response(status=503, text="bad luck\n")
        fail = _whole(request.query.get("fail", "0"), "fail", least=0, most=1000)
        caller = request.query.get("id", "")
        failed = self._failures.pop(caller, 0)
        if failed >= fail:  # forgotten now, so that the same line shows the same thing again
            return web.Response(text=f"recovered after {failed} failures\n")
        self._failures[caller] = failed + 1
        if len(self._failures) > MAX_IDS:
            self._failures.popitem(last=False)
        return web.Response(status=503, text=f"failure {failed + 1} of {fail}\n")

    async def orders(self, request: web.Request) -> web.Response:
        """Place an order, however often it was placed before."""
        what = (await request.text())[:100]
        return web.Response(status=201, text=f"order {next(self._orders)}: {what}\n")

    async def pay(self, _request: web.Request) -> web.Response:
        """Book a payment and lose the answer, as a gateway does whose worker was too slow."""
        return self._booked(next(self._payments))

    async def bank(self, request: web.Request) -> web.Response:
        """Book a payment and lose the answer, unless its key was booked before."""
        key = request.headers.get("Idempotency-Key", "")
        if key in self._paid:
            return web.Response(text=f"payment {self._paid[key]}, booked once\n")
        number = next(self._payments)
        if key:
            self._paid[key] = number
            if len(self._paid) > MAX_IDS:
                self._paid.popitem(last=False)
        return self._booked(number)

    def _booked(self, number: int) -> web.Response:
        return web.Response(status=503, text=f"payment {number} is booked, for all you know\n")

    async def limited(self, _request: web.Request) -> web.Response:
        """Let two requests through in any second."""
        now = self._clock()
        full = len(self._admitted) == self._admitted.maxlen
        if full and (wait := self._admitted[0] + 1 - now) > 0:
            headers = {"Retry-After": str(ceil(wait))}
            return web.Response(status=429, headers=headers, text="slow down\n")
        self._admitted.append(now)
        return web.Response(text="within the limit\n")

    async def reset(self, request: web.Request) -> web.Response:
        return _cut(request)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        ticks = _whole(request.query.get("ticks", "10"), "ticks", least=1, most=MAX_TICKS)
        every = _duration(request.query.get("every", "1s"))
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = "text/event-stream"
        await response.prepare(request)
        for tick in range(1, ticks + 1):
            if tick > 1:
                await asyncio.sleep(every)
            await response.write(b"event: tick\ndata: %d\n\n" % tick)
        return response

    async def bytes(self, request: web.Request) -> web.StreamResponse:
        left = _size(request.match_info["size"])
        response = web.StreamResponse()
        response.content_length = left
        await response.prepare(request)
        while left > 0 and request.method != "HEAD":
            await response.write(_CHUNK[:left])
            left -= len(_CHUNK)
        return response

    async def websocket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await socket.send_str(message.data)
            elif message.type is WSMsgType.BINARY:
                await socket.send_bytes(message.data)
        return socket


def _whole(text: str, what: str, *, least: int, most: int) -> int:
    # isascii too: int() reads "٣" and refuses "²", though both are digits to isdigit().
    if text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most:
        return int(text)
    raise web.HTTPBadRequest(text=f"{what} must be a number from {least} to {most}\n")


def _chance(text: str) -> float:
    try:
        chance = float(text)
    except ValueError:
        chance = -1
    if 0 <= chance <= 1:
        return chance
    raise web.HTTPBadRequest(text="chance must be a number from 0 to 1\n")


def _duration(text: str) -> float:
    return _quantity(text, "ms|s", MAX_DELAY, "a duration looks like 250ms or 2s, at most 60s")


def _size(text: str) -> int:
    expected = "a size looks like 512B, 64KiB or 1MiB, at most 1GiB"
    return int(_quantity(text, "B|KiB|MiB|GiB", MAX_BYTES, expected))


def _quantity(text: str, units: str, most: float, expected: str) -> float:
    match = re.fullmatch(rf"([0-9]{{1,9}})({units})", text)
    if match and (quantity := int(match[1]) * _UNITS[match[2]]) <= most:
        return quantity
    raise web.HTTPBadRequest(text=f"{expected}\n")
