"""``holdfast run``: serve until told to stop."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from proxy.app import App
    from proxy.config import Loaded

_EXAMPLE = "\b\nExample:\n  holdfast run -c holdfast.yaml --watch"


@click.command(epilog=_EXAMPLE)
@click.option(
    "-c",
    "--config",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="The configuration; may be repeated: mappings merge, the rest replaces.",
)
@click.option("--watch", is_flag=True, help="Reload when the content of a file changes.")
@click.option("--listen", multiple=True, metavar="ADDRESS", help="Instead of the file's listen.")
@click.option("--admin", metavar="ADDRESS", help="Instead of the file's admin.")
def run(files: tuple[str, ...], *, watch: bool, listen: tuple[str, ...], admin: str | None) -> None:
    """Serve. SIGHUP reloads, SIGTERM drains, a second SIGTERM ends at once."""
    # Imported here, so that the other commands start quickly.
    from proxy.cli.process import event_loop_factory, prepare
    from proxy.config import ConfigError, load
    from proxy.observe import logs

    logs.configure(sys.stderr)
    complaint = prepare()
    if complaint is not None:
        raise click.ClickException(complaint)
    paths = [Path(name) for name in files]

    def read() -> "Loaded":
        return load(paths, os.environ, listen=listen or None, admin=admin)

    try:
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            status = runner.run(_serve(read, watch=watch))
    except ConfigError as error:
        for finding in error.report.findings:
            click.echo(str(finding), err=True)
        raise SystemExit(1) from None
    except OSError as error:
        raise click.ClickException(f"cannot listen: {error.strerror or error}") from None
    raise SystemExit(status)


async def _serve(read: "Callable[[], Loaded]", *, watch: bool) -> int:
    from proxy.app import App
    from proxy.cli.process import settle
    from proxy.cli.watch import content_changed

    app = App(read)
    stop, stop_again = asyncio.Event(), asyncio.Event()
    background: set[asyncio.Task[object]] = set()

    def on_stop() -> None:
        (stop_again if stop.is_set() else stop).set()

    def on_hup() -> None:
        task = loop.create_task(app.reload())
        background.add(task)
        task.add_done_callback(background.discard)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, on_stop)
    loop.add_signal_handler(signal.SIGINT, on_stop)
    loop.add_signal_handler(signal.SIGHUP, on_hup)
    await app.start()
    settle()
    watching = loop.create_task(content_changed(lambda: app.watched, on_hup)) if watch else None
    await stop.wait()
    if watching is not None:
        watching.cancel()
    return await _drain(app, stop_again)


async def _drain(app: "App", stop_again: asyncio.Event) -> int:
    """Exit status: 0 when everything could end, 1 when it was cut short by a second signal."""
    loop = asyncio.get_running_loop()
    draining = loop.create_task(app.drain())
    impatient = loop.create_task(stop_again.wait())
    await asyncio.wait((draining, impatient), return_when=asyncio.FIRST_COMPLETED)
    impatient.cancel()
    if draining.done():
        draining.result()
        return 0
    logging.getLogger("holdfast").warning("told to stop a second time: ending at once")
    draining.cancel()
    await asyncio.wait((draining,))
    await app.stop_at_once()
    return 1
