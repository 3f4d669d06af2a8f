"""A reload that first configures idempotency: the warning about a store that may evict keys."""

import logging
from collections.abc import Sequence

import pytest

from tests.support import RunningProxy, ScriptedUpstream, eventually, one_route, running
from tests.support.redis_server import SERVERS, RedisServer, redis_server

KEYS = "idempotency: {}"


def warnings(records: Sequence[logging.LogRecord]) -> list[str]:
    return [
        record.getMessage()
        for record in records
        if record.levelno >= logging.WARNING and "maxmemory-policy" in record.getMessage()
    ]


async def reload_with(proxy: RunningProxy, text: str) -> None:
    proxy.config.write_text(text)
    assert (await proxy.admin("POST", "/-/reload")).status == 200


def without_and_with_keys(upstream: ScriptedUpstream, server: RedisServer) -> tuple[str, str]:
    """Two configurations that differ in whether their route has idempotency keys."""
    store = f"store: {{url: 'redis://127.0.0.1:{server.port}', timeout: 2s}}"
    fixed = f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ndrain_timeout: 2s\n{store}"
    return one_route(upstream, top=fixed), one_route(upstream, KEYS, top=fixed)


async def test_a_reload_that_first_has_keys_warns_of_a_store_that_may_evict_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        ScriptedUpstream() as upstream,
        redis_server(SERVERS[0], "--maxmemory-policy", "allkeys-lru") as server,
    ):
        without, with_keys = without_and_with_keys(upstream, server)
        async with running(without) as proxy:
            await reload_with(proxy, without)
            assert warnings(caplog.records) == [], "no route has keys yet"
            await reload_with(proxy, with_keys)
            await eventually(lambda: warnings(caplog.records), what="the warning")
            await reload_with(proxy, without)
            await reload_with(proxy, with_keys)
            async with proxy.client() as client:
                # The store answers in order: whatever the reload asked has been answered by then.
                got = await client.request("POST", "/", "Idempotency-Key: one", body=b"pay")
                assert got.status == 200
    (warning,) = warnings(caplog.records)
    assert warning == (
        f"the store at 127.0.0.1:{server.port} may forget idempotency keys when its memory is"
        " full (maxmemory-policy allkeys-lru): set it to noeviction"
    )
