"""``holdfast schema``: the JSON Schema of the configuration file."""

import json

import click

_EXAMPLE = "\b\nExample:\n  holdfast schema > schema.json"


@click.command(epilog=_EXAMPLE)
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors.

    Write it beside the file and begin the file with
    "# yaml-language-server: $schema=./schema.json".
    """
    from proxy.config.schema.json_schema import json_schema  # noqa: PLC0415 - keeps --help fast

    click.echo(json.dumps(json_schema(), indent=2))
