"""Environment variables of options: ``HOLDFAST_RUN_LISTEN`` for ``holdfast run --listen``.

The name is made of the words of the command and the option, as users write them, and not of the
name that the code has for its value, as click's own ``auto_envvar_prefix`` would make it. What
several commands share has a name of its own, given where the option is declared. What a person
decides each time (``--all``, ``--force``, ``--yes``) has none: a variable that was forgotten in a
shell must not drop dead letters, nor send again what may have run.
"""

from collections.abc import Iterator

import click

_PREFIX = "HOLDFAST"
_DECIDED_EACH_TIME = frozenset({"--all", "--force", "--yes"})


def name_variables(command: click.Command, path: str) -> None:
    """Give all options of *command*, and of those below it, their environment variables."""
    for option in options_of(command):
        if not option.envvar:
            option.envvar = _variable(path, option)
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            name_variables(below, f"{path} {name}")


def options_of(command: click.Command) -> Iterator[click.Option]:
    """Return the options of *command* that have environment variables.

    Not ``--help``, nor those that a person decides each time.
    """
    options = (param for param in command.params if isinstance(param, click.Option))
    return (option for option in options if _DECIDED_EACH_TIME.isdisjoint(option.opts))


def _variable(path: str, option: click.Option) -> str:
    longest = max(option.opts, key=len)
    words = (_PREFIX, *path.split(), longest.lstrip("-"))
    return "_".join(words).replace("-", "_").upper()
