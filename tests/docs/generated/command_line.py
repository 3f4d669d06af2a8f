"""The reference of commands in docs/reference/command-line.md, made from click's own declarations.

It stands between ``<!-- commands -->`` and ``<!-- end of commands -->``. After a change of a
command, run ``make generate``.
"""

import re
import textwrap
from collections.abc import Iterator

import click

from proxy.cli import main

_COMMANDS = re.compile(r"(?<=<!-- commands -->\n).*?(?=<!-- end of commands -->)", re.DOTALL)


def with_commands(text: str) -> str:
    """*text* with every command as it is declared now."""
    made = "\n".join(
        part for name, command in commands_of(main) for part in _section(name, command)
    )
    return _COMMANDS.sub(lambda _: made, text)


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
    names = ", ".join(f"`{name}{value}`" for name in option.opts).replace("|", "\\|")
    meaning = [_escaped(option.help or "")]
    if option.multiple and "repeated" not in meaning[0]:
        meaning.append("May be repeated.")
    if option.show_default and option.default is not None:
        meaning.append(f"Default: `{option.default}`.")
    if isinstance(option.type, click.IntRange | click.FloatRange):
        meaning.append(f"`{option.type._describe_range()}`.")
    if option.envvar:
        meaning.append(f"Environment: `{option.envvar}`.")
    return f"| {names} | {' '.join(meaning)} |"


def _escaped(text: str) -> str:
    """*text* as Markdown that says the same."""
    return re.sub(r"(?<!`)(--[a-z][a-z-]*|\bHOLDFAST_[A-Z_]+)", r"`\1`", text).replace("|", "\\|")


def _filled(text: str) -> str:
    words = " ".join(text.replace("\b", "").split())
    return textwrap.fill(words, 100, break_on_hyphens=False, break_long_words=False)
