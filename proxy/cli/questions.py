"""The question before something that cannot be undone, and how a command ends that is stopped."""

import sys

import click

STOPPED = 130
"""The exit status after Ctrl-C, as shells have it."""
_NOTHING = "nothing was done"


def confirm(subject: str, plan: str, question: str) -> None:
    """Say what there is (*subject*) and what will happen (*plan*), and ask the user on a terminal.

    Raises if there is no terminal, or if the user says no.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{subject}. {plan} Write --yes to do that without being asked, or --dry-run to see it."
        )
    click.echo(f"{subject}.\n{plan}", err=True)
    if not click.confirm(question, err=True):
        raise click.ClickException(_NOTHING)


def stopped(error: click.Abort | KeyboardInterrupt) -> click.ClickException:
    """Return the error for a command that Ctrl-C stopped, or whose question got no answer.

    Questions come before anything is done; Ctrl-C may come later.
    """
    click.echo(err=True)  # the cursor stands behind the question, or behind ^C
    is_question = isinstance(error, click.Abort)
    # click raises Abort while it handles what happened: Ctrl-C, or the end of the input.
    by_signal = isinstance(error.__context__ if is_question else error, KeyboardInterrupt)
    kind = _Stopped if by_signal else click.ClickException
    return kind(_NOTHING if is_question else "stopped")


class _Stopped(click.ClickException):
    """The error of a command that Ctrl-C stopped."""

    exit_code = STOPPED
