"""``holdfast dlq``: dead letters, for the person who has to decide what becomes of them."""

import json
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import click

from proxy.cli.admin import Answer, ask, lines_of
from proxy.cli.asking import complaint, good
from proxy.cli.options import admin_option, token_option
from proxy.cli.screen import BAD, GOOD, WARNING, Cell, clean, is_colourful, line, progress, table

_LETTER = "18f3a2b4c5d0a1b2c3d4"
_PATIENCE = 15.0
_REPLAY_PATIENCE = 3600.0
"""Seconds: a replay takes as long as its route's timeout, and some have none."""
_LARGEST = 256 * 1024 * 1024
_PAGE = 1000
_SHOWN_BODY = 64 * 1024
_HEX_WIDTH = 16

_WORDS = {
    "no_letter": "there is no such letter: it was sent again or dropped, has expired, or another "
    "machine has it",
    "letters": "the file of the dead letters does not answer: see the proxy's log, then try again",
}

Letter = dict[str, Any]
"""As the admin listener describes one."""


def _named(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from proxy.policy.letters import read_letter_id  # noqa: PLC0415 - keeps --help fast

    if value is None:
        return None
    letter = read_letter_id(value)
    if letter is None:
        raise click.BadParameter(
            "write the 20 hexadecimal digits that Holdfast-Dead-Letter has", ctx, parameter
        )
    return letter


def _field(
    ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> list[tuple[str, str]]:
    fields = []
    for text in value:
        name, colon, content = text.partition(":")
        if not colon or not name.strip():
            # Not quoted: it is most likely a credential.
            raise click.BadParameter("write 'Name: value'", ctx, parameter)
        fields.append((name.strip(), content.strip()))
    return fields


_letter_argument = click.argument("letter", metavar="ID", callback=_named)
_route_option = click.option("--route", metavar="ROUTE", help="Only those of this route.")
_plain_option = click.option("--plain", is_flag=True, help="Plain text, without colours.")
_json_option = click.option("--json", "as_json", is_flag=True, help="As the admin listener has it.")


@click.group(epilog="\b\nExample:\n  holdfast dlq list")
def dlq() -> None:
    """Look at dead letters, send them again, or drop them.

    A dead letter is a request that failed for good on a route with dead_letter. ID is what
    the client got as Holdfast-Dead-Letter.
    """


@dlq.command("list", epilog="\b\nExample:\n  holdfast dlq list --route charges --oldest")
@_route_option
@click.option("--oldest", is_flag=True, help="The oldest ones first, not the newest.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, _PAGE),
    help="Show at most so many.",
)
@_plain_option
@_json_option
@admin_option
@token_option
def list_(
    *,
    route: str | None,
    oldest: bool,
    limit: int,
    plain: bool,
    as_json: bool,
    admin: str,
    token: str | None,
) -> None:
    """List dead letters, the newest ones first.

    TRIES are attempts used and allowed. RAN says whether the request may have run: yes, no,
    or ? after a replay that a crash interrupted.
    """
    order = "oldest" if oldest else "newest"
    page = _get(f"/dead-letters?{_query(route, order=order, limit=limit)}", admin, token)
    if as_json:
        click.echo(json.dumps(page.content, indent=2))
        return
    letters = _letters(page)
    if not letters:
        click.echo("no dead letters" if route is None else f"no dead letters of route {route}")
        return
    titles = ("ID", "TIME", "ROUTE", "ERROR", "CATEGORY", "TRIES", "RAN")
    table(titles, map(_row, letters), plain=plain, flexible=2)
    if page.content.get("next"):
        click.echo(f"and more; use --limit, or export for all ({len(letters)} are shown)")


@dlq.command(epilog=f"\b\nExample:\n  holdfast dlq show {_LETTER}")
@_letter_argument
@_plain_option
@_json_option
@admin_option
@token_option
def show(
    *,
    letter: str,
    plain: bool,
    as_json: bool,
    admin: str,
    token: str | None,
) -> None:
    """Show all of a letter: what was sent, why it failed, each attempt.

    The body comes as text, or as hexadecimal digits where it is none.
    """
    answer = _get(f"/dead-letters/{letter}", admin, token)
    if as_json:
        click.echo(json.dumps(answer.content, indent=2))
    else:
        _print_letter(answer.content, plain=plain)


@dlq.command(
    epilog="\b\nExamples:\n"
    f"  holdfast dlq replay {_LETTER} -H 'Authorization: Bearer TOKEN'\n"
    "  holdfast dlq replay --all --route charges"
)
@click.argument("letter", metavar="[ID]", required=False, callback=_named)
@click.option("--all", "everything", is_flag=True, help="All letters, the oldest one first.")
@_route_option
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    callback=_field,
    help="A header field to send, such as a credential that was not kept. May be repeated.",
)
@click.option("--force", is_flag=True, help="Send it though it may have run, or be uncertain.")
@_plain_option
@_json_option
@admin_option
@token_option
def replay(
    *,
    letter: str | None,
    everything: bool,
    route: str | None,
    headers: list[tuple[str, str]],
    force: bool,
    plain: bool,
    as_json: bool,
    admin: str,
    token: str | None,
) -> None:
    """Send a letter again, or all of them, through the same route and its policies.

    A letter goes away when its upstream answered below 400. Else it stays, with the new
    attempts on record. One that may have run is not sent without --force.
    Exit code 0: all that were asked for are gone, 1: not all, 2: wrong usage.
    """
    if (letter is None) != everything:
        raise click.UsageError("name one letter, or write --all")
    if route is not None and not everything:
        raise click.UsageError("--route goes with --all")
    body = {"headers": headers, "force": force}
    letters = [{"id": letter}] if letter else list(_every(route, admin, token))
    if not letters:
        click.echo("no dead letters")
        return
    if letter is not None:
        text, colour, is_gone = _replay_one(letter, body, admin, token, as_json=as_json)
        if text:
            shown = click.style(text, fg=colour) if is_colourful(plain=plain) else text
            click.echo(shown, err=not is_gone)
        raise SystemExit(not is_gone)
    gone = 0
    with progress("sending", len(letters), plain=plain or as_json) as step:
        for one in letters:
            text, colour, is_gone = _replay_one(one["id"], body, admin, token, as_json=as_json)
            gone += is_gone
            if not as_json:
                step(f"{one['id']} {text}", colour)
    if not as_json:
        colour = GOOD if gone == len(letters) else WARNING
        text = f"{gone} of {len(letters)} were sent and are gone, {len(letters) - gone} stay"
        click.echo(click.style(text, fg=colour) if is_colourful(plain=plain) else text)
    raise SystemExit(gone < len(letters))


@dlq.command(
    epilog=f"\b\nExamples:\n  holdfast dlq drop {_LETTER}\n"
    "  holdfast dlq drop --all --route charges"
)
@click.argument("letter", metavar="[ID]", required=False, callback=_named)
@click.option("--all", "everything", is_flag=True, help="All letters.")
@_route_option
@admin_option
@token_option
def drop(
    *,
    letter: str | None,
    everything: bool,
    route: str | None,
    admin: str,
    token: str | None,
) -> None:
    """Delete a letter, or all of them. There is no way back: export them first.

    Exit code 0: gone, 1: there is none, it is being sent again, or no answer, 2: wrong usage.
    """
    if (letter is None) != everything:
        raise click.UsageError("name one letter, or write --all")
    if letter is not None:
        _ask("DELETE", f"/dead-letters/{letter}", admin, token)
        click.echo(f"dropped {letter}")
        return
    query = _query(route) if route is not None else "all=true"
    answer = _ask("DELETE", f"/dead-letters?{query}", admin, token)
    click.echo(f"dropped {answer.number('letters') or 0:.0f}")


@dlq.command(epilog="\b\nExample:\n  holdfast dlq export > letters.jsonl")
@_route_option
@admin_option
@token_option
def export(route: str | None, admin: str, token: str | None) -> None:
    """Print all of all letters as JSON lines, the oldest one first."""
    path = f"/dead-letters/export?{_query(route)}"
    found = lines_of(admin, path, token=token, patience=_PATIENCE)
    if isinstance(found, Answer):
        raise click.ClickException(complaint(found, admin, token, _WORDS))
    for text in found:
        sys.stdout.write(text)


# Asking.


def _query(route: str | None, **others: object) -> str:
    given = {} if route is None else {"route": route}
    return urlencode({**given, **others}, quote_via=quote)


def _get(path: str, admin: str, token: str | None) -> Answer:
    return _ask("GET", path, admin, token)


def _ask(method: str, path: str, admin: str, token: str | None) -> Answer:
    answer = ask(admin, method, path, token=token, patience=_PATIENCE, largest=_LARGEST)
    return good(answer, admin, token, _WORDS)


def _letters(page: Answer) -> list[Letter]:
    found = page.content.get("letters")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _every(route: str | None, admin: str, token: str | None) -> Iterator[Letter]:
    """All letters there are now, the oldest one first; those that come later are not among them."""
    after: dict[str, object] = {}
    while True:
        query = _query(route, order="oldest", limit=_PAGE, **after)
        page = _get(f"/dead-letters?{query}", admin, token)
        yield from _letters(page)
        following = page.content.get("next")
        if not isinstance(following, str):
            return
        after = {"after": following}


def _replay_one(
    letter: str, body: dict[str, Any], admin: str, token: str | None, *, as_json: bool
) -> tuple[str, str, bool]:
    """Send it: what became of it in one line, its colour, and whether it is gone."""
    answer = ask(
        admin,
        "POST",
        f"/dead-letters/{letter}/replay",
        token=token,
        patience=_REPLAY_PATIENCE,
        body=json.dumps(body).encode(),
    )
    if as_json:
        click.echo(json.dumps(answer.content))
    result, is_gone = answer.text("result"), answer.text("result") == "succeeded"
    status = f"{answer.number('status') or 0:.0f}"
    if as_json:
        return "", "", is_gone
    if is_gone:
        return f"sent, the upstream answered {status}", GOOD, True
    if not result:
        return f"not sent: {_why_not(answer, admin, token)}", WARNING, False
    ran = ", it may have run" if answer.content.get("may_have_run") else ""
    hint = ""
    if answer.text("record"):
        hint = f" (its key: holdfast keys show {answer.text('record')})"
    return f"{result}: {answer.text('error')}{ran}: {answer.text('detail')}{hint}", BAD, False


def _why_not(answer: Answer, admin: str, token: str | None) -> str:
    match answer.problem:
        case "letter_may_have_run":
            return "it may have run; find out, then drop it or use --force"
        case "letter_uncertain":
            return (
                "a replay of it was interrupted by a crash and may have run; find out, then drop "
                "it or use --force"
            )
        case "letter_replaying" | "letter_without_body" | "letter_without_route":
            return answer.text("detail")
    return complaint(answer, admin, token, _WORDS)


# Showing.


def _row(letter: Letter) -> tuple[Cell, ...]:
    is_transient = letter.get("category") == "transient"
    return (
        (_text(letter, "id"), ""),
        (_text(letter, "time")[5:16].replace("T", " "), ""),
        (_text(letter, "route"), ""),
        (_text(letter, "error"), BAD),
        (_text(letter, "category"), WARNING if is_transient else BAD),
        (f"{_text(letter, 'attempts_used')}/{_text(letter, 'attempts_allowed')}", ""),
        _ran(letter),
    )


def _ran(letter: Letter) -> Cell:
    if letter.get("state") == "uncertain":
        return "?", BAD
    if letter.get("state") == "replaying":
        return "now", WARNING
    return ("yes", WARNING) if letter.get("may_have_run") else ("no", GOOD)


def _text(content: Letter, name: str) -> str:
    value = content.get(name)
    return "" if value is None else str(value)


def _print_letter(letter: Letter, *, plain: bool) -> None:
    def say(name: str, text: str, colour: str = "") -> None:
        line(name, text, colour, plain=plain)

    say("id", _text(letter, "id"))
    say("time", f"{_text(letter, 'time')}, kept until {_text(letter, 'expires')}")
    say("route", _text(letter, "route"))
    say("state", _text(letter, "state"), "" if letter.get("state") == "waiting" else WARNING)
    why = f", {_text(letter, 'why')}" if letter.get("why") else ""
    say("error", f"{_text(letter, 'error')} ({_text(letter, 'category')}{why})", BAD)
    ran = "yes, find out before you send it again" if letter.get("may_have_run") else "no"
    say("may have run", ran, WARNING if letter.get("may_have_run") else GOOD)
    if letter.get("fallback") not in {None, "-"}:
        say("fallback", f"the upstream {_text(letter, 'fallback')} was asked afterwards")
    if letter.get("record"):
        say("key", f"holdfast keys show {_text(letter, 'record')}")
    say("request id", _text(letter, "request_id"))
    say("client", _text(letter, "client"))
    for number, run in enumerate(letter.get("runs") or []):
        name = "first sent" if not number else f"replay {number}"
        click.echo(f"\n{name}: {clean(_text(run, 'time'))}, {clean(_text(run, 'result'))}")
        for attempt in run.get("attempts") or []:
            click.echo(f"  {clean(_attempt(attempt))}")
    click.echo(f"\n{clean(_text(letter, 'method'))} {clean(_text(letter, 'target'))}")
    for name, value in letter.get("headers") or []:
        click.echo(f"{clean(str(name))}: {clean(str(value))}")
    for name in letter.get("headers_dropped") or []:
        line(str(name), "(not kept, give it with -H)", WARNING, plain=plain)
    click.echo("")
    _print_body(letter, plain=plain)


def _attempt(attempt: Letter) -> str:
    parts = [
        f"{_text(attempt, 'n')}. {_text(attempt, 'upstream')} {_text(attempt, 'address')}",
        f"{_text(attempt, 'status') or _text(attempt, 'outcome')} after {_text(attempt, 'ms')} ms",
        "sent" if attempt.get("sent") else "nothing sent",
    ]
    if attempt.get("wait_ms") is not None:
        parts.insert(1, f"waited {_text(attempt, 'wait_ms')} ms ({_text(attempt, 'wait_for')})")
    if attempt.get("why"):
        parts.append(_text(attempt, "why"))
    return ", ".join(parts)


def _print_body(letter: Letter, *, plain: bool) -> None:
    if letter.get("body_missing"):
        reason = _text(letter, "body_missing")
        line("body", f"not kept ({reason}), so it cannot be sent again", BAD, plain=plain)
        return
    text = letter.get("body")
    if isinstance(text, str):
        for part in text[:_SHOWN_BODY].splitlines():
            click.echo(clean(part.replace("\t", "    ")))
        shown, size = min(len(text), _SHOWN_BODY), len(text)
    else:
        import base64  # noqa: PLC0415 - keeps --help fast

        data = base64.b64decode(_text(letter, "body_base64"))
        shown, size = min(len(data), _SHOWN_BODY), len(data)
        for start in range(0, shown, _HEX_WIDTH):
            row = data[start : start + _HEX_WIDTH]
            printable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
            click.echo(f"{start:08x}  {row.hex(' '):<{_HEX_WIDTH * 3}} {printable}")
    if shown < size:
        click.echo(f"… and {size - shown} more; use --json for all")
