"""The reference of commands in docs/reference/command-line.md, made from click's own declarations.

It stands between ``<!-- commands -->`` and ``<!-- end of commands -->``, the environment variables
between ``<!-- variables -->`` and ``<!-- end of variables -->``. After a change of a command, run
``make generate``.
"""

import re
import textwrap
from collections.abc import Iterator

import click

from proxy.cli import main
from proxy.cli.environment import options_of

_VARIABLES = re.compile(r"(?<=<!-- variables -->\n).*?(?=<!-- end of variables -->)", re.DOTALL)
_COMMANDS = re.compile(r"(?<=<!-- commands -->\n).*?(?=<!-- end of commands -->)", re.DOTALL)


def with_commands(text: str) -> str:
    """*text* with every command as it is declared now."""
    made = "\n".join(
        part for name, command in commands_of(main) for part in _section(name, command)
    )
    with_table = _VARIABLES.sub(lambda _: _table_of_variables(), text)
    return _COMMANDS.sub(lambda _: made, with_table)


def _table_of_variables() -> str:
    """Every variable that sets an option, and which."""
    sets: dict[str, list[str]] = {}
    for name, command in commands_of(main):
        for option in options_of(command):
            longest = max(option.opts, key=len)
            sets.setdefault(str(option.envvar), []).append(f"`{name} {longest}`")
    rows = [
        f"| `{variable}` | {', '.join(options) if len(options) == 1 else _shared(options)} |"
        for variable, options in sorted(sets.items())
    ]
    return "\n".join(("| variable | sets |", "|---|---|", *rows, ""))


def _shared(options: list[str]) -> str:
    option = options[0].split()[-1].strip("`")
    return f"`{option}` of all commands that ask a running proxy"


def commands_of(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands with their names, those of groups as ``keys show``."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def _section(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"holdfast {name}")
    yield f"## holdfast {name}\n"
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    yield f"```text\n{usage}\n```\n"
    for paragraph in (command.help or "").split("\n\n"):
        yield _filled(_escaped(paragraph)) + "\n"
    options = [param for param in command.params if isinstance(param, click.Option)]
    if options:
        yield "| option | meaning |\n|---|---|"
        yield "\n".join(_row(option, context) for option in options) + "\n"
    examples = [line.strip() for line in (command.epilog or "").splitlines() if "holdfast " in line]
    if examples:
        yield "\n".join(("```sh", *examples, "```\n"))


def _row(option: click.Option, context: click.Context) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    names = ", ".join(
        f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts)
    ).replace("|", "\\|")
    meaning = [_escaped(option.help or "")]
    if option.multiple and "repeated" not in meaning[0]:
        meaning.append("May be repeated.")
    if option.show_default and isinstance(option.default, str | int | float):
        meaning.append(f"Default: `{option.default}`.")
    if isinstance(option.type, click.IntRange | click.FloatRange):
        meaning.append(f"`{option.type._describe_range()}`.")
    return f"| {names} | {' '.join(meaning)} |"


def _escaped(text: str) -> str:
    """*text* as Markdown that says the same."""
    return re.sub(r"(?<!`)(--[a-z][a-z-]*|\bHOLDFAST_[A-Z_]+)", r"`\1`", text).replace("|", "\\|")


def _filled(text: str) -> str:
    words = " ".join(text.replace("\b", "").split())
    return textwrap.fill(words, 100, break_on_hyphens=False, break_long_words=False)
