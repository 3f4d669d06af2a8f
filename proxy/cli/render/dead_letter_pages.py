"""Dead letters as a person wants to see them: a table of many, all of one."""

import binascii
from collections.abc import Iterator

from proxy.cli.render.number_format import brief
from proxy.cli.render.tables import Cell, Column, Line, Page, Table, Tone
from proxy.cli.untrusted_json import UntrustedJson, legible

_SHOWN_BODY = 64 * 1024
_HEX_WIDTH = 16
_COLUMNS = (
    Column("id", is_text=True, is_whole=True),
    Column("time", is_text=True, is_whole=True),
    Column("route", is_text=True),
    Column("error", is_text=True),
    Column("category", is_text=True),
    Column("tries"),
    Column("ran?", is_text=True),
)


# Many.


def listing(page: UntrustedJson, route: str | None, order: str) -> Page:
    """A table of letters."""
    letters = page.parts("letters")
    if not letters:
        of_route = "" if route is None else f" of route {legible(route)}"
        return Page([(Cell(f"no dead letters{of_route}"),)])
    title = f"Dead letters, the {order} first"
    if "next" in page:
        title = f"The {order} {len(letters)} dead letters; for more use --limit, or export"
    return Page([], [Table(title, _COLUMNS, [_row(letter) for letter in letters])])


def _row(letter: UntrustedJson) -> tuple[Cell, ...]:
    category = letter.text("category")
    return (
        Cell(letter.text("id")),
        Cell(letter.text("time")[5:16].replace("T", " ")),
        Cell(letter.text("route")),
        Cell(letter.text("error"), Tone.BAD),
        Cell(category, Tone.WARNING if category == "transient" else Tone.BAD),
        Cell(f"{letter.count('attempts_used')}/{letter.count('attempts_allowed')}"),
        _ran(letter),
    )


def _ran(letter: UntrustedJson) -> Cell:
    if letter.text("state") == "replaying":
        return Cell("now", Tone.WARNING)
    if not letter.is_true("may_have_run"):
        return Cell("no", Tone.GOOD)
    return Cell("maybe", Tone.BAD if letter.text("state") == "uncertain" else Tone.WARNING)


# One.


def whole(letter: UntrustedJson) -> Page:
    """All of a letter."""
    return Page([*_summary(letter), *_runs(letter), (), *_request(letter), (), *_body(letter)])


def _said(name: str, text: str, tone: Tone = Tone.PLAIN) -> Line:
    return Cell(f"{name}: "), Cell(text, tone)


def _summary(letter: UntrustedJson) -> Iterator[Line]:
    yield _said("id", letter.text("id"))
    yield _said("time", f"{letter.text('time')}, kept until {letter.text('expires')}")
    yield _said("route", letter.text("route"))
    state = letter.text("state")
    yield _said("state", state, Tone.PLAIN if state == "waiting" else Tone.WARNING)
    why = f", {letter.text('why')}" if letter.text("why") else ""
    yield _said("error", f"{letter.text('error')} ({letter.text('category')}{why})", Tone.BAD)
    if letter.is_true("may_have_run"):
        yield _said("may have run", "maybe, find out before you send it again", Tone.WARNING)
    else:
        yield _said("may have run", "no", Tone.GOOD)
    if letter.text("fallback") not in {"", "-"}:
        yield _said("fallback", f"the upstream {letter.text('fallback')} was asked afterwards")
    if letter.text("record"):
        yield _said("key", f"holdfast keys show {letter.text('record')}")
    yield _said("request id", letter.text("request_id"))
    yield _said("client", letter.text("client"))
    if letter.text("caller"):
        yield _said("caller", letter.text("caller"))


def _runs(letter: UntrustedJson) -> Iterator[Line]:
    for number, run in enumerate(letter.parts("runs")):
        yield ()
        name = f"replay {number}" if number else "first sent"
        result = run.text("result")
        if not number and result == "refused":
            name, result = "refused", "nothing was sent"
        yield _said(name, f"{run.text('time')}, {result}")
        for attempt in run.parts("attempts"):
            yield (Cell(f"  {', '.join(_attempt(attempt))}"),)


def _attempt(attempt: UntrustedJson) -> Iterator[str]:
    yield f"{attempt.count('n')}. {attempt.text('upstream')} {attempt.text('address')}"
    if "wait_ms" in attempt:
        yield f"waited {brief(attempt.number('wait_ms') or 0)} ({attempt.text('wait_for')})"
    ending = str(attempt.count("status") or attempt.text("outcome"))
    yield f"{ending} after {brief(attempt.number('ms') or 0)}"
    yield "sent" if attempt.is_true("sent") else "nothing sent"
    if "why" in attempt:
        yield attempt.text("why")


def _request(letter: UntrustedJson) -> Iterator[Line]:
    yield (Cell(f"{letter.text('method')} {letter.text('target')}"),)
    for name, value in letter.pairs("headers"):
        yield _said(name, value)
    for name in letter.texts("headers_dropped"):
        yield _said(legible(name), "(not kept, give it with -H)", Tone.WARNING)


def _body(letter: UntrustedJson) -> Iterator[Line]:
    if "body_missing" in letter:
        reason = letter.text("body_missing")
        yield _said("body", f"not kept ({reason}), so it cannot be sent again", Tone.BAD)
        return
    text = letter.written("body")
    if text is None:
        data = binascii.a2b_base64(letter.text("body_base64"))
        size, lines = len(data), _hexadecimal(data[:_SHOWN_BODY])
    else:
        parts = text[:_SHOWN_BODY].splitlines()
        size, lines = len(text), (legible(part.replace("\t", "    ")) for part in parts)
    for line in lines:
        yield (Cell(line),)
    if size > _SHOWN_BODY:
        yield (Cell(f"... and {size - _SHOWN_BODY} more; use --json for all", Tone.WARNING),)


def _hexadecimal(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), _HEX_WIDTH):
        row = data[start : start + _HEX_WIDTH]
        printable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{start:08x}  {row.hex(' '):<{_HEX_WIDTH * 3}} {printable}"
