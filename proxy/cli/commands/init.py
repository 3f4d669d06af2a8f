"""``holdfast init``: write a first configuration file."""

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click

from proxy.cli.first_file import Answers, first_file
from proxy.cli.untrusted_json import legible

_EXAMPLES = """\b
Examples:
  holdfast init
  holdfast init --upstream https://api.example --rate 100/s
  holdfast init --upstream http://127.0.0.1:9000 - > first.yaml"""

_STDOUT = "-"
_NO_RATE = "none"


@click.command(epilog=_EXAMPLES)
@click.argument("file", default="holdfast.yaml", metavar="[FILE]", type=click.Path(allow_dash=True))
@click.option("--upstream", metavar="URL", help="The API that requests go to.")
@click.option(
    "--retry/--no-retry",
    default=None,
    help="Whether what failed is sent again where that is safe; it is, by default.",
)
@click.option(
    "--idempotency/--no-idempotency",
    default=None,
    help="Whether a POST with an Idempotency-Key must not run twice, as with payments.",
)
@click.option(
    "--honours-key/--no-honours-key",
    default=None,
    help="Whether the upstream itself runs a POST with the same key once; with --idempotency.",
)
@click.option("--rate", metavar="RATE", help="The upstream's rate limit: 100/s; or none.")
@click.option("--yes", is_flag=True, help="Ask nothing: the defaults for what is not given.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init(
    *,
    file: str,
    upstream: str | None,
    retry: bool | None,
    idempotency: bool | None,
    honours_key: bool | None,
    rate: str | None,
    yes: bool,
    force: bool,
) -> None:
    """Write a first configuration file, with comments.

    Its name is FILE, or holdfast.yaml; - is standard output. On a terminal it asks for what no
    option gives, five questions at most. Elsewhere, and with --yes, it takes the defaults:
    retries, no idempotency keys, no rate limit; --upstream must be given. A file that is there
    is kept. What it writes passes holdfast check --strict.
    Exit code 0: written, 1: not written, 2: wrong usage, 130: stopped by
    Ctrl-C.
    """
    if _is_stdout(file):
        file = _STDOUT
    _refuse_existing(file, force=force)
    if honours_key and idempotency is False:
        raise click.UsageError("--honours-key is about --idempotency, remove one of them")
    given = _Given(
        None if upstream is None else _read_url(upstream),
        retry,
        honours_key or idempotency,
        honours_key,
        None if rate is None else _read_rate(rate),
    )
    answers = (given if yes or not sys.stdin.isatty() else _asked(given)).answers()
    _write(file, _checked(file, first_file(answers)), force=force)


class _Given(NamedTuple):
    """What is known so far; None: nothing."""

    upstream: str | None
    retry: bool | None
    idempotency: bool | None
    honours_key: bool | None
    rate: str | None

    def answers(self) -> Answers:
        """Return all answers: the defaults for what is not known."""
        if self.upstream is None:
            raise click.UsageError(
                "no upstream given, write: holdfast init --upstream http://HOST:PORT (on a "
                "terminal, holdfast init asks for it)"
            )
        return Answers(
            self.upstream,
            retry=self.retry is not False,
            idempotency=bool(self.idempotency),
            honours_key=bool(self.honours_key),
            rate=None if self.rate == _NO_RATE else self.rate,
        )


def _asked(given: _Given) -> _Given:
    """Ask for what is not known. Ctrl-C, and the end of the input, raise Abort."""
    upstream, retry, idempotency, honours_key, rate = given
    if upstream is None:
        upstream = _ask("URL of the upstream, such as https://api.example", _read_url)
    if retry is None:
        retry = _confirm("Retry what failed, where it is safe to send it again?", default=True)
    if idempotency is None:
        text = "Are there POSTs that must not run twice, such as payments?"
        idempotency = _confirm(text, default=False)
    if idempotency and honours_key is None:
        text = "Does the upstream itself run a POST with the same Idempotency-Key once?"
        honours_key = _confirm(text, default=False)
    if rate is None:
        rate = _ask("Rate limit of the upstream, such as 100/s", _read_rate, default=_NO_RATE)
    return _Given(upstream, retry, idempotency, honours_key, rate)


def _is_stdout(file: str) -> bool:
    """Tell whether standard output goes to *file*: ``holdfast init > holdfast.yaml``."""
    try:
        return os.path.samestat(Path(file).stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # there is no such file, or no standard output
        return False


def _refuse_existing(file: str, *, force: bool) -> None:
    if file != _STDOUT and not force and os.path.lexists(file):
        name = legible(file)
        raise click.ClickException(f"{name} is there already: name another file, or use --force")


# Questions go to stderr: the file may go to stdout.


def _ask(text: str, read: Callable[[str], str], default: str | None = None) -> str:
    return str(click.prompt(text, default=default, value_proc=read, err=True))


def _confirm(text: str, *, default: bool) -> bool:
    return click.confirm(text, default=default, err=True)


def _read_url(text: str) -> str:
    from proxy.config.values.addresses import UpstreamUrl  # noqa: PLC0415 - keeps --help fast

    return _read(UpstreamUrl().read, text, "--upstream")


def _read_rate(text: str) -> str:
    from proxy.config.values.rates import CallRate  # noqa: PLC0415 - keeps --help fast

    return text if text == _NO_RATE else _read(CallRate().read, text, "--rate")


def _read(read: Callable[[Any], object], text: str, option: str) -> str:
    """Return *text* if it is a value that *read* reads; raise the error that check has for it."""
    from proxy.config.diagnostics.diagnostics import InvalidValue  # noqa: PLC0415 - as above
    from proxy.config.diagnostics.position import Position, Source  # noqa: PLC0415 - as above
    from proxy.config.source.nodes import Scalar  # noqa: PLC0415 - as above

    try:
        read(Scalar(text, Position(Source(option))))
    except InvalidValue as error:
        raise click.BadParameter(legible(str(error)), param_hint=option) from None
    return text


def _checked(file: str, text: str) -> str:
    """Return *text* if ``check --strict`` has nothing to say about it."""
    from proxy.config import ConfigError, load  # noqa: PLC0415 - keeps --help fast

    with TemporaryDirectory() as folder:
        path = Path(folder) / "holdfast.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            report = load([path], {}).report
        except ConfigError as error:
            report = error.report
    for found in report.diagnostics:
        click.echo(str(replace(found, file=file)), err=True)
    if report.diagnostics:
        raise click.ClickException("nothing was written: give other answers")
    return text


def _write(file: str, text: str, *, force: bool) -> None:
    if file == _STDOUT:
        click.echo(text, nl=False)
        return
    name = legible(file)
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        _refuse_existing(file, force=False)
        raise
    except OSError as error:
        raise click.ClickException(f"cannot write {name}: {error.strerror}") from None
    quoted = shlex.quote(name)
    click.echo(f"{name}: written")
    click.echo(f"Next: holdfast check {quoted}, then holdfast run {quoted}")
    click.echo("For an editor that knows every key: holdfast schema > schema.json")
