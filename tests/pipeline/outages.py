"""Ways in which a store can be away for a while, and come back."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from tests.support.ports import black_hole
from tests.support.redis_server import RedisServer

Outage = Callable[[RedisServer], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def killed(server: RedisServer) -> AsyncIterator[None]:
    """Kill the store: its port refuses, and when it is back it has forgotten everything."""
    await server.stop()
    yield
    await server.start()


@asynccontextmanager
async def stalled(server: RedisServer) -> AsyncIterator[None]:
    """Stall the store: it neither answers nor hangs up."""
    server.stall()
    yield
    server.resume()


@asynccontextmanager
async def swallowed(server: RedisServer) -> AsyncIterator[None]:
    """Drop all packets to the store, as a firewall does."""
    await server.stop()
    with black_hole(server.port):
        yield
    await server.start()


in_every_outage = pytest.mark.parametrize(
    "outage",
    [
        pytest.param(killed, id="it was killed"),
        pytest.param(stalled, id="it hangs"),
        pytest.param(swallowed, id="a firewall swallows what is sent to it"),
    ],
)
