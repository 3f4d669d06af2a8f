"""Asking for dead letters, and what to say of an answer that is no good one."""

from collections.abc import Iterator
from urllib.parse import quote, urlencode

import click

from proxy.cli.admin_client import AdminResponse, ask, lines_of, refused
from proxy.cli.untrusted_json import UntrustedJson

PAGE = 1000
"""Letters that the listener tells of at a time."""
_OK = 200
_PATIENCE = 15.0
_LARGEST = 256 * 1024 * 1024

_WORDS = {
    "no_letter": "there is no such letter: it was sent again or dropped, has expired, or another "
    "machine has it",
    "letters": "the file of the dead letters does not answer: see the proxy's log, then try again",
}


def ask_for(
    method: str, path: str, admin: str, token: str | None, patience: float = _PATIENCE
) -> AdminResponse:
    """The answer, if it is a good one; else an error that says what to do."""
    answer = ask(admin, method, path, token=token, patience=patience, largest=_LARGEST)
    if answer.status == _OK and answer.content:
        return answer
    raise click.ClickException(complaint(answer, admin, token))


def complaint(answer: AdminResponse, admin: str, token: str | None) -> str:
    """What is wrong with an answer that is no good one."""
    return _WORDS.get(answer.problem) or refused(admin, token, answer).message


def letters_of(route: str | None, **others: object) -> str:
    """The path of the letters of *route*, or of all."""
    return f"/dead-letters?{_query(route, **others)}"


def every_letter(route: str | None, admin: str, token: str | None) -> Iterator[UntrustedJson]:
    """All letters there are now, the oldest one first; those that come later are not among them."""
    after: dict[str, object] = {}
    while True:
        path = letters_of(route, order="oldest", limit=PAGE, **after)
        page = ask_for("GET", path, admin, token).told
        yield from page.parts("letters")
        following = page.written("next")
        if following is None:
            return
        after = {"after": following}


def exported(route: str | None, admin: str, token: str | None) -> Iterator[str]:
    """All of all letters, a line of JSON for each."""
    path = f"/dead-letters/export?{_query(route)}"
    found = lines_of(admin, path, token=token, patience=_PATIENCE)
    if isinstance(found, AdminResponse):
        raise click.ClickException(complaint(found, admin, token))
    return found


def _query(route: str | None, **others: object) -> str:
    given = {} if route is None else {"route": route}
    return urlencode({**given, **others}, quote_via=quote)
