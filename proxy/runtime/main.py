"""The serving process: from its files to its exit status."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import uvloop

from proxy.app.lifecycle import App, CannotStart, log_to, unfit_to_serve
from proxy.config import ConfigError, Loaded, load
from proxy.runtime.config_watch import OnRead, WatchedLoad, reload_when_outdated
from proxy.runtime.process_setup import prepare, settle
from proxy.runtime.systemd import SystemdNotifier
from proxy.runtime.workers.cpu_quota import worker_count

if TYPE_CHECKING:
    from proxy.runtime.workers.supervisor import Supervisor

_log = logging.getLogger("holdfast")


def serve(
    files: tuple[str, ...],
    *,
    watch: bool,
    listen: tuple[str, ...],
    admin: str | None,
    workers: str | None,
) -> int:
    """Serve what *files* say; returns the exit status."""
    log_to(sys.stderr)
    complaint = unfit_to_serve()
    if complaint is not None:
        raise click.ClickException(complaint)
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

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            notifier = SystemdNotifier(os.environ.get("NOTIFY_SOCKET"))
            return runner.run(run_until_told(WatchedLoad(read), watch=watch, notifier=notifier))
    except ConfigError as error:
        for finding in error.report.diagnostics:
            click.echo(str(finding), err=True)
        return 1


async def run_until_told(
    read: WatchedLoad, *, watch: bool, notifier: SystemdNotifier | None = None
) -> int:
    """Serve until a signal says otherwise; returns the exit status."""
    notifier = notifier or SystemdNotifier()
    with _failing_as("cannot start"):
        app = _one_or_several(read)
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
    watching = loop.create_task(reload_when_outdated(read, reload)) if watch else None
    await stop.wait()
    notifier.stopping()
    if watching is not None:
        watching.cancel()
    return await _drain(app, stop_again)


def _one_or_several(read: WatchedLoad) -> "App | Supervisor":
    """A proxy in this process, or in workers under it."""
    loaded = read()
    workers = worker_count(loaded.settings)
    if workers > 1:
        from proxy.runtime.workers.supervisor import Supervisor  # noqa: PLC0415 - one process needs none

        return Supervisor(read, loaded, workers, entry="proxy.runtime.workers.worker_main")
    first = [loaded]
    # Read already: the app begins with what the decision was made by.
    return App(lambda: first.pop() if first else read())


@contextmanager
def _failing_as(what: str) -> Iterator[None]:
    """Turn the system's refusals into one line that says *what* they prevent."""
    try:
        yield
    except CannotStart as error:
        raise click.ClickException(f"cannot start: {error}") from None
    except OSError as error:
        reason = error.strerror or error
        of = f" ({error.filename})" if error.filename else ""
        raise click.ClickException(f"{what}: {reason}{of}") from None


async def _drain(app: "App | Supervisor", stop_again: asyncio.Event) -> int:
    """Exit status: 0 when everything could end, 1 when a second signal cut it short."""
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
