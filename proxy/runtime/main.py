"""The serving process: from its files, through signals and hot reload, to its exit status."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import uvloop

from proxy.app.lifecycle import App, CannotStart
from proxy.config import Loaded, load
from proxy.observe.history import keep_sampling
from proxy.observe.logs import process_log
from proxy.runtime.config_watch import OnRead, WatchedLoad, reload_when_outdated
from proxy.runtime.process_setup import prepare, settle, unfit_to_serve
from proxy.runtime.systemd import SystemdNotifier
from proxy.runtime.workers.cpu_quota import worker_count

_log = logging.getLogger("holdfast")


class Service(Protocol):
    """What serves in this process or under it: an :class:`App`, or a supervisor of several."""

    async def start(self) -> None:
        """Open every listener. Raises OSError and CannotStart."""

    async def reload(self) -> tuple[bool, Sequence[str]]:
        """Read the configuration again and put it in force, or leave all as it is."""

    def sample(self) -> None:
        """Remember what was counted up to this moment, for what happened lately."""

    async def drain(self) -> None:
        """Shut down gracefully: take no more requests, let those under way end, close all."""

    async def stop_at_once(self) -> None:
        """Cut off every request, and close everything."""


class CannotServe(Exception):
    """The process ends before it serves; the text is one line for the person who started it."""


def serve(
    files: tuple[str, ...],
    *,
    watch: bool,
    listen: tuple[str, ...],
    admin: str | None,
    workers: str | None,
) -> int:
    """Serve what *files* say; return the exit status.

    Raises :class:`CannotServe`, and :class:`proxy.config.ConfigError` if the files are at fault.
    """
    process_log.configure(sys.stderr)
    complaint = unfit_to_serve()
    if complaint is not None:
        raise CannotServe(complaint)
    prepare()

    def read(on_read: OnRead) -> Loaded:
        return load(
            files,
            os.environ,
            listen=listen or None,
            admin=admin,
            workers=workers,
            on_read=on_read,
        )

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        notifier = SystemdNotifier.from_environment(os.environ)
        return runner.run(run_until_signal(WatchedLoad(read), watch=watch, notifier=notifier))


async def run_until_signal(
    read: WatchedLoad, *, watch: bool, notifier: SystemdNotifier | None = None
) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status. SIGHUP reloads."""
    notifier = notifier or SystemdNotifier()
    with _failing_as("cannot start"):
        app = _one_process_or_several(read, notifier.watchdog)
    stop, stop_again = asyncio.Event(), asyncio.Event()
    reloads: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()

    def on_stop() -> None:
        (stop_again if stop.is_set() else stop).set()

    async def reload() -> None:
        notifier.reloading()
        succeeded, _ = await app.reload()
        notifier.reloaded(succeeded=succeeded)

    def on_reload() -> None:
        task = loop.create_task(reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGTERM, on_stop)
    loop.add_signal_handler(signal.SIGINT, on_stop)
    loop.add_signal_handler(signal.SIGHUP, on_reload)
    with _failing_as("cannot listen"):
        await app.start()
    settle()
    notifier.ready()
    notifier.keep_alive()
    sampling = loop.create_task(keep_sampling(app.sample))
    watching = loop.create_task(reload_when_outdated(read, reload)) if watch else None
    await stop.wait()
    notifier.stopping()
    if watching is not None:
        watching.cancel()
    status = await _drain(app, stop_again)
    sampling.cancel()
    return status


def _one_process_or_several(read: WatchedLoad, hung_after: float | None) -> Service:
    """Make an app in this process, or a supervisor with workers, as the settings say.

    A worker whose loop has not answered for *hung_after* seconds is replaced; None: no worker is.
    """
    loaded = read()
    workers = worker_count(loaded.settings)
    if workers > 1:
        from proxy.runtime.workers.supervisor import Supervisor  # noqa: PLC0415 - one process needs none

        entry = "proxy.runtime.workers.worker_main"
        return Supervisor(read, loaded, workers, entry, hung_after=hung_after)
    first = [loaded]
    # The app begins with the settings that this decision was made by.
    return App(lambda: first.pop() if first else read())


@contextmanager
def _failing_as(what: str) -> Iterator[None]:
    """Turn errors of the system into one line that says *what* they prevent."""
    try:
        yield
    except CannotStart as error:
        raise CannotServe(f"cannot start: {error}") from None
    except OSError as error:
        reason = error.strerror or error
        of = f" ({error.filename})" if error.filename else ""
        raise CannotServe(f"{what}: {reason}{of}") from None


async def _drain(app: Service, stop_again: asyncio.Event) -> int:
    """Drain; return 0 when every request could end, 1 when a second signal cut them off."""
    loop = asyncio.get_running_loop()
    draining = loop.create_task(app.drain())
    impatient = loop.create_task(stop_again.wait())
    await asyncio.wait((draining, impatient), return_when=asyncio.FIRST_COMPLETED)
    impatient.cancel()
    if draining.done():
        draining.result()
        return 0
    _log.warning("told to stop a second time: ending at once")
    draining.cancel()
    await asyncio.wait((draining,))
    await app.stop_at_once()
    return 1
