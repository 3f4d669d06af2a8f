"""The proxy under test: in this process, or in one of its own for signals."""

import asyncio
import gc
import json
import logging
import os
import re
import signal
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

from aiohttp.web_app import _cached_build_middleware

from proxy.app.lifecycle import App
from proxy.config import load
from proxy.core.clock import Clock
from proxy.observe.metrics import families
from proxy.observe.status import process_status
from tests.support.client import RawClient
from tests.support.messages import Response
from tests.support.upstream import ScriptedUpstream
from tests.support.virtual import in_virtual_time, virtual_clock
from tests.support.waiting import PATIENCE, eventually
from tests.support.wire import own_descriptors

ROOT = Path(__file__).parent.parent.parent
_CONFIG = "holdfast.yaml"
_USUAL = {
    "listen": "127.0.0.1:0",
    "admin": "127.0.0.1:0",
    "access_log": "all",
    "drain_timeout": "2s",
}
_OURS = (str(ROOT / "proxy"), f"{os.sep}aiohttp{os.sep}")

LogRecord = dict[str, Any]


REFUSES_503 = "refused: [421, 425, 429, 503]"
"""An upstream's option: its 503 says that it did not do the work."""


def one_route(
    upstream: ScriptedUpstream | str, route: str = "", *, options: str = "", top: str = ""
) -> str:
    """A file with one route for everything to *upstream* (or its URL).

    More lines of YAML go into the route, the upstream (*options*) or the *top* of the file.
    """
    url = upstream if isinstance(upstream, str) else upstream.url
    return (
        f"{top}\nupstreams:\n  scripted:\n    urls: [{url}]\n{indent(options, '    ')}\n"
        f"routes:\n  - name: all\n    match: /**\n    upstream: scripted\n{indent(route, '    ')}\n"
    )


# Names in tests have no quotes in them; that the text is in order, tests/prometheus see to.
_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Metrics:
    """A reading of ``/metrics``."""

    def __init__(self, text: str) -> None:
        self._values = {
            (found["name"], frozenset(_LABEL.findall(found["labels"] or ""))): float(found["value"])
            for found in _SAMPLE.finditer(text)
        }

    def total(self, name: str, /, **labels: str) -> float:
        """The sum of all samples called *name* whose labels include *labels*."""
        wanted = labels.items()
        found = [
            value
            for (sample, its_labels), value in self._values.items()
            if sample == name and wanted <= dict(its_labels).items()
        ]
        return sum(found)


class ServedBy:
    """Where a proxy listens, and what one can learn about it from outside."""

    def __init__(self, bound: list[str], admin_bound: list[str], log: Path) -> None:
        self.bound = bound
        """Addresses for clients, as ``host:port`` or ``unix:/path``."""
        self.port = _port(bound)
        self.admin_port = _port(admin_bound)
        self._log = log

    def client(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        receive_buffer: int | None = None,
        source: str = "",
    ) -> RawClient:
        """A client to be entered with ``async with``; *source* is its own address."""
        return RawClient(self.port, tls=tls, receive_buffer=receive_buffer, source=source)

    async def get(self, target: str = "/", *fields: str) -> Response:
        """GET over a connection of its own."""
        async with self.client() as client:
            return await client.get(target, *fields)

    async def metrics(self) -> Metrics:
        """The metrics as the admin listener shows them now."""
        return Metrics((await self.admin("GET", "/metrics")).body.decode())

    async def admin(self, method: str, target: str, *fields: str) -> Response:
        """A request to the admin listener."""
        async with RawClient(self.admin_port) as client:
            return await client.request(method, target, "Host: localhost", *fields)

    @property
    def log(self) -> list[LogRecord]:
        """The access log so far; lines come up to 20 ms after their requests."""
        return [json.loads(line) for line in self._log_lines()]

    def _log_lines(self) -> list[str]:
        # Whoever writes may be in the middle of the last line.
        return self._log.read_text().split("\n")[:-1]

    async def logged(self, count: int = 1) -> list[LogRecord]:
        """The access log, once it has *count* lines."""
        await eventually(
            lambda: len(self._log_lines()) >= count, what=f"line {count} of the access log"
        )
        return self.log


class RunningProxy(ServedBy):
    """A proxy in this process."""

    def __init__(self, app: App, config: Path, log: Path) -> None:
        super().__init__(app.bound, app.admin_bound, log)
        self.app = app
        self.config = config
        """The file; write to it and ask ``admin("POST", "/-/reload")`` to reload."""
        self.complaints: list[str] = []
        """Errors that were logged. A test that expects one takes it out."""

    def _log_lines(self) -> list[str]:
        if in_virtual_time():
            # The thread that writes lives in real time: let it write what it was given.
            lines, end = self.app._lines, time.monotonic() + PATIENCE
            while lines._settled < lines._accepted - sum(map(len, lines._lines)):
                assert time.monotonic() < end, "the access log was not written"
                time.sleep(0.0001)
        return super()._log_lines()

    def status(self) -> dict[str, object]:
        """The part of ``/status`` that is about requests, at this moment."""
        snapshot = self.app.snapshot()
        return process_status(snapshot, self.app.last_minute(snapshot), self.app.loaded.store_url)

    @property
    def open_upstream_connections(self) -> int:
        """Connections to upstreams, idle ones included."""
        addresses: dict[str, list[dict[str, int]]] = self.status()["addresses"]  # type: ignore[assignment]  # JSON
        return sum(pool["open"] for pools in addresses.values() for pool in pools)

    @property
    def idle_upstream_connections(self) -> int:
        """Connections to upstreams that wait in a pool."""
        addresses: dict[str, list[dict[str, int]]] = self.status()["addresses"]  # type: ignore[assignment]  # JSON
        return sum(pool["idle"] for pools in addresses.values() for pool in pools)

    @property
    def waiting_requests(self) -> int:
        """Requests that wait between two attempts."""
        return len(self.app._retry_waits)

    @property
    def waiting_for_keys(self) -> int:
        """Requests that wait for another one with the same idempotency key."""
        keys: dict[str, int] = self.status()["keys"]  # type: ignore[assignment]  # JSON
        return keys["waiting"]

    @property
    def store_state(self) -> str:
        """``up`` or ``down``, as the proxy sees its store; memory is always up."""
        shared = self.app._store.shared
        return "up" if shared is None else shared.state

    @property
    def client_connections(self) -> int:
        """Connections of clients."""
        return self.app.snapshot()[families.CONNECTIONS]


@asynccontextmanager
async def running(
    config: str,
    files: Mapping[str, str] | None = None,
    *,
    upon: Sequence[Path] = (),
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[RunningProxy]:
    """The proxy, started from the text of a configuration file in a folder of its own.

    *files* are written beside it; files that are there already and are read before it
    are named with *upon*. What the text does not say about ``listen``,
    ``admin``, ``access_log`` and ``drain_timeout`` is filled in: free ports of
    127.0.0.1, everything logged, two seconds. At the end it is drained, and the
    test fails if anything is left or an error was logged.
    """
    before = _Held(_open_files(), _our_tasks())
    async with _serving(config, files, upon=upon, clock=clock, environ=environ) as proxy:
        yield proxy
    await _assert_nothing_left(proxy, before)
    assert proxy.complaints == []


@asynccontextmanager
async def running_together(
    *configs: str,
    upon: Sequence[Path] = (),
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[list[RunningProxy]]:
    """As :func:`running`, but several: what is left is looked for when all have ended."""
    before = _Held(_open_files(), _our_tasks())
    async with AsyncExitStack() as stack:
        proxies = [
            await stack.enter_async_context(
                _serving(config, upon=upon, clock=clock, environ=environ)
            )
            for config in configs
        ]
        yield proxies
    for proxy in proxies:
        await _assert_nothing_left(proxy, before)
        assert proxy.complaints == []


@asynccontextmanager
async def _serving(
    config: str,
    files: Mapping[str, str] | None = None,
    *,
    upon: Sequence[Path] = (),
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[RunningProxy]:
    with tempfile.TemporaryDirectory() as name, _complaints() as complaints:
        folder = Path(name)
        path = _write_config(folder, config, files or {})
        log = folder / "access.log"
        log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            if clock is None and in_virtual_time():
                clock = virtual_clock()
            app = App(lambda: load([*upon, path], environ or {}), clock, log_fd)
            await app.start()
        finally:
            os.close(log_fd)
        proxy = RunningProxy(app, path, log)
        proxy.complaints = complaints
        try:
            yield proxy
        except BaseException:
            await app.stop_at_once()
            raise
        await app.drain()


class ProxyProcess(ServedBy):
    """A proxy in a process of its own."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        folder: Path,
        bound: list[str],
        admin_bound: list[str],
    ) -> None:
        super().__init__(bound, admin_bound, folder / "stdout")
        self.process = process
        self.config = folder / _CONFIG
        self._folder = folder

    @property
    def errors(self) -> str:
        """Everything on stderr so far."""
        return (self._folder / "stderr").read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def exit_status(self, within: float = PATIENCE) -> int:
        """Its exit status, once it has ended."""
        async with asyncio.timeout(within):
            return await self.process.wait()


@asynccontextmanager
async def subprocess_proxy(
    config: str | None,
    files: Mapping[str, str] | None = None,
    *arguments: str,
    first: str = "",
    program: Sequence[str] = ("proxy",),
) -> AsyncIterator[ProxyProcess]:
    """``python -m proxy run`` with the same filling-in as :func:`running`, killed at the end.

    Without a *config*, *arguments* say what to serve.
    *first* is what the shell that starts it shall do before, such as ``ulimit -n 64``. Another
    *program* is a module that does what ``proxy`` does, and arguments of its own.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        named = () if config is None else ("-c", str(_write_config(folder, config, files or {})))
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            process = await asyncio.create_subprocess_exec(
                *("sh", "-c", f'{first or ":"}; exec "$@"', "sh"),
                *(sys.executable, "-m", *program, "run", *named, *arguments),
                cwd=ROOT,
                stdout=out,
                stderr=err,
            )
        try:
            yield ProxyProcess(process, folder, *await _addresses(process, folder / "stderr"))
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _addresses(
    process: asyncio.subprocess.Process, errors: Path
) -> tuple[list[str], list[str]]:
    def said(what: str) -> list[str] | None:
        found = re.search(rf'"{what} on ([^"]+)"', errors.read_text())
        assert process.returncode is None, errors.read_text()
        return found[1].split(", ") if found else None

    bound = await eventually(lambda: said("listening"), within=2 * PATIENCE, what="listening")
    return bound or [], said("admin") or []


def _write_config(folder: Path, config: str, files: Mapping[str, str]) -> Path:
    usual = [f"{key}: {value}" for key, value in _USUAL.items() if not _says(config, key)]
    path = folder / _CONFIG
    path.write_text("\n".join((*usual, config)))
    for file, content in files.items():
        (folder / file).write_text(content)
    return path


def _says(config: str, key: str) -> bool:
    return re.search(rf"^{key}:", config, re.MULTILINE) is not None


def _port(bound: list[str]) -> int:
    ports = [int(address.rpartition(":")[2]) for address in bound if address[:5] != "unix:"]
    return ports[0] if ports else 0


# What must not be left.


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collects what is logged as an error, by us or on our behalf."""
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    handler = Handler(logging.ERROR)
    loggers = [logging.getLogger(name) for name in ("holdfast", "aiohttp", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield found
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


@dataclass(frozen=True, slots=True)
class _Held:
    """What this process has of the things that a proxy must not leave behind."""

    files: set[str]
    tasks: set[asyncio.Task[Any]]


async def _assert_nothing_left(proxy: RunningProxy, before: _Held) -> None:
    await eventually(lambda: proxy.open_upstream_connections == 0, what="closing every pool")
    await eventually(lambda: proxy.client_connections == 0, what="closing every client")
    try:
        await eventually(lambda: not _our_tasks() - before.tasks)
    except AssertionError:
        raise AssertionError(f"tasks are left: {_our_tasks() - before.tasks}") from None
    try:
        await eventually(lambda: not _open_files() - before.files)
    except AssertionError:
        raise AssertionError(f"files are left: {_open_files() - before.files}") from None
    # aiohttp remembers the handlers of admin sites, and so whole apps, of which a process has one.
    _cached_build_middleware.cache_clear()
    # A future whose exception nobody took complains when it is collected: now.
    gc.collect()


def _our_tasks() -> set[asyncio.Task[Any]]:
    return {
        task
        for task in asyncio.all_tasks()
        if (code := getattr(task.get_coro(), "cr_code", None))
        and any(part in code.co_filename for part in _OURS)
    }


def _open_files() -> set[str]:
    """Descriptors with what they stand for, where the system can tell; none of the test's own."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return set()
    found = set()
    own = own_descriptors()
    for entry in folder.iterdir():
        if int(entry.name) in own:
            continue
        # All but the one that lists the folder, which is gone by now.
        with suppress(OSError):
            found.add(f"{entry.name} {entry.readlink()}")
    # libuv keeps one in reserve, from a loop's first connection to its end.
    return {file for file in found if not file.endswith("/dev/null")}
