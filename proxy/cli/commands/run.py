"""``holdfast run``: serve until a signal stops the proxy."""

import click

from proxy.cli.options import config_files, is_typed

_EXAMPLES = """\b
Examples:
  holdfast run holdfast.yaml --watch
  holdfast run --upstream http://127.0.0.1:9000"""


@click.command(epilog=_EXAMPLES)
@config_files
@click.option(
    "--upstream",
    metavar="URL",
    help="In place of a file: everything goes there, under the defaults.",
)
@click.option("--watch", is_flag=True, help="Reload when the content of a file changes.")
@click.option("--listen", multiple=True, metavar="ADDRESS", help="Instead of the file's listen.")
@click.option("--admin", metavar="ADDRESS", help="Instead of the file's admin.")
@click.option("--workers", metavar="N", help="Instead of the file's workers: a number, or auto.")
def run(
    files: tuple[str, ...],
    *,
    upstream: str | None,
    watch: bool,
    listen: tuple[str, ...],
    admin: str | None,
    workers: str | None,
) -> None:
    """Serve. SIGHUP reloads, SIGTERM drains, a second SIGTERM ends at once.

    Without a file, --upstream names the one upstream: no retries, no limits, no idempotency
    keys, until a file says so (holdfast init writes a first one).
    Exit code 0: drained, 1: it could not start, or was cut short, 2: wrong usage.
    """
    files, upstream = _files_or_upstream(files, upstream)
    if watch and not files:
        raise click.UsageError("there is no file to watch, remove --watch")
    from proxy.runtime.quick_imports import quick_imports  # noqa: PLC0415 - as below

    with quick_imports():
        from proxy.config import ConfigError  # noqa: PLC0415 - as below
        from proxy.runtime.main import CannotServe, report, serve  # noqa: PLC0415 - aiohttp takes 0.25 s

    try:
        status = serve(
            files, upstream=upstream, watch=watch, listen=listen, admin=admin, workers=workers
        )
    except (CannotServe, ConfigError) as error:
        report(error)
        status = 1
    raise SystemExit(status)


def _files_or_upstream(
    files: tuple[str, ...], upstream: str | None
) -> tuple[tuple[str, ...], str | None]:
    """Return what to serve: files, or an upstream. What is typed wins over the environment."""
    ctx = click.get_current_context()
    if not files and upstream is None:
        raise click.UsageError(
            "no configuration given, write: holdfast run holdfast.yaml, or holdfast run "
            "--upstream http://HOST:PORT",
            ctx,
        )
    if not files or upstream is None:
        return files, upstream
    files_are_typed = is_typed(ctx, "arguments") or is_typed(ctx, "config")
    if files_are_typed == is_typed(ctx, "upstream"):
        raise click.UsageError(
            "--upstream is for a run without a file, write the URL under upstreams in the file", ctx
        )
    return (files, None) if files_are_typed else ((), upstream)
