"""One limit for several proxies: what they share, under which names, and who may know of it.

With a rate of one an hour and a burst of N, exactly N requests reach the upstream during a
test, whichever proxy they come through.
"""

import asyncio
import json
import logging
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from proxy.policy.throttle.caller_key import digest
from tests.pipeline.instances import everybody_sees_it, sharing, store_of
from tests.support import (
    Certificates,
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    ok,
    one_route,
    response,
    running,
    running_together,
)
from tests.support.redis_server import PATIENT, SERVERS, redis_server
from tests.support.relay import relay
from tests.support.throttles import decisions, statuses, throttle

SECRET = "correct-horse-battery-staple"
KEEPING = f"{PATIENT}, permit_life: 1000ms"
"""Keys of a store whose permits a busy machine gets to use: one that lapses is gone for an hour."""


def burst(count: int, more: str = "max_wait: 0s") -> str:
    """A throttle that lets *count* requests through, and then one each hour."""
    return f"throttle: {{rate: 1/h, burst: {count}, {more}}}"


def two(config: str) -> AbstractAsyncContextManager[list[RunningProxy]]:
    """Two proxies of the same configuration; they need no processes of their own here."""
    return running_together(config, config)


async def names(client: Redis) -> list[str]:
    return sorted([name async for name in client.scan_iter()])


# What is shared.


@pytest.mark.parametrize("scope", ["route", "upstream"])
async def test_so_many_come_through_together_and_no_more(
    scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To ask the store is no wait in the queue, even where a busy machine takes longer to do so.
    monkeypatch.setattr("proxy.pipeline.throttle.async_limiter._STORE_ROUND_TRIP", 2.0)
    async with redis_server() as server, ScriptedUpstream() as upstream:
        limit = {"route": burst(5)} if scope == "route" else {"options": burst(5)}
        async with two(sharing(upstream, server.port, **limit, store=KEEPING)) as (one, other):
            assert await statuses(one, 3) == [200] * 3
            assert await statuses(other, 3) == [200, 200, 429]
            assert await statuses(one, 1) == [429]
            refused = await other.get()
            assert (refused.reason_word, refused.problem["cause"]) == ("throttled", "max_wait")
            # An hour at most, and what is left of it after so much of a second.
            assert 3590 <= int(refused.get("Retry-After") or 0) <= 3601
            assert len(upstream.requests) == 5
            name = "all" if scope == "route" else "scripted"
            assert await decisions(one, scope, name) == {"passed": 3, "refused": 1}


async def test_another_prefix_is_another_limit() -> None:
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        running_together(
            sharing(upstream, server.port, burst(2), store=f"prefix: blue, {KEEPING}"),
            sharing(upstream, server.port, burst(2), store=f"prefix: green, {KEEPING}"),
        ) as proxies,
        server.client() as client,
    ):
        for proxy in proxies:
            assert await statuses(proxy, 3) == [200, 200, 429]
        assert await names(client) == [
            "blue:instances",
            "blue:route:all",
            "green:instances",
            "green:route:all",
        ]


async def test_each_caller_has_one_bucket_wherever_it_calls_and_the_store_knows_no_value() -> None:
    route = burst(2, f"max_wait: 0s, concurrency: 5, key: {'header:X-Api-Key'}")
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        two(sharing(upstream, server.port, route, store=KEEPING)) as (one, other),
        server.client() as client,
    ):
        for caller in (SECRET, "somebody-else"):
            key = f"X-Api-Key: {caller}"
            assert await statuses(one, 1, "/", key) == [200]
            assert await statuses(other, 2, "/", key) == [200, 429]
            assert await statuses(one, 1, "/", key) == [429]
        assert await statuses(one, 1) == [200], "without a value: the bucket of all those"
        assert await statuses(other, 2) == [200, 429]

        instances, *buckets = await names(client)
        assert instances == "holdfast:instances"
        assert len(buckets) == 3
        for queue in buckets:
            scope = queue.split(":")
            assert scope[:3] == ["holdfast", "route", "all"]
            assert [len(digest) for digest in scope[3:]] in ([], [32])
        for name in (instances, *buckets):  # an hour each; a permit lives for a second
            assert 0 < await client.ttl(name) <= 2 * 3600 + 6 + 1, name
        kept = [str(await client.hgetall(queue)) for queue in buckets]
        assert SECRET not in "".join((*buckets, *kept))


async def test_who_sees_the_names_of_buckets_cannot_try_credentials_on_them() -> None:
    route = burst(2, f"max_wait: 0s, key: {'header:X-Api-Key'}")
    caller = b"somebody"
    async with redis_server(SERVERS[0], "--requirepass", SECRET) as server:

        async def bucket_of(password: str, prefix: str = "holdfast") -> str:
            """The digest in the name of the bucket, which two instances share."""
            store = f"password: {password}, prefix: {prefix}, {KEEPING}"
            async with ScriptedUpstream() as upstream, server.client(SECRET) as client:
                config = sharing(upstream, server.port, route, store=store)
                async with two(config) as proxies:
                    for proxy, expected in zip(proxies, ([200], [200, 429]), strict=True):
                        key = f"X-Api-Key: {caller.decode()}"
                        assert await statuses(proxy, len(expected), "/", key) == expected
                (queue,) = [name for name in await names(client) if name.count(":") == 3]
                await client.flushall()
            return queue.rpartition(":")[2]

        own = await bucket_of(SECRET)
        assert own == await bucket_of(SECRET), "the same after a restart"
        assert own != digest(caller).hex(), "it takes the password to compute it"
        assert own != await bucket_of(SECRET, prefix="green")


async def test_slots_are_shared_and_free_for_the_other_at_once() -> None:
    doors = asyncio.Semaphore(0)

    async def wait_at_the_door(visit: Visit) -> None:
        await doors.acquire()
        await visit.send(ok())

    route = "throttle: {concurrency: 2, max_wait: none}"
    async with (
        redis_server() as server,
        ScriptedUpstream(wait_at_the_door) as upstream,
        two(sharing(upstream, server.port, route, store=PATIENT)) as (one, other),
    ):
        first = [asyncio.create_task(one.get(f"/{n}")) for n in range(2)]
        await upstream.seen(2)
        third = asyncio.create_task(other.get("/third"))
        await eventually(lambda: throttle(other)["waiting"] == 1)
        doors.release()
        await upstream.seen(3)
        assert upstream.requests[-1].target == "/third"
        doors.release()
        doors.release()
        assert {got.status for got in await asyncio.gather(*first, third)} == {200}


# A pause.


@pytest.mark.parametrize(
    ("limit", "name"),
    [
        pytest.param("throttle: true", "all", id="without a rate"),
        pytest.param("throttle: {rate: 1000/s, burst: 100}", "all", id="with a rate"),
        pytest.param("throttle: {concurrency: 5}", "all", id="with slots"),
    ],
)
async def test_what_one_is_told_holds_for_the_others(limit: str, name: str) -> None:
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        two(sharing(upstream, server.port, limit, store=PATIENT)) as (one, other),
    ):
        assert await statuses(other, 2) == [200, 200]
        await server.has_listeners(2)
        upstream.script(answer(response(429, b"", "Retry-After: 30")))
        assert (await one.get()).status == 429
        await eventually(lambda: throttle(other)["paused"] == 1)
        refused = await other.get()
        assert (refused.reason_word, refused.problem["cause"]) == ("throttled", "paused")
        assert 25 <= int(refused.get("Retry-After") or 0) <= 30
        assert len(upstream.requests) == 3
        for proxy in (one, other):
            paused = (await proxy.metrics()).total("holdfast_throttle_paused", name=name)
            assert paused == 1


async def test_after_a_pause_all_of_them_together_go_on_at_the_rate() -> None:
    limit = "throttle: {rate: 50/s, burst: 25, max_wait: none}"
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        two(sharing(upstream, server.port, limit, store=PATIENT)) as proxies,
    ):
        await server.has_listeners(2)
        upstream.script(answer(response(429, b"", "Retry-After-Ms: 300")))
        assert (await proxies[0].get()).status == 429
        opens = upstream.requests[0].at + 0.3
        await eventually(lambda: throttle(proxies[1])["paused"] == 1)
        got = await asyncio.gather(*(proxy.get() for proxy in proxies for _ in range(6)))
        assert {each.status for each in got} == {200}
        times = [seen.at for seen in upstream.requests[1:]]
        assert min(times) >= opens - 0.005
        # Twelve at 20 ms each; and the last permits that were lent may be used together.
        assert max(times) - min(times) >= 0.15


async def test_a_pause_of_one_caller_is_that_caller_s_alone_everywhere() -> None:
    limit = "throttle: {rate: 1000/s, key: header:X-Api-Key}"
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        two(sharing(upstream, server.port, limit, store=PATIENT)) as (one, other),
    ):
        await server.has_listeners(2)
        assert await statuses(other, 1, "/", "X-Api-Key: a") == [200]
        upstream.script(answer(response(429, b"", "Retry-After: 30")))
        assert await statuses(one, 1, "/", "X-Api-Key: a") == [429]
        await eventually(lambda: throttle(other)["paused"] == 1)
        assert await statuses(other, 1, "/", "X-Api-Key: a") == [429]
        assert await statuses(other, 1, "/", "X-Api-Key: b") == [200]
        assert len(upstream.requests) == 3


# A reload.


async def reload(proxy: RunningProxy, before: str, after: str) -> Response:
    """Put *after* in place of *before* in the file, and have it read again."""
    text = proxy.config.read_text()
    assert before in text
    proxy.config.write_text(text.replace(before, after))
    return await proxy.admin("POST", "/-/reload")


async def test_a_reload_keeps_what_was_used_and_a_changed_limit_holds_where_it_was_read() -> None:
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        two(sharing(upstream, server.port, f"{burst(3)}\ntimeout: 20s", store=KEEPING)) as (
            one,
            other,
        ),
    ):
        assert await statuses(one, 2) == [200, 200]
        for proxy in (one, other):
            assert (await reload(proxy, "timeout: 20s", "timeout: 21s")).status == 200
        assert await statuses(other, 2) == [200, 429]
        changed = "rate: 1000/s, max_wait: 5s"
        for proxy in (one, other):
            assert (await reload(proxy, "rate: 1/h, burst: 3, max_wait: 0s", changed)).status == 200
            assert await statuses(proxy, 5) == [200] * 5


async def test_another_store_needs_a_restart_and_the_answer_says_so() -> None:
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        running(sharing(upstream, server.port, burst(3), store=KEEPING)) as proxy,
    ):
        refused = await reload(proxy, "redis://127.0.0.1", "redis://localhost")
        assert refused.status == 422
        assert b"store: changed, and that needs a restart" in refused.body
        assert "store: changed" in proxy.complaints.pop()
        assert await statuses(proxy, 4) == [200] * 3 + [429]


# Who may use the store.

ACL = ("--user", "default", "off", "--user", "holdfast", "on", f">{SECRET}", "~holdfast:*")
"""A server for which one must be somebody."""


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        pytest.param(("--requirepass", SECRET), f"password: {SECRET}", id="a password"),
        pytest.param(
            (*ACL, "&holdfast:*", "+@all"),
            f"username: holdfast, password: {SECRET}",
            id="a user who may do everything to our keys and channel, and nothing to others",
        ),
    ],
)
async def test_who_says_the_right_words_gets_in(options: tuple[str, ...], keys: str) -> None:
    async with (
        redis_server(SERVERS[0], *options) as server,
        ScriptedUpstream() as upstream,
        two(sharing(upstream, server.port, burst(3), store=f"{keys}, {KEEPING}")) as (one, other),
    ):
        assert await statuses(one, 2) == [200, 200]
        assert await statuses(other, 2) == [200, 429]
        for proxy in (one, other):
            assert (await store_of(proxy))["state"] == "up"
            await assert_secret(proxy)


async def assert_secret(proxy: RunningProxy) -> None:
    """Nothing that the proxy shows has the password."""
    for page in ("/status", "/config", "/metrics"):
        shown = await proxy.admin("GET", page)
        assert shown.status == 200
        assert SECRET.encode() not in shown.body, page
    assert SECRET not in json.dumps(proxy.log)


@pytest.mark.parametrize("where", ["a key", "the URL"])
async def test_a_wrong_password_is_told_once_and_found_right_later(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        redis_server(SERVERS[0], "--requirepass", "something-else") as server,
        ScriptedUpstream() as upstream,
        server.client("something-else") as administrator,
    ):
        await administrator.ping()
        config = sharing(upstream, server.port, burst(3), store=f"password: {SECRET}, {KEEPING}")
        if where == "the URL":
            top = f"store: {{url: 'redis://:{SECRET}@127.0.0.1:{server.port}', {KEEPING}}}"
            config = one_route(upstream, burst(3), top=top)
        async with running(config) as proxy:
            assert (await store_of(proxy))["state"] == "down"
            assert (await proxy.admin("GET", "/readyz")).status == 200
            assert (await proxy.get()).status == 429, "a share opens after its own interval"
            await assert_secret(proxy)
            await administrator.config_set("requirepass", SECRET)
            await everybody_sees_it([proxy], "up")
            assert (await proxy.get()).status == 200
            await assert_secret(proxy)
    [told] = [r.getMessage() for r in caplog.records if "is down (" in r.getMessage()]
    assert "WRONGPASS" in told
    assert SECRET not in caplog.text


# TLS.


@pytest.mark.parametrize("trusted", [True, False], ids=["our own authority", "another authority"])
async def test_a_store_behind_tls(
    trusted: bool,  # noqa: FBT001 - a column of the table
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours = Certificates(tmp_path)
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    presented = ours if trusted else Certificates(other_folder)
    async with (
        redis_server(SERVERS[0], "--requirepass", SECRET) as server,
        relay(server.port, tls=presented.for_server()) as wire,
        ScriptedUpstream() as upstream,
    ):
        top = (
            f"store: {{url: 'rediss://127.0.0.1:{wire.port}', password: {SECRET},"
            f" tls: {{ca: {ours.ca}}}, {KEEPING}}}"
        )
        async with two(one_route(upstream, burst(3), top=top)) as (one, other):
            state = "up" if trusted else "down"
            for proxy in (one, other):
                assert (await store_of(proxy))["state"] == state
                await assert_secret(proxy)
            if trusted:
                assert await statuses(one, 2) == [200, 200]
                assert await statuses(other, 2) == [200, 429]
            else:
                # Each for itself, and not at once: nobody knows what others have used.
                assert await statuses(one, 2) == [429, 429]
                assert await statuses(other, 2) == [429, 429]
    assert ("certificate verify failed" in caplog.text) != trusted
    assert caplog.text.count("is down (") == (0 if trusted else 2)
    assert SECRET not in caplog.text


# What is told of it.


async def test_status_and_metrics_tell_how_the_store_does() -> None:
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        running(sharing(upstream, server.port, "throttle: 100/s")) as proxy,
    ):
        assert await statuses(proxy, 3) == [200] * 3
        told = await store_of(proxy)
        assert told["state"] == "up"
        assert not any(told["errors"].values())
        assert told["duration_ms"]["take"]["p50"] > 0
        metrics = await proxy.metrics()
        durations = "holdfast_store_operation_duration_seconds_count"
        assert metrics.total(durations, operation="connect") == 1
        assert metrics.total(durations, operation="take") >= 1
        assert metrics.total("holdfast_store_errors_total") == 0
        await server.stop()
        await everybody_sees_it([proxy], "down")
        await proxy.get()
        told = await store_of(proxy)
        assert told["state"] == "down"


async def test_without_a_store_nothing_is_told_of_one() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, burst(3))) as proxy:
        status = json.loads((await proxy.admin("GET", "/status")).body)
        assert status["store"] == {"url": "memory"}
        assert b"holdfast_store_errors" not in (await proxy.admin("GET", "/metrics")).body
