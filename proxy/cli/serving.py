"""The serving process: from its files to its exit status."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import click

from proxy.app import App, log_to, unfit_to_serve
from proxy.cli.process import event_loop_factory, prepare, settle
from proxy.cli.watch import content_changed
from proxy.config import ConfigError, Loaded, load

_log = logging.getLogger("holdfast")


def serve(
    files: tuple[str, ...], *, watch: bool, listen: tuple[str, ...], admin: str | None
) -> int:
    """Serve what *files* say; returns the exit status."""
    log_to(sys.stderr)
    complaint = unfit_to_serve()
    if complaint is not None:
        raise click.ClickException(complaint)
    prepare()
    paths = [Path(name) for name in files]

    def read() -> Loaded:
        return load(paths, os.environ, listen=listen or None, admin=admin)

    try:
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            return runner.run(_run(read, watch=watch))
    except ConfigError as error:
        for finding in error.report.findings:
            click.echo(str(finding), err=True)
        return 1
    except OSError as error:
        raise click.ClickException(f"cannot listen: {error.strerror or error}") from None


async def _run(read: Callable[[], Loaded], *, watch: bool) -> int:
    app = App(read)
    stop, stop_again = asyncio.Event(), asyncio.Event()
    reloads: set[asyncio.Task[object]] = set()
    loop = asyncio.get_running_loop()

    def on_stop() -> None:
        (stop_again if stop.is_set() else stop).set()

    def reload() -> None:
        task = loop.create_task(app.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGTERM, on_stop)
    loop.add_signal_handler(signal.SIGINT, on_stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    await app.start()
    settle()
    watching = loop.create_task(content_changed(lambda: app.watched, reload)) if watch else None
    await stop.wait()
    if watching is not None:
        watching.cancel()
    return await _drain(app, stop_again)


async def _drain(app: App, stop_again: asyncio.Event) -> int:
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
