"""Help that helps: an example for every command, completion, and words for slips."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from proxy.cli import main
from tests.support.proxies import ROOT

COMMAND = Path(sys.executable).with_name("holdfast")


def all_paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and every group of them, by the words that lead there."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from all_paths(found, (*path, name))


PATHS = pytest.mark.parametrize("path", [*all_paths(main)], ids=lambda path: " ".join(path) or "-")


def help_of(*path: str) -> str:
    result = CliRunner().invoke(main, [*path, "--help"], terminal_width=80, prog_name="holdfast")
    assert result.exit_code == 0
    return result.output


def examples(text: str) -> list[str]:
    """The lines below ``Example``."""
    below = re.split(r"^  Examples?:$", text, flags=re.MULTILINE)
    assert len(below) == 2, "one place with examples"
    return [line.strip() for line in below[1].split("\n\n")[0].splitlines() if line.strip()]


@PATHS
def test_every_help_has_an_example_of_its_own(path: tuple[str, ...]) -> None:
    shown = examples(help_of(*path))
    assert shown
    for example in shown:
        assert example.startswith(" ".join(("holdfast", *path)))


@PATHS
def test_examples_are_right(path: tuple[str, ...]) -> None:
    """Check that each is understood: it fails for want of a file or a proxy, not of its usage."""
    for example in examples(help_of(*path)):
        words = shlex.split(re.split(r" [|>] ", example)[0])[1:]
        command: click.Command = main
        context = click.Context(main)
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None
            command = found
        # Reads the words as the command would, and runs nothing.
        command.make_context(command.name, words)


@PATHS
def test_help_fits_80_columns(path: tuple[str, ...]) -> None:
    assert max(map(len, help_of(*path).splitlines())) <= 80


@PATHS
def test_every_option_and_command_says_what_it_does(path: tuple[str, ...]) -> None:
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    assert command.help
    assert all(option.help for option in command.params if isinstance(option, click.Option))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script(shell: str) -> None:
    done = subprocess.run(
        [COMMAND],
        cwd=ROOT,
        env={**os.environ, "_HOLDFAST_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert "_holdfast_completion" in done.stdout
    assert f"_HOLDFAST_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("holdfast st", ["status"]),
        ("holdfast keys re", ["release"]),
        ("holdfast rel", ["reload"]),
        ("holdfast check holdf", ["holdf"]),  # the shell completes the names of files
        ("holdfast status --w", ["--watch"]),
        ("holdfast check --format j", ["json"]),
    ],
)
def test_completion_completes(words: str, completed: list[str]) -> None:
    count = len(words.split()) - 1
    done = subprocess.run(
        [COMMAND],
        cwd=ROOT,
        env={
            **os.environ,
            "_HOLDFAST_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(count),
        },
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert [line.partition(",")[2] for line in done.stdout.split()] == completed


def test_help_and_reference_say_how_to_switch_completion_on() -> None:
    line = 'eval "$(_HOLDFAST_COMPLETE=bash_source holdfast)"'
    assert line in help_of()
    assert line in (ROOT / "docs" / "reference" / "command-line.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stauts"], "No such command 'stauts'. Did you mean 'status'?"),
        (["validate", "a.yaml"], "No such command 'validate'. Did you mean 'check'?"),
        (["serve"], "Did you mean 'run'?"),
        (["keys", "sohw"], "Did you mean 'show'?"),
        (["status", "--wacth"], "Did you mean '--watch'?"),
        (["check"], "no configuration given, write: holdfast check holdfast.yaml"),
        (
            ["run"],
            "no configuration given, write: holdfast run holdfast.yaml, or holdfast run --up",
        ),
        (["explain", "GET", "/"], "write: holdfast explain -c holdfast.yaml METHOD URL"),
        (["run", "a.yaml", "--upstream", "http://a"], "--upstream is for a run without a file"),
        (["run", "--upstream", "http://a", "--watch"], "there is no file to watch"),
    ],
)
def test_a_slip_is_told_what_to_write(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, arguments, prog_name="holdfast")
    assert result.exit_code == 2
    assert said in result.stderr
    assert "--help' for help." in result.stderr


def test_what_is_like_no_command_gets_no_guess() -> None:
    assert "Did you mean" not in CliRunner().invoke(main, ["xyzzy"]).stderr
