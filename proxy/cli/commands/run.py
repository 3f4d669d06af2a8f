"""``holdfast run``: serve until a signal stops the proxy."""

import click

from proxy.cli.options import config_option

_EXAMPLE = "\b\nExample:\n  holdfast run -c holdfast.yaml --watch"


@click.command(epilog=_EXAMPLE)
@config_option
@click.option("--watch", is_flag=True, help="Reload when the content of a file changes.")
@click.option("--listen", multiple=True, metavar="ADDRESS", help="Instead of the file's listen.")
@click.option("--admin", metavar="ADDRESS", help="Instead of the file's admin.")
@click.option("--workers", metavar="N", help="Instead of the file's workers: a number, or auto.")
def run(
    files: tuple[str, ...],
    *,
    watch: bool,
    listen: tuple[str, ...],
    admin: str | None,
    workers: str | None,
) -> None:
    """Serve. SIGHUP reloads, SIGTERM drains, a second SIGTERM ends at once."""
    from proxy.runtime.quick_imports import quick_imports  # noqa: PLC0415 - as below

    with quick_imports():
        from proxy.config import ConfigError  # noqa: PLC0415 - as below
        from proxy.runtime.main import CannotServe, report, serve  # noqa: PLC0415 - aiohttp takes 0.25 s

    try:
        status = serve(files, watch=watch, listen=listen, admin=admin, workers=workers)
    except (CannotServe, ConfigError) as error:
        report(error)
        status = 1
    raise SystemExit(status)
