"""``holdfast dlq`` against a running proxy, for the tests of it."""

import asyncio
from collections.abc import Sequence

from click.testing import CliRunner

from proxy.cli import main
from proxy.policy.dead_letter import Missing
from tests.cli.terminal import HOLDFAST, Ended, on_terminal
from tests.support import RunningProxy, one_route
from tests.support.letters import letter

CONFIG = one_route("http://127.0.0.1:9", "dead_letter: true")
FIRST, SECOND = letter(1).id, letter(2).id
ALL_THREE = (
    "3 dead letters (all: 2, charges: 1), the oldest of 2096-10-02T07:06:41.000Z; 1 may have run."
)
"""What is said of those that :func:`put` keeps."""
UNSET = {"HOLDFAST_ADMIN": None, "HOLDFAST_ADMIN_TOKEN": None}


async def dlq(proxy: RunningProxy, *arguments: str) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error."""
    url = f"http://127.0.0.1:{proxy.admin_port}"
    result = await asyncio.to_thread(
        CliRunner().invoke, main, ["dlq", *arguments, "--admin", url], env=UNSET
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


async def on_a_terminal(
    proxy: RunningProxy, *arguments: str, program: Sequence[str] = HOLDFAST, **environ: str
) -> Ended:
    """Return what the command prints on a terminal of 80 columns."""
    url = f"http://127.0.0.1:{proxy.admin_port}"
    ended = await on_terminal([*program, "dlq", *arguments, "--admin", url], environ)
    assert ended.status == 0, ended.text
    return ended


async def put(proxy: RunningProxy) -> None:
    """Three letters: one that did not run, one that may have, one without a body."""
    await proxy.app._dead_letters.keep(letter(1))
    await proxy.app._dead_letters.keep(letter(2, route="charges", may_have_run=True))
    await proxy.app._dead_letters.keep(letter(3, missing=Missing.TOO_LARGE, body=b""))


async def failing_posts(proxy: RunningProxy, count: int, *fields: str) -> list[str]:
    """Send requests that fail, and return the ids of their letters, in their order."""
    ids = []
    async with proxy.client() as client:
        for _ in range(count):
            given = await client.request("POST", "/pay", *fields, body=b"p")
            ids.append(given.get("Holdfast-Dead-Letter") or "")
            # Ids of one millisecond are in no order.
            await asyncio.sleep(0.002)
    return ids
