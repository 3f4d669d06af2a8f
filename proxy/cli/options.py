"""Options that several commands share: files, admin listener, token."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def _at_least_one(
    ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    if not value:
        raise click.UsageError(
            f"no configuration given, write: holdfast {ctx.info_name} -c holdfast.yaml", ctx
        )
    del parameter  # click passes it by name
    return value


def config_option(command: CommandT) -> CommandT:
    """Add ``-c FILE``, required and repeatable; the command gets *files*, their names."""
    return click.option(
        "-c",
        "--config",
        "files",
        multiple=True,
        metavar="FILE",
        callback=_at_least_one,
        help="Configuration file. May be repeated: mappings merge, the rest replaces.",
    )(command)


def admin_option(command: CommandT) -> CommandT:
    """Add ``--admin URL``, also from the environment; the command gets *admin*."""
    return click.option(
        "--admin",
        default="http://127.0.0.1:9901",
        show_default=True,
        envvar="HOLDFAST_ADMIN",
        metavar="URL",
        help="The admin listener: a URL, or unix:PATH.",
    )(command)


def client_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--admin`` and ``--token``; the command gets *client*, an AdminClient made of both."""

    @admin_option
    @click.option(
        "--token",
        envvar="HOLDFAST_ADMIN_TOKEN",
        metavar="TOKEN",
        help="The admin token; HOLDFAST_ADMIN_TOKEN keeps it out of the list of processes.",
    )
    @wraps(command)
    def with_client(*, admin: str, token: str | None, **others: object) -> None:
        from proxy.cli.admin_client import AdminClient  # noqa: PLC0415 - keeps --help fast

        command(client=AdminClient(admin, token), **others)

    return with_client
