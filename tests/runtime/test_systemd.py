"""What systemd hears of a proxy that it started with ``Type=notify``."""

import os
import select
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from proxy.runtime.systemd import SystemdNotifier
from tests.runtime.workers.worker_pools import RunningPool
from tests.support import ProxyProcess, ScriptedUpstream, eventually, one_route, subprocess_proxy
from tests.support.witness import Stopwatch


class Manager:
    """The service manager's end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.heard: list[dict[str, str]] = []

    def listen(self) -> list[dict[str, str]]:
        """All that was said so far, a mapping per datagram."""
        while True:
            try:
                datagram = self.sock.recv(4096).decode()
            except BlockingIOError:
                return self.heard
            self.heard.append(dict(line.split("=", 1) for line in datagram.splitlines()))

    async def hears(self, count: int) -> dict[str, str]:
        """The latest of that many messages."""
        await eventually(lambda: len(self.listen()) >= count, what=f"message {count}")
        assert len(self.heard) == count
        return self.heard[-1]


@contextmanager
def manager(address: str) -> Iterator[Manager]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(address)
        sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
        yield Manager(sock)


@asynccontextmanager
async def served(
    *arguments: str, environment: str = ""
) -> AsyncIterator[tuple[ProxyProcess, Manager]]:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/notify"
        with manager(path) as heard:
            async with (
                ScriptedUpstream() as upstream,
                subprocess_proxy(
                    one_route(upstream),
                    None,
                    *arguments,
                    first=f"export NOTIFY_SOCKET={path} {environment}",
                ) as proxy,
            ):
                yield proxy, heard


async def test_it_is_ready_once_it_serves() -> None:
    async with served() as (proxy, manager):
        assert await manager.hears(1) == {"READY": "1", "STATUS": "serving"}
        assert (await proxy.get("/")).status == 200


async def test_a_reload_begins_and_ends() -> None:
    async with served() as (proxy, manager):
        await manager.hears(1)
        before = time.monotonic_ns() // 1000
        proxy.signal(signal.SIGHUP)
        await manager.hears(3)
        _, begins, ends = manager.heard
        assert begins["RELOADING"] == "1"
        assert before <= int(begins["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        assert ends == {"READY": "1", "STATUS": "serving"}


async def test_a_reload_that_is_refused_ends_too() -> None:
    async with served() as (proxy, manager):
        await manager.hears(1)
        proxy.config.write_text("routes: 7")
        proxy.signal(signal.SIGHUP)
        shown = await manager.hears(3)
        assert shown == {"READY": "1", "STATUS": "serving; the last reload was refused"}


async def test_a_reload_by_watch_is_told_as_well() -> None:
    async with served("--watch") as (proxy, manager):
        await manager.hears(1)
        proxy.config.write_text(proxy.config.read_text() + "\n# changed\n")
        assert await manager.hears(3) == {"READY": "1", "STATUS": "serving"}
        assert manager.heard[1]["RELOADING"] == "1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_says_that_it_stops_and_nothing_more(number: signal.Signals) -> None:
    async with served() as (proxy, manager):
        await manager.hears(1)
        proxy.signal(number)
        assert await proxy.exit_status() == 0
        assert await manager.hears(2) == {"STOPPING": "1", "STATUS": "draining"}


async def test_a_manager_that_is_gone_is_no_reason_not_to_serve() -> None:
    nowhere = "export NOTIFY_SOCKET=/nowhere/notify"
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream), first=nowhere) as proxy,
    ):
        assert (await proxy.get("/")).status == 200
        await eventually(lambda: "the service manager was not told READY=1" in proxy.errors)


def test_an_abstract_socket_is_reached_by_its_name() -> None:
    name = f"holdfast-test-{time.monotonic_ns()}"
    with manager(f"\0{name}") as heard:
        SystemdNotifier(f"@{name}").ready()
        assert heard.listen() == [{"READY": "1", "STATUS": "serving"}]


def test_a_manager_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    with manager(str(tmp_path / "notify")):
        notifier = SystemdNotifier(str(tmp_path / "notify"))
        watch = Stopwatch()
        for _ in range(2000):
            notifier.ready()
        assert watch.seconds < 5


@pytest.mark.parametrize("address", [None, ""])
def test_without_a_manager_nothing_is_said(address: str | None) -> None:
    SystemdNotifier(address).ready()


def test_a_reload_before_the_start_or_after_the_end_does_not_make_it_ready(tmp_path: Path) -> None:
    with manager(str(tmp_path / "notify")) as heard:
        notifier = SystemdNotifier(str(tmp_path / "notify"))
        notifier.reloading()
        notifier.reloaded(succeeded=True)
        assert heard.listen() == []
        notifier.ready()
        notifier.reloading()
        notifier.stopping()
        notifier.reloaded(succeeded=True)
        assert [next(iter(message)) for message in heard.listen()] == [
            "READY",
            "RELOADING",
            "STOPPING",
        ]


# The watchdog.

ALIVE = {"WATCHDOG": "1"}


async def test_with_a_watchdog_it_says_that_it_is_alive_until_its_end() -> None:
    # $$ is the shell that becomes the proxy.
    environment = "WATCHDOG_USEC=100000 WATCHDOG_PID=$$"
    async with served(environment=environment) as (proxy, manager):
        await eventually(lambda: manager.listen().count(ALIVE) >= 3)
        assert manager.heard[0] == {"READY": "1", "STATUS": "serving"}
        proxy.signal(signal.SIGTERM)
        assert await proxy.exit_status() == 0
        assert {"STOPPING": "1", "STATUS": "draining"} in manager.listen()


async def test_a_process_that_hangs_says_nothing_more_and_an_abort_shows_where() -> None:
    async with served(environment="WATCHDOG_USEC=100000") as (proxy, manager):
        await eventually(lambda: manager.listen().count(ALIVE) >= 1)
        proxy.signal(signal.SIGSTOP)
        await eventually(lambda: _state(proxy.process.pid) == "T")
        before = len(manager.listen())
        with pytest.raises(AssertionError):
            await eventually(lambda: len(manager.listen()) > before, within=0.5)
        # As systemd does then.
        proxy.signal(signal.SIGABRT)
        proxy.signal(signal.SIGCONT)
        assert await proxy.exit_status() == -signal.SIGABRT
        assert "Fatal Python error: Aborted" in proxy.errors
        assert "run_until_signal" in proxy.errors or "runners.py" in proxy.errors


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_it_is_the_event_loop_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with manager(str(path)) as heard:
        SystemdNotifier(str(path), watchdog=0.04).keep_alive()
        await heard.hears(2)
        # The loop hangs here, for ten times as long as it may between two messages.
        assert select.select([heard.sock], [], [], 0.2) == ([], [], [])
        await heard.hears(3)


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_environment_says_how_often(environ: dict[str, str], seconds: float | None) -> None:
    address = {"NOTIFY_SOCKET": "/run/notify"}
    assert SystemdNotifier.from_environment(address | environ).watchdog == seconds
    assert SystemdNotifier.from_environment(environ).watchdog is None


async def test_a_worker_that_hangs_is_replaced_and_the_others_serve_on() -> None:
    environment = "WATCHDOG_USEC=1000000"
    async with served("--workers", "2", environment=environment) as (proxy, _):
        running = RunningPool(proxy)
        stuck, lively = await running.workers()
        os.kill(stuck.pid, signal.SIGSTOP)
        _, still = await running.until("ready", "ready", but=[stuck.pid])
        assert still.pid == lively.pid
        assert running.says(f"worker 0 (process {stuck.pid}) has not answered for")
        assert (await proxy.get("/")).status == 200
        # One that is not stopped altogether says where it hangs when it is aborted.
        os.kill(lively.pid, signal.SIGABRT)
        await running.until("ready", "ready", but=[stuck.pid, lively.pid])
        assert running.says("Fatal Python error: Aborted")
        assert running.says("worker_main.py")
