"""``holdfast version``: what this installation is made of."""

import json

import click

_EXAMPLE = "\b\nExample:\n  holdfast version --json"


@click.command(epilog=_EXAMPLE)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def version(*, as_json: bool) -> None:
    """Print the versions of Holdfast, Python and its packages.

    Put it into the report of a fault. "parser" reads requests, "event_loop" runs them.
    """
    from proxy.runtime.versions import versions  # noqa: PLC0415 - keeps --help fast

    found = versions()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    lines: dict[str, object] = {name: text for name, text in found.items() if name != "packages"}
    lines |= found["packages"]
    width = max(map(len, lines))
    for name, text in lines.items():
        click.echo(f"{name:{width}}  {text}")
