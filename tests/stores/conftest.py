"""A server for all tests of a module that only talk to it."""

from collections.abc import Iterator

import pytest

from tests.support.redis_server import SERVERS, RedisServer, program_name, standing_server


@pytest.fixture(params=SERVERS, ids=program_name, scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Yield each server that is installed, one after the other."""
    with standing_server(request.param) as server:
        yield server
