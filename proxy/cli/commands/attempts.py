"""``holdfast attempts``: the attempts of one recent request."""

import http.client
import json
import re
from collections.abc import Iterator

import click

from proxy.cli.admin_client import AdminClient, AdminResponse
from proxy.cli.options import client_options, json_option
from proxy.cli.render.number_format import plural, short_duration
from proxy.cli.render.shell_command import explain_command
from proxy.cli.untrusted_json import UntrustedJson

_EXAMPLE = "\b\nExample:\n  holdfast attempts 6fd1393c602891241b8146ef-5"
_MAX_BYTES = 64 * 1024 * 1024
"""Bytes that are read: a client may have used one id for all requests that are kept."""
_INDENT = " " * 13
"""The indentation of details, as wide as the text before each attempt."""
_PLAIN = frozenset({"success", "recovered", "retried"})
"""Verdicts that need no explanation."""


def _valid_request_id(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", value):
        raise click.BadParameter(
            "write the X-Request-Id of an answer, or the request_id of the log", ctx, parameter
        )
    return value


@click.command(epilog=_EXAMPLE)
@click.argument("request_id", metavar="REQUEST_ID", callback=_valid_request_id)
@json_option
@client_options
def attempts(request_id: str, client: AdminClient, *, as_json: bool) -> None:
    """Show what happened to a recent request, attempt by attempt, and why.

    REQUEST_ID is the X-Request-Id of its answer. The last line is the command that explains it:
    paste it to see the policy, and what to write for another outcome.
    The last 1000 notable requests are kept: refused, failed, repeated, queued, left by their
    client, or answered by a fallback or an earlier result.
    Exit code 0: shown, 1: it is not known, or no answer, 2: wrong usage.
    """
    response = _ask(request_id, client)
    if as_json:
        click.echo(json.dumps(response.content, indent=2))
        return
    for number, request in enumerate(response.parts("requests")):
        if number:
            click.echo()
        for line in _request_lines(request):
            click.echo(line)


def _ask(request_id: str, client: AdminClient) -> AdminResponse:
    path = f"/attempts?request_id={request_id}"
    response = client.send("GET", path, max_bytes=_MAX_BYTES)
    if response.status == http.client.OK and response.text("request_id") == request_id:
        return response
    if response.problem == "no_attempts":
        raise click.ClickException(
            f"{client.admin} knows no such request: only the last notable ones are kept (see "
            f"access_log: notable); ask another instance with --admin, or search the access log"
        )
    raise client.error_for(response)


def _request_lines(request: UntrustedJson) -> Iterator[str]:
    """Format the request in a few lines, then one or two lines for each attempt."""
    yield f"{request.text('method')} {request.text('path')}"
    yield f"route: {request.text('route')}"
    took = short_duration(request.number("duration_ms") or 0)
    yield f"answer: {_response_text(request)}, after {took}"
    yield f"ended: {request.text('time')}"
    if "idempotency" in request:
        record = f", record {request.text('record')}" if "record" in request else ""
        yield f"key: {request.text('idempotency')}{record}"
    made = request.parts("attempts")
    left_out = request.count("attempts_left_out")
    yield plural(len(made) + left_out, "attempt") + (":" if made else "")
    for at, attempt in enumerate(made):
        if left_out and at == len(made) // 2:
            yield f"{_INDENT}... {left_out} more ..."
        yield from _attempt(attempt)
    command = explain_command(request)
    if command:
        yield f"explain: {command}"


def _response_text(request: UntrustedJson) -> str:
    code = request.count("code")
    if code == 499:
        return "none, the client disconnected"
    if "refusal" in request:
        cause = f" ({request.text('cause')})" if "cause" in request else ""
        return f"{code}, from Holdfast: {request.text('refusal')}{cause}"
    return f"{code}, the fallback" if request.is_true("fallback") else str(code)


def _attempt(attempt: UntrustedJson) -> Iterator[str]:
    """Format an attempt: when, where and outcome; then its details, and why it was the last."""
    number, start = attempt.count("n"), short_duration(attempt.number("start_ms") or 0)
    status = attempt.number("status")
    ending = attempt.text("outcome")
    if status is not None and re.fullmatch(r"[1-5]xx|other", ending):
        ending = f"{status:.0f}"
    elif status is not None:
        ending += f" after {status:.0f}"  # such as a truncated body
    where = " ".join(filter(None, (attempt.text("upstream"), attempt.text("address"))))
    took = short_duration(attempt.number("ms") or 0)
    reason = f", {attempt.text('why')}" if "why" in attempt else ""
    yield f"{f'#{number}':<4}{start:>7}  {where or 'no address'}: {ending} in {took}{reason}"
    yield _INDENT + ", ".join(_attempt_details(attempt))
    if "meaning" in attempt and attempt.text("why") not in _PLAIN:
        yield f"{_INDENT}{attempt.text('why')}: {attempt.text('meaning')}"


def _attempt_details(attempt: UntrustedJson) -> Iterator[str]:
    if "wait_ms" in attempt:
        wait = short_duration(attempt.number("wait_ms") or 0)
        yield f"waited {wait} before it ({attempt.text('wait_for')})"
    if "queue_ms" in attempt:
        yield f"queued for {short_duration(attempt.number('queue_ms') or 0)}"
    if not attempt.is_true("sent"):
        yield "nothing was sent"
        return
    yield "reused connection" if attempt.is_true("reused") else "new connection"
    if not attempt.is_true("received"):
        yield "sent, no response"
