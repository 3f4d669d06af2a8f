"""Requests that are handed off, and what clients can ask about them."""

import asyncio
import json
from typing import Any

from tests.support.client import RawClient
from tests.support.messages import Response
from tests.support.proxies import ServedBy
from tests.support.virtual import in_virtual_time, now

STATUS = "/.holdfast/deliveries"
ASYNC = "Prefer: respond-async"
KEY = "Idempotency-Key: k-1"
HONOURED = "honours_key: true"
ENDS = frozenset({"delivered", "failed", "cancelled"})


async def send(
    proxy: ServedBy,
    *headers: str,
    method: str = "POST",
    target: str = "/orders",
    body: bytes = b"an order",
) -> Response:
    async with proxy.client() as client:
        return await client.request(method, target, *headers, body=body)


async def hand_off(
    proxy: ServedBy, *headers: str, method: str = "POST", body: bytes = b"an order"
) -> str:
    """Send a request that is to be accepted; return the id of its delivery."""
    given = await send(proxy, ASYNC, *headers, method=method, body=body)
    assert given.status == 202, (given.status, given.body)
    return delivery_id(given)


def delivery_id(given: Response) -> str:
    found = given.get("Holdfast-Delivery")
    assert found
    return found


async def state_of(proxy: ServedBy, name: str) -> dict[str, Any]:
    """What a client is told of a delivery."""
    async with RawClient(proxy.port) as client:
        given = await client.get(f"{STATUS}/{name}")
    assert given.status == 200, (given.status, given.body)
    found: dict[str, Any] = json.loads(given.body)
    return found


async def ended(proxy: ServedBy, name: str, within: float = 60.0) -> dict[str, Any]:
    """What a client is told of a delivery once it has ended."""
    step = within / 200 if in_virtual_time() else 0.02
    over = now() + within
    while (found := await state_of(proxy, name))["state"] not in ENDS:
        assert now() < over, f"{name} has not ended within {within} s: {found}"
        await asyncio.sleep(step)
    return found
