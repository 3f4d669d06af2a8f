"""``holdfast attempts``: what became of one request, attempt by attempt."""

import http.client
import json
import re
from collections.abc import Iterator

import click

from proxy.cli.admin_client import AdminResponse, ask, refused
from proxy.cli.options import admin_option, token_option
from proxy.cli.render.number_format import brief, several
from proxy.cli.untrusted_json import UntrustedJson

_EXAMPLE = "\b\nExample:\n  holdfast attempts 6fd1393c602891241b8146ef-5"
_LARGEST = 64 * 1024 * 1024
"""Bytes that are read: a client may have used one id for all that are kept."""
_INDENT = " " * 13
"""As wide as what stands before each attempt."""


def _checked(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", value):
        raise click.BadParameter(
            "write the X-Request-Id of an answer, or the request_id of the log", ctx, parameter
        )
    return value


@click.command(epilog=_EXAMPLE)
@click.argument("request_id", metavar="REQUEST_ID", callback=_checked)
@click.option("--json", "as_json", is_flag=True, help="What the admin listener says, as it is.")
@admin_option
@token_option
def attempts(request_id: str, admin: str, token: str | None, *, as_json: bool) -> None:
    """Say what became of a recent request, attempt by attempt.

    REQUEST_ID is the X-Request-Id of its answer. The last 1000 notable requests
    are kept: refused, failed, repeated, queued, left by their client, or
    answered by a fallback or an earlier result.
    Exit code 0: said, 1: it is not known, or no answer, 2: wrong usage.
    """
    answer = _ask(request_id, admin, token)
    if as_json:
        click.echo(json.dumps(answer.content, indent=2))
        return
    for number, request in enumerate(answer.told.parts("requests")):
        if number:
            click.echo()
        for line in _story(request):
            click.echo(line)


def _ask(request_id: str, admin: str, token: str | None) -> AdminResponse:
    path = f"/attempts?request_id={request_id}"
    answer = ask(admin, "GET", path, token=token, largest=_LARGEST)
    if answer.status == http.client.OK and answer.text("request_id") == request_id:
        return answer
    if answer.problem == "no_attempts":
        raise click.ClickException(
            f"{admin} knows no such request: only the last notable ones are kept (see access_log: "
            f"notable); ask another instance with --admin, or search the access log"
        )
    raise refused(admin, token, answer)


def _story(request: UntrustedJson) -> Iterator[str]:
    """The request in a few lines, then a line or two for each attempt."""
    yield f"{request.text('method')} {request.text('path')}"
    yield f"route: {request.text('route')}"
    yield f"answer: {_answer(request)}, after {brief(request.number('duration_ms') or 0)}"
    yield f"ended: {request.text('time')}"
    if "idempotency" in request:
        record = f", record {request.text('record')}" if "record" in request else ""
        yield f"key: {request.text('idempotency')}{record}"
    made = request.parts("attempts")
    left_out = request.count("attempts_left_out")
    yield several(len(made) + left_out, "attempt") + (":" if made else "")
    for at, attempt in enumerate(made):
        if left_out and at == len(made) // 2:
            yield f"{_INDENT}... {left_out} more ..."
        yield from _attempt(attempt)


def _answer(request: UntrustedJson) -> str:
    code = request.count("code")
    if code == 499:
        return "none, the client left"
    if "refusal" in request:
        cause = f" ({request.text('cause')})" if "cause" in request else ""
        return f"{code}, of Holdfast itself: {request.text('refusal')}{cause}"
    return f"{code}, the fallback" if request.is_true("fallback") else str(code)


def _attempt(attempt: UntrustedJson) -> Iterator[str]:
    """When, what and where; then how it came to it, and what was decided."""
    number, start = attempt.count("n"), brief(attempt.number("start_ms") or 0)
    status = attempt.number("status")
    ending = attempt.text("outcome")
    if status is not None and re.fullmatch(r"[1-5]xx|other", ending):
        ending = f"{status:.0f}"
    elif status is not None:
        ending += f" after {status:.0f}"  # such as a body that broke off
    where = " ".join(filter(None, (attempt.text("upstream"), attempt.text("address"))))
    took = brief(attempt.number("ms") or 0)
    why = f", {attempt.text('why')}" if "why" in attempt else ""
    yield f"{f'#{number}':<4}{start:>7}  {where or 'no address'}: {ending} in {took}{why}"
    yield _INDENT + ", ".join(_circumstances(attempt))


def _circumstances(attempt: UntrustedJson) -> Iterator[str]:
    if "wait_ms" in attempt:
        wait = brief(attempt.number("wait_ms") or 0)
        yield f"waited {wait} before it ({attempt.text('wait_for')})"
    if "queue_ms" in attempt:
        yield f"stood in line for {brief(attempt.number('queue_ms') or 0)}"
    if not attempt.is_true("sent"):
        yield "nothing was sent"
        return
    yield "reused connection" if attempt.is_true("reused") else "new connection"
    if not attempt.is_true("received"):
        yield "sent, nothing came back"
