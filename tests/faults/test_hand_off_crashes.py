"""A proxy that dies at each step of a delivery: what was promised is kept, nothing runs twice."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.dying_proxy import STATUS as DIED
from tests.support import (
    PATIENCE,
    ProxyProcess,
    ScriptedUpstream,
    Visit,
    WireEnded,
    answer,
    eventually,
    hang,
    ok,
    one_route,
    subprocess_proxy,
)
from tests.support.dead_letters import listed
from tests.support.delivery_admin import delivery_page
from tests.support.handed_off import ASYNC, HONOURED, KEY, delivery_id, ended, send

KINDS = {"PUT": "PUT", "POST with an honoured key": "POST", "POST": "POST"}
ROUTE = (
    "idempotency: {required: true, lease: 5s}\ndead_letter: true\n"
    "hand_off: {retry: {backoff: {base: 10ms, max: 1s}}}"
)
DYING = "tests.faults.dying_proxy"


def config(upstream: ScriptedUpstream, folder: Path, kind: str, store: str = "memory") -> str:
    where = store if store == "memory" else f"sqlite:{folder}/keys.db"
    return one_route(
        upstream,
        ROUTE if kind != "PUT" else ROUTE.replace("required: true", "methods: [PUT, POST]"),
        top=f"state_dir: {folder}/state\nstore: '{where}'",
        options=HONOURED if kind == "POST with an honoured key" else "",
    )


async def ask(proxy: ProxyProcess, kind: str) -> str | None:
    """Hand a request off; the delivery's id, or None if nobody answers."""
    with suppress(WireEnded, OSError):
        given = await send(proxy, ASYNC, KEY, method=KINDS[kind])
        assert given.status == 202
        return delivery_id(given)
    return None


async def died(proxy: ProxyProcess) -> None:
    async with asyncio.timeout(PATIENCE):
        assert await proxy.process.wait() == DIED


@pytest.mark.parametrize("kind", KINDS)
async def test_before_the_commit_there_is_no_202_and_no_delivery(kind: str, tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        text = config(upstream, tmp_path, kind)
        async with subprocess_proxy(text, program=(DYING, "before accept")) as proxy:
            assert await ask(proxy, kind) is None
            await died(proxy)
        async with subprocess_proxy(text) as proxy:
            assert await delivery_page(proxy) == []
            name = await ask(proxy, kind)
            assert name
            assert (await ended(proxy, name))["state"] == "delivered"
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("kind", KINDS)
async def test_after_the_commit_it_is_delivered_once_and_the_key_finds_it(
    kind: str, store: str, tmp_path: Path
) -> None:
    async with ScriptedUpstream() as upstream:
        text = config(upstream, tmp_path, kind, store)
        async with subprocess_proxy(text, program=(DYING, "after accept")) as proxy:
            assert await ask(proxy, kind) is None, "no 202"
            await died(proxy)
        async with subprocess_proxy(text) as proxy:
            await eventually(lambda: upstream.requests)
            (row,) = await delivery_page(proxy)
            assert await ask(proxy, kind) == row["id"], "the same one"
            assert (await ended(proxy, row["id"]))["state"] == "delivered"
            assert await ask(proxy, kind) == row["id"]
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_before_it_is_taken_it_is_only_waiting(kind: str, tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        text = config(upstream, tmp_path, kind)
        async with subprocess_proxy(text, program=(DYING, "before take")) as proxy:
            await ask(proxy, kind)
            await died(proxy)
        assert upstream.requests == []
        async with subprocess_proxy(text) as proxy:
            (row,) = await delivery_page(proxy)
            assert (await ended(proxy, row["id"]))["state"] == "delivered"
        assert len(upstream.requests) == 1


async def _is_judged(proxy: ProxyProcess, kind: str) -> None:
    """A dead owner's delivery is sent again if it may be; if not there is a dead letter."""
    (row,) = await delivery_page(proxy)
    found = await ended(proxy, row["id"])
    metrics = await proxy.metrics()
    if kind == "POST":
        assert (found["state"], found["why"]) == ("failed", "uncertain")
        (letter,) = await listed(proxy)
        assert letter["may_have_run"]
        outcome = "uncertain"
    else:
        assert found["state"] == "delivered"
        outcome = "retried"
    assert metrics.total("holdfast_delivery_recovered_total", outcome=outcome) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_when_it_was_taken_nobody_knows_whether_it_was_sent(
    kind: str, tmp_path: Path
) -> None:
    async with ScriptedUpstream() as upstream:
        text = config(upstream, tmp_path, kind)
        async with subprocess_proxy(text, program=(DYING, "after take")) as proxy:
            await ask(proxy, kind)
            await died(proxy)
        assert upstream.requests == [], "nothing was sent, though nobody knows"
        async with subprocess_proxy(text) as proxy:
            await _is_judged(proxy, kind)
        assert len(upstream.requests) == (0 if kind == "POST" else 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_killed_while_the_upstream_works(kind: str, tmp_path: Path) -> None:
    async with ScriptedUpstream(usual=hang) as upstream:
        text = config(upstream, tmp_path, kind)
        async with subprocess_proxy(text) as proxy:
            assert await ask(proxy, kind)
            await eventually(lambda: upstream.requests and upstream.requests[0].complete)
            proxy.signal(signal.SIGKILL)
            await proxy.process.wait()
        upstream.usual = answer(ok())
        async with subprocess_proxy(text) as proxy:
            await _is_judged(proxy, kind)
        sent = upstream.requests
        assert len(sent) == (1 if kind == "POST" else 2)
        assert len({(one.body, one.get("Idempotency-Key"), one.target) for one in sent}) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_answered_and_the_end_not_written(kind: str, tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        text = config(upstream, tmp_path, kind)
        async with subprocess_proxy(text, program=(DYING, "before settle")) as proxy:
            await ask(proxy, kind)
            await died(proxy)
        assert len(upstream.requests) == 1
        async with subprocess_proxy(text) as proxy:
            await _is_judged(proxy, kind)
        assert len(upstream.requests) == (1 if kind == "POST" else 2)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_end_is_written_and_nobody_heard(kind: str, tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        text = config(upstream, tmp_path, kind)
        async with subprocess_proxy(text, program=(DYING, "after settle")) as proxy:
            await ask(proxy, kind)
            await died(proxy)
        async with subprocess_proxy(text) as proxy:
            (row,) = await delivery_page(proxy)
            assert (await ended(proxy, row["id"]))["state"] == "delivered"
        assert len(upstream.requests) == 1


async def test_a_drain_gives_back_or_tells_what_may_have_run(tmp_path: Path) -> None:
    """SIGTERM with many under way, of which none ends in time."""
    many = 20
    going = 0

    async def slow(visit: Visit) -> None:
        nonlocal going
        await visit.read_body()
        going += 1
        await asyncio.sleep(60)

    route = "dead_letter: true\nhand_off: {concurrency: 100, retry: {backoff: [1s]}}"
    async with ScriptedUpstream(usual=slow) as upstream:
        top = f"state_dir: {tmp_path}/state\ndrain_timeout: 1s"
        text = one_route(upstream, route, top=top)
        async with subprocess_proxy(text) as proxy:
            names = {
                method: [delivery_id(await send(proxy, ASYNC, method=method)) for _ in range(many)]
                for method in ("PUT", "POST")
            }
            await eventually(lambda: going == 2 * many)
            proxy.signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                assert await proxy.process.wait() == 0
        upstream.usual = answer(ok())
        async with subprocess_proxy(text) as proxy:
            for name in names["POST"]:
                found = await ended(proxy, name)
                assert (found["state"], found["why"]) == ("failed", "uncertain")
            for name in names["PUT"]:
                found = await ended(proxy, name)
                assert (found["state"], found["attempts"]) == ("delivered", 1)
        methods = [one.method for one in upstream.requests]
        assert (methods.count("POST"), methods.count("PUT")) == (many, 2 * many)
