"""``holdfast healthcheck``: the readiness probe of containers whose image has no curl."""

import http.client

import click

from proxy.cli.admin_client import AdminClient
from proxy.cli.options import admin_option

_EXAMPLE = "\b\nExample:\n  holdfast healthcheck --admin http://127.0.0.1:9901"


@click.command(epilog=_EXAMPLE)
@admin_option
def healthcheck(admin: str) -> None:
    """Exit 0 when the proxy is ready to take requests.

    Exit code 1: it is not, or does not answer, 2: wrong usage.
    """
    answer = AdminClient(admin).send("GET", "/readyz")
    if answer.status != http.client.OK:
        raise click.ClickException(f"not ready: {answer.text('reason') or answer.status}")
    click.echo("ready")
