"""The serving process: from its files, through signals and hot reload, to its exit status."""

import asyncio
import logging
import os
import signal
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import uvloop

from proxy.admin.process import Reloaded
from proxy.app.lifecycle import App, CannotStart
from proxy.config import ConfigError, Loaded, load
from proxy.net.listen_socket import CannotListen
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

    async def reload(self) -> Reloaded:
        """Read the configuration again and put it in force, or leave all as it is."""

    def sample(self) -> None:
        """Remember what was counted up to this moment, for what happened lately."""

    async def drain(self) -> None:
        """Shut down gracefully: take no more requests, let those under way end, close all."""

    async def stop_at_once(self) -> None:
        """Cut off every request, and close everything."""


class CannotServe(Exception):
    """The process ends before it serves; the text is one line for the person who started it."""


def report(error: CannotServe | ConfigError) -> None:
    """Log why the process ends before it serves.

    Faults of the files are shown to a person at a terminal as ``holdfast check`` shows them.
    """
    if isinstance(error, CannotServe):
        _log.error("%s", error)
        return
    for found in error.report.diagnostics:
        if sys.stderr.isatty():
            print(found, file=sys.stderr)  # noqa: T201 - for a person
        else:
            _log.log(logging.WARNING if found.warning else logging.ERROR, "%s", found)


def serve(
    files: tuple[str, ...],
    *,
    upstream: str | None = None,
    watch: bool,
    listen: tuple[str, ...],
    admin: str | None,
    workers: str | None,
) -> int:
    """Serve what *files* say, or without a file all to *upstream*; return the exit status.

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
            upstream=upstream,
            on_read=on_read,
        )

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        notifier = SystemdNotifier.from_environment(os.environ)
        try:
            return runner.run(run_until_signal(WatchedLoad(read), watch=watch, notifier=notifier))
        finally:
            # All is over, and the loop takes its handlers back: one more Ctrl-C would be an error.
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))


async def run_until_signal(
    read: WatchedLoad, *, watch: bool, notifier: SystemdNotifier | None = None
) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status. SIGHUP reloads."""
    notifier = notifier or SystemdNotifier()
    stop, stop_again, reload_first = asyncio.Event(), asyncio.Event(), asyncio.Event()
    reloads: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()

    def on_stop() -> None:
        (stop_again if stop.is_set() else stop).set()

    # Before anything is opened that would have to be closed.
    loop.add_signal_handler(signal.SIGTERM, on_stop)
    loop.add_signal_handler(signal.SIGINT, on_stop)
    loop.add_signal_handler(signal.SIGHUP, reload_first.set)
    with _explained():
        app = _one_process_or_several(read, notifier.watchdog)
        if not await _start(app, stop):
            _log.info("told to stop before the start was over")
            return 0

    async def reload() -> None:
        notifier.reloading()
        ended = await app.reload()
        notifier.reloaded(succeeded=ended.in_force)

    def on_reload() -> None:
        task = loop.create_task(reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, on_reload)
    settle()
    notifier.ready()
    if reload_first.is_set():
        on_reload()
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


async def _start(app: Service, stop: asyncio.Event) -> bool:
    """Start *app*; return False if *stop* was set meanwhile, and nothing is open then."""
    loop = asyncio.get_running_loop()
    starting, stopping = loop.create_task(app.start()), loop.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
    if starting.cancelled():
        return False
    starting.result()
    return True


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
def _explained() -> Iterator[None]:
    """Turn what prevents the start into one line for the person who started the process."""
    try:
        yield
    except CannotListen as error:
        raise CannotServe(str(error)) from None
    except CannotStart as error:
        raise CannotServe(f"cannot start: {error}") from None
    except ssl.SSLError:
        raise CannotServe(
            "cannot start: a certificate or key has changed and cannot be used, holdfast check "
            "says which"
        ) from None
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        what = f"cannot read {error.filename} ({reason})" if error.filename else reason
        raise CannotServe(f"cannot start: {what}") from None


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
