"""``holdfast upstream``: the demo's flaky upstream, as a test double."""

import click

_EXAMPLES = """\b
Examples:
  holdfast upstream
  holdfast upstream --listen 127.0.0.1:9001 --errors 0.2 --delay 50ms"""


class _Share(click.FloatRange):
    """A part of all requests."""

    name = "share, write 0.2 for every fifth"


_SHARE = _Share(0, 1)
_LONGEST = 60.0
"""Seconds of the longest delay."""


def _seconds(ctx: click.Context, parameter: click.Parameter, value: str) -> float:
    from proxy.http.durations import parse_duration  # noqa: PLC0415 - keeps --help fast

    seconds = parse_duration(value)
    if seconds is None or seconds > _LONGEST:
        raise click.BadParameter("write 50ms or 2s (say), at most 60s", ctx, parameter)
    return seconds


@click.command(epilog=_EXAMPLES)
@click.option(
    "--listen",
    default="127.0.0.1:9000",
    show_default=True,
    metavar="HOST:PORT",
    help="Where it listens. Port 0: a free one, which it prints.",
)
@click.option(
    "--errors", type=_SHARE, default=0.0, metavar="SHARE", help="Share of requests that fail: 0.2."
)
@click.option(
    "--status",
    type=click.IntRange(400, 599),
    default=503,
    show_default=True,
    metavar="CODE",
    help="The status by which they fail.",
)
@click.option(
    "--resets",
    type=_SHARE,
    default=0.0,
    metavar="SHARE",
    help="Share of requests whose connection is closed without an answer.",
)
@click.option(
    "--delay",
    default="0s",
    metavar="DURATION",
    callback=_seconds,
    help="Time before each answer: 50ms.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    metavar="N",
    help="The seed of chance: the same number, the same run.",
)
def upstream(
    *, listen: str, errors: float, status: int, resets: float, delay: float, seed: int
) -> None:
    """Serve a flaky upstream, as a test double.

    It fails as you say, to try Holdfast or your service with. Its first page lists paths that
    misbehave on request, such as /flaky?fail=2, /delay/1s and /limited; any other path is
    echoed. --errors, --resets and --delay go for all paths. Not for production: it has no
    access control. Ctrl-C stops it.
    Exit code 0: stopped, 1: it cannot listen, 2: wrong usage.
    """
    import asyncio  # noqa: PLC0415 - keeps --help fast

    from proxy.demo.serving import DemoFailed, run_upstream, split  # noqa: PLC0415 - as above
    from proxy.demo.upstream import Faults  # noqa: PLC0415 - as above

    if errors + resets > 1:
        raise click.UsageError("--errors and --resets together are more than 1, write less")
    try:
        split(listen)
    except DemoFailed as error:
        raise click.BadParameter(str(error), param_hint="--listen") from None
    faults = Faults(errors, status, resets, delay)
    try:
        asyncio.run(run_upstream(listen, seed, faults))
    except DemoFailed as error:
        raise click.ClickException(str(error)) from None
