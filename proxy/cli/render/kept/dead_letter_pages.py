"""Pages of dead letters: a table of many, and one in full."""

import binascii
from collections.abc import Iterator

from proxy.cli.render.kept.run_lines import labelled, run_lines
from proxy.cli.render.shell_command import explain_command
from proxy.cli.render.tables import Cell, Column, Line, Page, Table, Tone
from proxy.cli.untrusted_json import UntrustedJson, legible

_SHOWN_BODY = 64 * 1024
_HEX_WIDTH = 16
_COLUMNS = (
    Column("id", is_text=True, is_whole=True),
    Column("time (UTC)", is_text=True, is_whole=True),
    Column("route", is_text=True),
    Column("error", is_text=True),
    Column("category", is_text=True),
    Column("tries"),
    Column("ran?", is_text=True),
)


# The list.


def dead_letter_list(page: UntrustedJson, order: str) -> Page:
    """Return the page with a table of dead letters."""
    dead_letters = page.parts("letters")
    title = f"Dead letters, the {order} first"
    if "next" in page:
        title = f"The {order} {len(dead_letters)} dead letters; for more use --limit, or export"
    return Page([], [Table(title, _COLUMNS, [_row(dead_letter) for dead_letter in dead_letters])])


def _row(dead_letter: UntrustedJson) -> tuple[Cell, ...]:
    category = dead_letter.text("category")
    return (
        Cell(dead_letter.text("id")),
        Cell(dead_letter.text("time")[5:16].replace("T", " ")),
        Cell(dead_letter.text("route")),
        Cell(dead_letter.text("error"), Tone.BAD),
        Cell(category, Tone.WARNING if category == "transient" else Tone.BAD),
        Cell(f"{dead_letter.count('attempts_used')}/{dead_letter.count('attempts_allowed')}"),
        _ran(dead_letter),
    )


def _ran(dead_letter: UntrustedJson) -> Cell:
    if dead_letter.text("state") == "replaying":
        return Cell("now", Tone.WARNING)
    if not dead_letter.is_true("may_have_run"):
        return Cell("no", Tone.GOOD)
    return Cell("maybe", Tone.BAD if dead_letter.text("state") == "uncertain" else Tone.WARNING)


# One dead letter in full.


def dead_letter_page(dead_letter: UntrustedJson) -> Page:
    """Return the page with all of one dead letter."""
    return Page(
        [
            *_summary(dead_letter),
            *run_lines(dead_letter, first="first sent", later="replay"),
            (),
            *_request(dead_letter),
            (),
            *_body(dead_letter),
        ]
    )


def _summary(dead_letter: UntrustedJson) -> Iterator[Line]:
    yield labelled("id", dead_letter.text("id"))
    yield labelled("time", f"{dead_letter.text('time')}, kept until {dead_letter.text('expires')}")
    yield labelled("route", dead_letter.text("route"))
    state = dead_letter.text("state")
    yield labelled("state", state, Tone.PLAIN if state == "waiting" else Tone.WARNING)
    reason = f", {dead_letter.text('why')}" if dead_letter.text("why") else ""
    yield labelled(
        "error", f"{dead_letter.text('error')} ({dead_letter.text('category')}{reason})", Tone.BAD
    )
    if dead_letter.text("meaning"):
        yield labelled(dead_letter.text("why"), dead_letter.text("meaning"))
    if dead_letter.is_true("may_have_run"):
        yield labelled("may have run", "maybe, find out before you send it again", Tone.WARNING)
    else:
        yield labelled("may have run", "no", Tone.GOOD)
    if dead_letter.text("fallback") not in {"", "-"}:
        yield labelled(
            "fallback", f"the upstream {dead_letter.text('fallback')} was asked afterwards"
        )
    if dead_letter.text("record"):
        yield labelled("key", f"holdfast keys show {dead_letter.text('record')}")
    yield labelled("request id", dead_letter.text("request_id"))
    yield labelled("client", dead_letter.text("client"))
    if dead_letter.text("caller"):
        yield labelled("caller", dead_letter.text("caller"))
    command = explain_command(dead_letter)
    if command:
        # Above what the client sent, which could look like another one.
        yield labelled("explain", command)


def _request(dead_letter: UntrustedJson) -> Iterator[Line]:
    yield (Cell(f"{dead_letter.text('method')} {dead_letter.text('target')}"),)
    for name, value in dead_letter.pairs("headers"):
        yield labelled(name, value)
    for name in dead_letter.texts("headers_dropped"):
        yield labelled(legible(name), "(not kept, give it with -H)", Tone.WARNING)


def _body(dead_letter: UntrustedJson) -> Iterator[Line]:
    if "body_missing" in dead_letter:
        reason = dead_letter.text("body_missing")
        yield labelled("body", f"not kept ({reason}), so it cannot be sent again", Tone.BAD)
        return
    text = dead_letter.raw_text("body")
    if text is None:
        data = binascii.a2b_base64(dead_letter.text("body_base64"))
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
