"""Options that several commands share: files, admin listener, token.

``environment.py`` gives each option an environment variable, too.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, TypeVar, cast

import click
from click.core import ParameterSource

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class _Lines(click.types.StringParamType):
    """A text; several are separated by line ends where an environment variable has them."""

    envvar_list_splitter: ClassVar[str] = "\n"


LINES = _Lines()
"""The type of a repeatable option whose values may contain spaces, such as header fields."""


def _no_configuration(ctx: click.Context, example: str) -> click.UsageError:
    return click.UsageError(
        f"no configuration given, write: holdfast {ctx.info_name} {example}", ctx
    )


def _at_least_one(
    ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    if not value:
        raise _no_configuration(ctx, "-c holdfast.yaml METHOD URL")
    del parameter  # click passes it by name
    return value


def _config(name: str, callback: Callable[..., Any] | None = None) -> Callable[[Any], Any]:
    return click.option(
        "-c",
        "--config",
        name,
        multiple=True,
        # For completion, and for the environment, where a colon stands between two files.
        type=click.Path(),
        metavar="FILE",
        callback=callback,
        help="Configuration file. May be repeated: mappings merge, the rest replaces.",
    )


def config_option(command: CommandT) -> CommandT:
    """Add ``-c FILE``, required and repeatable; the command gets *files*, their names.

    For ``explain``, whose arguments are a request; others have :func:`config_files`.
    """
    return cast("CommandT", _config("files", _at_least_one)(command))


def config_files(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``FILE…`` and ``-c FILE``, of which one may be used; the command gets *files*."""

    @click.argument("arguments", nargs=-1, type=click.Path(), metavar="[FILE]...")
    @_config("config")
    @click.pass_context
    @wraps(command)
    def with_files(
        ctx: click.Context, /, arguments: tuple[str, ...], config: tuple[str, ...], **others: object
    ) -> None:
        if arguments and config and is_typed(ctx, "config"):
            raise click.UsageError(
                "FILE and -c do not go together, write all files in one way: "
                f"holdfast {ctx.info_name} base.yaml production.yaml",
                ctx,
            )
        command(files=arguments or config, **others)

    return cast("Callable[..., None]", with_files)


def require_files(files: tuple[str, ...]) -> None:
    """Raise the error of a command that has been given no file."""
    if not files:
        raise _no_configuration(click.get_current_context(), "holdfast.yaml")


def is_typed(ctx: click.Context, name: str) -> bool:
    """Tell whether an option was given on the command line, which wins over the environment."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


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
