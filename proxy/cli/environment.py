"""Environment variables of options: ``HOLDFAST_RUN_LISTEN`` for ``holdfast run --listen``.

The name is made of the words of the command and the option, as users write them, and not of the
name that the code has for its value, as click's own ``auto_envvar_prefix`` would make it. What
several commands share has a name of its own, given where the option is declared.
"""

from collections.abc import Iterator

import click

_PREFIX = "HOLDFAST"


def name_variables(command: click.Command, path: str) -> None:
    """Give all options of *command*, and of those below it, their environment variables."""
    for option in options_of(command):
        if not option.envvar:
            option.envvar = _variable(path, option)
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            name_variables(below, f"{path} {name}")


def options_of(command: click.Command) -> Iterator[click.Option]:
    """Return the options of *command* that have environment variables: all but ``--help``."""
    return (param for param in command.params if isinstance(param, click.Option))


def _variable(path: str, option: click.Option) -> str:
    longest = max(option.opts, key=len)
    words = (_PREFIX, *path.split(), longest.lstrip("-"))
    return "_".join(words).replace("-", "_").upper()
