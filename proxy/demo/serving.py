"""The demo upstream on a socket, until a signal ends it."""

import asyncio
import errno
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from aiohttp import web

from proxy.demo.upstream import Faults, make_app

_LAST_PORT = 65_535


class DemoFailed(Exception):
    """The demo could not start or go on. The message says what to do about it."""


async def run_upstream(listen: str, seed: int, faults: Faults) -> None:
    """Serve the upstream until SIGINT or SIGTERM, with *faults* for all paths, known or not."""
    stop = stop_event()
    async with serving(listen, make_app(time.monotonic, seed, faults)) as address:
        print(f"The upstream listens on http://{address}/, which lists its paths.", flush=True)
        await stop.wait()


def stop_event() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


@asynccontextmanager
async def serving(listen: str, application: web.Application) -> AsyncIterator[str]:
    """Serve *application* on ``HOST:PORT``; yield the address, with the port in place of 0."""
    host, port = split(listen)
    require_free(listen, "--listen")
    # A client that lingers on /delay or /stream must not delay Ctrl-C.
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound = runner.addresses[0][1]
        yield f"{listen.rpartition(':')[0]}:{bound}"
    finally:
        await runner.cleanup()


def require_free(address: str, where: str) -> None:
    """Raise DemoFailed, with what to do, if the address is in use; *where* it is written."""
    host, port = split(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family)) as probe:
        # Set as servers do: a port whose last connections still linger is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            if error.errno == errno.EADDRINUSE:
                reason = "another process listens there, stop it or write another port"
            raise DemoFailed(f"cannot listen on {address}: {reason} ({where})") from error


def split(address: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``. Raises DemoFailed."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > _LAST_PORT:
        shown = port if port.isdigit() and len(port) <= len(str(_LAST_PORT)) and not host else 9000
        raise DemoFailed(f"{address!r} is no address, write 127.0.0.1:{shown} (say)")
    return host.strip("[]"), int(port)
