"""``holdfast healthcheck``: for containers, whose images have no curl."""

import http.client
import json
import socket

import click

_EXAMPLE = "\b\nExample:\n  holdfast healthcheck --admin http://127.0.0.1:9901"


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
    """Exit 0 when the proxy is ready to take requests."""
    try:
        connection = _connect(admin)
        connection.request("GET", "/readyz", headers={"Host": "localhost"})
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise click.ClickException(f"no answer from {admin}: {reason}") from None
    if answer.status != http.client.OK:
        raise click.ClickException(f"not ready: {_reason(body) or answer.status}")
    click.echo("ready")


_TIMEOUT = 3.0


def _connect(admin: str) -> http.client.HTTPConnection:
    if admin.startswith("unix:"):
        connection = http.client.HTTPConnection("localhost", timeout=_TIMEOUT)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(_TIMEOUT)
        connection.sock.connect(admin.removeprefix("unix:"))
        return connection
    scheme, found, rest = admin.rpartition("://")
    if found and scheme not in ("http", "https"):
        raise click.BadParameter("write http://HOST:PORT, https://HOST:PORT or unix:PATH")
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    try:
        return kind(rest.rstrip("/"), timeout=_TIMEOUT)
    except http.client.InvalidURL:
        raise click.BadParameter("write http://HOST:PORT") from None


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["reason"])
    except (ValueError, KeyError, TypeError):
        return ""
