"""The command line: ``commands/`` has one module per command, ``render/`` what they show.

Beside them: shared ``options``, the variables of the ``environment`` that set them, ``questions``,
the clients of the admin listener (``admin_client``, ``status_client``, and ``kept/`` for dead
letters and deliveries), readers of what users type (``request_args``, ``keyboard``) and of
responses (``untrusted_json``), the text of a ``first_file`` and the loop of ``status --watch``
(``watching``). A command is imported when it is used, and imports what it needs inside its
function, so that ``--help`` and ``check`` do not wait for the server's packages. The top layer: may
import ``runtime/`` and everything below it; nothing imports it but ``__main__``.
"""

import signal
from importlib import import_module

import click

from proxy import __version__
from proxy.cli.environment import name_variables
from proxy.cli.questions import stopped

_COMMANDS = {
    "init": "proxy.cli.commands.init:init",
    "check": "proxy.cli.commands.check:check",
    "run": "proxy.cli.commands.run:run",
    "reload": "proxy.cli.commands.reload:reload",
    "explain": "proxy.cli.commands.explain:explain",
    "schema": "proxy.cli.commands.schema:schema",
    "status": "proxy.cli.commands.status:status",
    "attempts": "proxy.cli.commands.attempts:attempts",
    "dlq": "proxy.cli.commands.dlq:dlq",
    "deliveries": "proxy.cli.commands.deliveries:deliveries",
    "keys": "proxy.cli.commands.keys:keys",
    "healthcheck": "proxy.cli.commands.healthcheck:healthcheck",
    "upstream": "proxy.cli.commands.upstream:upstream",
    "version": "proxy.cli.commands.version:version",
}

_SYNONYMS = {
    **dict.fromkeys(("validate", "verify", "lint", "test", "config"), "check"),
    **dict.fromkeys(("serve", "start", "up"), "run"),
    **dict.fromkeys(("top", "stats", "watch"), "status"),
    **dict.fromkeys(("dead-letters", "letters"), "dlq"),
    **dict.fromkeys(("health", "ready"), "healthcheck"),
}
"""What people type, as other tools have it → the command that is meant."""


class _LazyGroup(click.Group):
    """Knows the names of its commands, and imports the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        target = _COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, name = target.partition(":")
        command = getattr(import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{target} is no command")
        name_variables(command, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # click cannot suggest a similar command, because the commands are not loaded.
            from proxy.config.diagnostics.nearest import meant  # noqa: PLC0415 - for errors only

            command = meant(args[0], _COMMANDS, _SYNONYMS)
            if not command:
                raise
            text = f"{error.format_message()} Did you mean '{command}'?"
            raise click.UsageError(text, ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (click.Abort, KeyboardInterrupt) as error:
            raise stopped(error) from None


_EXAMPLES = """\b
Examples:
  holdfast init
  holdfast check holdfast.yaml
  holdfast run holdfast.yaml --watch
  holdfast status --watch

Each option can be set by an environment variable, too: HOLDFAST_RUN_LISTEN
for run --listen.

Completion of commands and options, in ~/.bashrc (zsh and fish likewise):

\b
  eval "$(_HOLDFAST_COMPLETE=bash_source holdfast)\""""


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXAMPLES,
)
@click.version_option(__version__, prog_name="holdfast")
@click.pass_context
def main(ctx: click.Context) -> None:
    """A sidecar between a service and the HTTP APIs that it depends on."""
    # From here on Ctrl-C interrupts a command, which may have to tidy up; but run, which imports
    # for a while longer, says itself when it is ready for signals.
    if ctx.invoked_subcommand != "run" and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
