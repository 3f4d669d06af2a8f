"""Asking the admin listener: what ``curl`` would do, for images that have none.

Whatever goes wrong on the way becomes one line that says what to do about it.
"""

import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import click

from proxy.cli.untrusted_json import UntrustedJson

_PATIENCE = 3.0
"""Seconds after which a silent proxy counts as none."""
_LARGEST = 1024 * 1024
"""Bytes that are read of an answer: a stranger may send without end."""
_PROBLEM = "urn:holdfast:problem:"


@dataclass(frozen=True, slots=True)
class AdminResponse:
    """What the listener said."""

    status: int
    content: dict[str, object]
    """The JSON object; empty if there was none."""

    def text(self, name: str) -> str:
        """A member that is a text, fit to be printed; else an empty one."""
        return self.told.text(name)

    def number(self, name: str) -> float | None:
        """A member that is a number of a sensible size, else None."""
        return self.told.number(name)

    @property
    def told(self) -> UntrustedJson:
        """The same, for printing."""
        return UntrustedJson(self.content)

    @property
    def problem(self) -> str:
        """The reason, if it is a problem of ours."""
        kind = self.text("type")
        return kind.removeprefix(_PROBLEM) if kind.startswith(_PROBLEM) else ""


def ask(
    admin: str,
    method: str,
    path: str,
    *,
    token: str | None = None,
    patience: float = _PATIENCE,
    body: bytes | None = None,
    largest: int = _LARGEST,
) -> AdminResponse:
    """Send a request to the listener at *admin*, a URL or ``unix:PATH``.

    *patience* is how many seconds it may keep silent, *largest* how many bytes of its answer
    are read. Raises click's errors.
    """
    with closing(_connection(admin, patience)) as connection, _failing(admin):
        connection.request(method, path, body=body, headers=_headers(token))
        answer = connection.getresponse()
        content = answer.read(largest)
    return AdminResponse(answer.status, _object(content))


def lines_of(
    admin: str, path: str, *, token: str | None = None, patience: float = _PATIENCE
) -> Iterator[str] | AdminResponse:
    """The lines of a long answer as they come; or the answer, if it is no good one."""
    connection = _connection(admin, patience)
    with _failing(admin):
        connection.request("GET", path, headers=_headers(token))
        answer = connection.getresponse()
        if answer.status != http.client.OK or answer.getheader("Content-Type") != _LINES:
            with closing(connection):
                return AdminResponse(answer.status, _object(answer.read(_LARGEST)))

    def lines() -> Iterator[str]:
        with closing(connection), _failing(admin):
            while line := answer.readline():
                yield line.decode("utf-8", "replace")

    return lines()


_LINES = "application/jsonl"


def _headers(token: str | None) -> dict[str, str]:
    # The listener turns strange hosts away, and this one is always its own.
    headers = {"Host": "localhost"}
    if token is not None:
        headers["Authorization"] = f"Bearer {_checked(token)}"
    return headers


@contextmanager
def _failing(admin: str) -> Iterator[None]:
    """Turn what goes wrong on the way into one line."""
    try:
        yield
    except OSError as error:
        raise _no_answer(admin, error.strerror or str(error)) from None
    except http.client.HTTPException:  # whose text is the stranger's
        raise _no_answer(admin, "it speaks no HTTP") from None


def refused(admin: str, token: str | None, answer: AdminResponse) -> click.ClickException:
    """What to say of an answer that is not what was asked for."""
    match answer.problem:
        case "token" if token is None:
            complaint = (
                f"{admin} asks for the admin token: set HOLDFAST_ADMIN_TOKEN, or use --token"
            )
        case "token":
            complaint = f"{admin} has another admin token: give the one that its file has"
        case "":
            complaint = (
                f"what answers at {admin} is no admin listener of Holdfast: name that with --admin"
            )
        case _:
            complaint = f"{admin} answered {answer.status}: {answer.text('detail')}"
    return click.ClickException(complaint)


def _no_answer(admin: str, why: str) -> click.ClickException:
    return click.ClickException(
        f"no answer from {admin}: {why}; start Holdfast, or name its admin listener with --admin"
    )


def _checked(token: str) -> str:
    """*token*, if a header can carry it; the configuration takes no other."""
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise click.BadParameter(
            "it has spaces or other unusual characters, write it as admin_token has it",
            param_hint="--token",
        )
    return token


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, patience: float) -> None:
        super().__init__("localhost", timeout=patience)
        self._path = path
        self._patience = patience

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._patience)
        self.sock.connect(self._path)


def _connection(admin: str, patience: float) -> http.client.HTTPConnection:
    """A connection that is yet to be made."""
    if admin.startswith("unix:"):
        return _UnixConnection(admin.removeprefix("unix:"), patience)
    # It may be no URL: no such port, a bracket left open, a name that DNS could not hold.
    with suppress(ValueError, http.client.InvalidURL):
        url = urlsplit(admin if "://" in admin else f"http://{admin}")
        host = url.hostname or ""
        host.encode("idna")
        if url.scheme == "http" and host and not (url.path.strip("/") or url.query):
            port = url.port or http.client.HTTP_PORT
            return http.client.HTTPConnection(host, port, timeout=patience)
    raise click.BadParameter("write http://HOST:PORT or unix:PATH", param_hint="--admin")


def _object(body: bytes) -> dict[str, object]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
