"""``holdfast check``: every fault of a configuration, one line each."""

import json
import os
import sys
from dataclasses import asdict

import click

from proxy.cli.options import config_files, require_files

_EXAMPLES = """\b
Examples:
  holdfast check holdfast.yaml
  holdfast check base.yaml production.yaml --strict"""


@click.command(epilog=_EXAMPLES)
@config_files
@click.option("--strict", is_flag=True, help="Warnings count as faults: for CI.")
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people and editors, or one JSON object.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def check(files: tuple[str, ...], output: str, *, as_json: bool, strict: bool) -> None:
    """List everything that is wrong with a configuration.

    Each line is FILE:LINE:COLUMN: PATH: what is wrong, what to write instead. For a
    good file it also prints the most calls that each rate lets through in one window.
    Exit code 0: good (warnings may be printed), 1: faults, or warnings with --strict, 2:
    wrong usage.
    """
    require_files(files)
    from proxy.cli.render.throttle_limits import (  # noqa: PLC0415 - keeps --help fast
        MostAtOnce,
        MostInWindow,
        throttle_limits,
    )
    from proxy.config import ConfigError, load  # noqa: PLC0415 - keeps --help fast

    limits: list[MostInWindow | MostAtOnce] = []
    not_checked: tuple[str, ...] = ()
    try:
        loaded = load(files, os.environ)
        report, summary = loaded.report, loaded.summary
        limits = throttle_limits(loaded.settings)
        not_checked = loaded.not_checked
    except ConfigError as error:
        report, summary = error.report, error.report.summary()
    is_good = not (report.diagnostics if strict else report.faults)
    if strict and report.warnings and not report.faults:
        summary = report.summary("not good enough for --strict")
    if as_json or output == "json":
        result = {
            "ok": is_good,
            "strict": strict,
            "summary": summary,
            "findings": [asdict(fault) for fault in report.diagnostics],
            "windows": [asdict(limit) for limit in limits if isinstance(limit, MostInWindow)],
            "concurrency": [asdict(limit) for limit in limits if isinstance(limit, MostAtOnce)],
            "not_checked": not_checked,
        }
        click.echo(json.dumps(result, indent=2))
    else:
        for fault in report.diagnostics:
            click.echo(str(fault))
        for limit in limits:
            click.echo(str(limit))
        click.echo(summary)
    sys.exit(0 if is_good else 1)
