"""Asking for dead letters as an operator does, through the admin listener."""

import json
from typing import Any

from tests.support.client import RawClient
from tests.support.messages import Response
from tests.support.proxies import ServedBy


async def listed(proxy: ServedBy, query: str = "order=oldest&limit=1000") -> list[dict[str, Any]]:
    """A page of letters."""
    answer = await proxy.admin("GET", f"/dead-letters?{query}")
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = json.loads(answer.body)["letters"]
    return found


async def shown(proxy: ServedBy, letter: str) -> dict[str, Any]:
    """All of one letter."""
    answer = await proxy.admin("GET", f"/dead-letters/{letter}")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def replay(
    proxy: ServedBy,
    letter: str,
    *headers: tuple[str, str],
    force: bool = False,
    dry_run: bool = False,
) -> Response:
    """Send a letter again; or ask what would become of that."""
    body = json.dumps({"headers": headers, "force": force, "dry_run": dry_run}).encode()
    async with RawClient(proxy.admin_port) as client:
        return await client.request(
            "POST", f"/dead-letters/{letter}/replay", "Host: localhost", body=body
        )


async def replayed(
    proxy: ServedBy, letter: str, *headers: tuple[str, str], force: bool = False
) -> dict[str, Any]:
    """Send a letter again, and hear what became of it."""
    answer = await replay(proxy, letter, *headers, force=force)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = json.loads(answer.body)
    return found


def obstacle(answer: Response) -> tuple[int, str]:
    """Why a letter was not sent again."""
    content = json.loads(answer.body)
    return answer.status, content["type"].removeprefix("urn:holdfast:problem:")
