"""``holdfast healthcheck``: for containers, whose images have no curl."""

import http.client
import json
import socket
from contextlib import closing, suppress
from urllib.parse import urlsplit

import click

_EXAMPLE = "\b\nExample:\n  holdfast healthcheck --admin http://127.0.0.1:9901"

_TIMEOUT = 3.0
"""Seconds after which a silent proxy counts as none."""


@click.command(epilog=_EXAMPLE)
@click.option(
    "--admin",
    default="http://127.0.0.1:9901",
    show_default=True,
    envvar="HOLDFAST_ADMIN",
    metavar="URL",
    help="The admin listener: a URL, or unix:PATH.",
)
def healthcheck(admin: str) -> None:
    """Exit 0 when the proxy is ready to take requests.

    Exit code 1: it is not, or does not answer, 2: wrong usage.
    """
    with closing(_connection(admin)) as connection:
        try:
            # The listener turns strange hosts away, and this one is always its own.
            connection.request("GET", "/readyz", headers={"Host": "localhost"})
            answer = connection.getresponse()
            body = answer.read()
        except OSError as error:
            reason = error.strerror or error
            raise click.ClickException(f"no answer from {admin}: {reason}") from None
        except http.client.HTTPException:  # whose text is the stranger's
            raise click.ClickException(f"no answer from {admin}: it speaks no HTTP") from None
    if answer.status != http.client.OK:
        raise click.ClickException(f"not ready: {_reason(body) or answer.status}")
    click.echo("ready")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT)
        self.sock.connect(self._path)


def _connection(admin: str) -> http.client.HTTPConnection:
    """A connection that is yet to be made."""
    if admin.startswith("unix:"):
        return _UnixConnection(admin.removeprefix("unix:"))
    # It may be no URL: no such port, a bracket left open, a name that DNS could not hold.
    with suppress(ValueError, http.client.InvalidURL):
        url = urlsplit(admin if "://" in admin else f"http://{admin}")
        host = url.hostname or ""
        host.encode("idna")
        if url.scheme == "http" and host and not (url.path.strip("/") or url.query):
            port = url.port or http.client.HTTP_PORT
            return http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
    raise click.BadParameter("write http://HOST:PORT or unix:PATH", param_hint="--admin")


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["reason"])
    except (ValueError, KeyError, TypeError):
        return ""
