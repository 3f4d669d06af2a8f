"""Client of the admin listener: what ``curl`` would do, for images that have no curl.

Every error becomes one line that says what to do about it.
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

_TIMEOUT = 3.0
"""Seconds after which a proxy that sends nothing counts as unreachable."""
_MAX_BYTES = 1024 * 1024
"""Bytes that are read of a response: an untrusted server may send without end."""
_PROBLEM = "urn:holdfast:problem:"


@dataclass(frozen=True, slots=True)
class AdminResponse:
    """A response of the admin listener."""

    status: int
    content: dict[str, object]
    """The JSON object; empty if there was none."""

    def text(self, name: str) -> str:
        """Return a member that is a string, safe to print; empty if there is none."""
        return self.untrusted.text(name)

    def number(self, name: str) -> float | None:
        """Return a member that is a number of a sensible size; None if there is none."""
        return self.untrusted.number(name)

    @property
    def untrusted(self) -> UntrustedJson:
        """The content, wrapped for safe printing."""
        return UntrustedJson(self.content)

    @property
    def problem(self) -> str:
        """The reason of a problem response of Holdfast; empty if it is none."""
        problem_type = self.text("type")
        return problem_type.removeprefix(_PROBLEM) if problem_type.startswith(_PROBLEM) else ""


def send_request(
    admin: str,
    method: str,
    path: str,
    *,
    token: str | None = None,
    timeout: float = _TIMEOUT,
    body: bytes | None = None,
    max_bytes: int = _MAX_BYTES,
) -> AdminResponse:
    """Send a request to the listener at *admin*, a URL or ``unix:PATH``.

    *timeout* is the number of seconds to wait for the next byte, *max_bytes* the number of bytes
    of the response that are read. Raises click's errors.
    """
    with closing(_connection(admin, timeout)) as connection, _one_line_errors(admin):
        connection.request(method, path, body=body, headers=_headers(token))
        response = connection.getresponse()
        content = response.read(max_bytes)
    return AdminResponse(response.status, _object(content))


def stream_lines(
    admin: str, path: str, *, token: str | None = None, timeout: float = _TIMEOUT
) -> Iterator[str] | AdminResponse:
    """Return the lines of a long response as they arrive; or the response, if it is an error."""
    connection = _connection(admin, timeout)
    with _one_line_errors(admin):
        connection.request("GET", path, headers=_headers(token))
        response = connection.getresponse()
        if response.status != http.client.OK or response.getheader("Content-Type") != _LINES:
            with closing(connection):
                return AdminResponse(response.status, _object(response.read(_MAX_BYTES)))

    def lines() -> Iterator[str]:
        with closing(connection), _one_line_errors(admin):
            while line := response.readline():
                yield line.decode("utf-8", "replace")

    return lines()


_LINES = "application/jsonl"


def _headers(token: str | None) -> dict[str, str]:
    # The listener refuses unknown hosts; localhost is always accepted.
    headers = {"Host": "localhost"}
    if token is not None:
        headers["Authorization"] = f"Bearer {_valid_token(token)}"
    return headers


@contextmanager
def _one_line_errors(admin: str) -> Iterator[None]:
    """Turn connection and protocol errors into errors of one line."""
    try:
        yield
    except OSError as error:
        raise _unreachable(admin, error.strerror or str(error)) from None
    except http.client.HTTPException:  # its text comes from an untrusted server
        raise _unreachable(admin, "it speaks no HTTP") from None


def error_for(admin: str, token: str | None, response: AdminResponse) -> click.ClickException:
    """Return the error for a response that is not the expected one."""
    match response.problem:
        case "token" if token is None:
            text = f"{admin} asks for the admin token: set HOLDFAST_ADMIN_TOKEN, or use --token"
        case "token":
            text = f"{admin} has another admin token: give the one that its file has"
        case "":
            text = (
                f"what answers at {admin} is no admin listener of Holdfast: name that with --admin"
            )
        case _:
            text = f"{admin} answered {response.status}: {response.text('detail')}"
    return click.ClickException(text)


def _unreachable(admin: str, reason: str) -> click.ClickException:
    return click.ClickException(
        f"no answer from {admin}: {reason}; start Holdfast, or name its admin listener with --admin"
    )


def _valid_token(token: str) -> str:
    """Return *token* if a header can carry it; the configuration accepts no other."""
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise click.BadParameter(
            "it has spaces or other unusual characters, write it as admin_token has it",
            param_hint="--token",
        )
    return token


class _UnixConnection(http.client.HTTPConnection):
    """An HTTP connection over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self._timeout = timeout

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout)
        self.sock.connect(self._path)


def _connection(admin: str, timeout: float) -> http.client.HTTPConnection:
    """Return a connection that is not yet established."""
    if admin.startswith("unix:"):
        return _UnixConnection(admin.removeprefix("unix:"), timeout)
    # Not every text is a URL: an impossible port, an open bracket, a name too long for DNS.
    with suppress(ValueError, http.client.InvalidURL):
        url = urlsplit(admin if "://" in admin else f"http://{admin}")
        host = url.hostname or ""
        host.encode("idna")
        if url.scheme == "http" and host and not (url.path.strip("/") or url.query):
            port = url.port or http.client.HTTP_PORT
            return http.client.HTTPConnection(host, port, timeout=timeout)
    raise click.BadParameter("write http://HOST:PORT or unix:PATH", param_hint="--admin")


def _object(body: bytes) -> dict[str, object]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
