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
_LINES = "application/jsonl"


class AdminResponse(UntrustedJson):
    """A response of the admin listener."""

    def __init__(self, status: int, content: dict[str, object]) -> None:
        """Take the JSON object as *content*; empty if there was none."""
        super().__init__(content)
        self.status = status
        self.content = content

    @property
    def problem(self) -> str:
        """The reason of a problem response of Holdfast; empty if it is none."""
        problem_type = self.text("type")
        return problem_type.removeprefix(_PROBLEM) if problem_type.startswith(_PROBLEM) else ""


@dataclass(frozen=True, slots=True)
class AdminClient:
    """Sends requests to an admin listener. All its methods raise click's errors."""

    admin: str
    """The listener: a URL, or ``unix:PATH``."""
    token: str | None = None

    def send(
        self,
        method: str,
        path: str,
        *,
        timeout: float = _TIMEOUT,
        body: bytes | None = None,
        max_bytes: int = _MAX_BYTES,
    ) -> AdminResponse:
        """Send a request and return its response.

        *timeout* is the number of seconds to wait for the next byte, *max_bytes* the number of
        bytes of the response that are read.
        """
        with closing(self._connection(timeout)) as connection, self._one_line_errors():
            connection.request(method, path, body=body, headers=self._headers())
            response = connection.getresponse()
            content = response.read(max_bytes)
        return AdminResponse(response.status, _object(content))

    def stream_lines(self, path: str, *, timeout: float) -> Iterator[str] | AdminResponse:
        """Return the lines of a long response as they arrive; the response, if it is an error."""
        connection = self._connection(timeout)
        with self._one_line_errors():
            connection.request("GET", path, headers=self._headers())
            response = connection.getresponse()
            if response.status != http.client.OK or response.getheader("Content-Type") != _LINES:
                with closing(connection):
                    return AdminResponse(response.status, _object(response.read(_MAX_BYTES)))

        def lines() -> Iterator[str]:
            with closing(connection), self._one_line_errors():
                while line := response.readline():
                    yield line.decode("utf-8", "replace")

        return lines()

    def error_for(self, response: AdminResponse) -> click.ClickException:
        """Return the error for a response that is not the expected one."""
        admin = self.admin
        match response.problem:
            case "token" if self.token is None:
                text = f"{admin} asks for the admin token: set HOLDFAST_ADMIN_TOKEN, or use --token"
            case "token":
                text = f"{admin} refuses this admin token: use the one in its configuration"
            case "":
                text = (
                    f"what answers at {admin} is no admin listener of Holdfast: name that with "
                    f"--admin"
                )
            case "no_route":
                text = (
                    f"{admin} is where the proxy serves its clients: name its admin listener with "
                    f"--admin"
                )
            case _:
                text = f"{admin} answered {response.status}: {response.text('detail')}"
        return click.ClickException(text)

    def _headers(self) -> dict[str, str]:
        # The listener refuses unknown hosts; localhost is always accepted.
        headers = {"Host": "localhost"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {_valid_token(self.token)}"
        return headers

    @contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        """Turn connection and protocol errors into errors of one line."""
        try:
            yield
        except OSError as error:
            raise self._unreachable(error.strerror or str(error)) from None
        except http.client.HTTPException:  # its text comes from an untrusted server
            raise self._unreachable("it does not speak HTTP") from None

    def _unreachable(self, reason: str) -> click.ClickException:
        return click.ClickException(
            f"no answer from {self.admin}: {reason}; start Holdfast, or name its admin listener "
            f"with --admin"
        )

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        """Return a connection that is not yet established."""
        admin = self.admin
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


def _object(body: bytes) -> dict[str, object]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
