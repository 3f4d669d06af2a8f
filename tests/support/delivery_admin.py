"""Asking for deliveries as an operator does, through the admin listener."""

import json
from typing import Any

from tests.support.client import RawClient
from tests.support.messages import Response
from tests.support.proxies import ServedBy

GONE_ROUTE = "gone"
"""A route that no file of a test has: what was accepted for it waits, until a test does more."""


async def delivery_page(proxy: ServedBy, query: str = "order=oldest") -> list[dict[str, Any]]:
    """A page of deliveries."""
    answer = await proxy.admin("GET", f"/deliveries?{query}")
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = json.loads(answer.body)["deliveries"]
    return found


async def delivery_of(proxy: ServedBy, delivery_id: str) -> dict[str, Any]:
    """All of one delivery that is shown."""
    answer = await proxy.admin("GET", f"/deliveries/{delivery_id}")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def retry(
    proxy: ServedBy, delivery_id: str, *, force: bool = False, dry_run: bool = False
) -> Response:
    """Have a delivery sent now; or ask what would become of that."""
    body = json.dumps({"force": force, "dry_run": dry_run}).encode()
    async with RawClient(proxy.admin_port) as client:
        return await client.request(
            "POST", f"/deliveries/{delivery_id}/retry", "Host: localhost", body=body
        )
