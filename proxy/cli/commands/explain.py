"""``holdfast explain``: the route and policy of a request, and a dry run of its attempts."""

import json
import os
import sys

import click

from proxy.cli.options import LINES, config_option

_EXAMPLES = """\b
Examples:
  holdfast explain -c holdfast.yaml GET http://api.example/v1/orders
  holdfast explain -c holdfast.yaml POST /v1/charges --outcome 503
  holdfast explain -c holdfast.yaml GET / --outcome timeout --outcome 200
  holdfast explain -c holdfast.yaml GET /v1/orders --outcome 503 --format json
  holdfast explain -c holdfast.yaml PUT /v1/orders/7 --hand-off
"""


@click.command(epilog=_EXAMPLES)
@config_option
@click.argument("method", metavar="METHOD")
@click.argument("url", metavar="URL")
@click.option(
    "-H",
    "--header",
    "fields",
    multiple=True,
    type=LINES,
    metavar="'NAME: VALUE'",
    help="A header field of the request. May be repeated.",
)
@click.option(
    "--outcome",
    "outcome_texts",
    multiple=True,
    metavar="OUTCOME",
    help="What becomes of attempt 1, 2, …: a status (503), a status with header fields "
    "(429:retry-after=5), connect, reset, timeout, protocol, certificate, busy or truncated. "
    "May be repeated.",
)
@click.option(
    "--hand-off",
    "shows_delivery",
    is_flag=True,
    help="Show how it would be delivered: the schedule, whether it is repeatable, and what a crash "
    "would do to it.",
)
@click.option(
    "--roll",
    type=click.FloatRange(0, 1, max_open=True),
    metavar="U",
    help="What chance shall give, from 0 up to 1: waits become exact. Without it they are ranges.",
)
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="For people, or one JSON object with everything that the text has.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def explain(
    files: tuple[str, ...],
    method: str,
    url: str,
    fields: tuple[str, ...],
    outcome_texts: tuple[str, ...],
    *,
    shows_delivery: bool,
    roll: float | None,
    output: str,
    as_json: bool,
) -> None:
    """Say what would happen to a request, without sending it.

    Which route takes it, and why the earlier ones do not; the policy in force, each value with
    the place where it is written; and for the given outcomes each attempt, the reason for what
    follows it, the waits and the end. Time and chance aside, the answer comes from the
    stages that the proxy itself runs. URL may be a path; the host of a URL takes precedence
    over a Host field. No other request is in flight: the budget is full, breakers are closed.

    Exit code 0: explained, also if no route matches (404); 1: the configuration has faults;
    2: wrong usage.
    """
    # Imported here, so that --help does not wait for them.
    from proxy.cli.render.explanation import explanation_lines  # noqa: PLC0415 - see above
    from proxy.cli.request_args import (  # noqa: PLC0415 - see above
        read_field,
        read_outcome,
        read_request,
    )
    from proxy.config import ConfigError, load_with_origins  # noqa: PLC0415 - see above
    from proxy.core.clock import SystemClock  # noqa: PLC0415 - see above
    from proxy.explain.explanation import explain_request  # noqa: PLC0415 - see above
    from proxy.policy.caller_fields import hop_for  # noqa: PLC0415 - see above

    pairs = [read_field(field) for field in fields]
    outcomes = [read_outcome(word) for word in outcome_texts]
    try:
        loaded, origins = load_with_origins(files, os.environ)
    except ConfigError as error:
        for fault in error.report.diagnostics:
            click.echo(str(fault))
        click.echo(error.report.summary())
        sys.exit(1)
    request = read_request(method, url, pairs, hop_for(loaded.settings))
    explanation = explain_request(request, loaded.settings, origins)
    explanation.shows_delivery = shows_delivery
    explanation.play(outcomes, outcome_texts, roll, SystemClock().wall())
    if as_json or output == "json":
        click.echo(json.dumps(explanation.to_json(), indent=2))
    else:
        click.echo("\n".join(explanation_lines(explanation)))
