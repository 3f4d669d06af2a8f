"""``keys release --force``: a key is taken from a request that is running."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.policy.idempotency.record import RecordState
from tests.pipeline.idempotency.keyed_storms import opened
from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    one_route,
    request,
    response,
    running,
    running_together,
)
from tests.support.keys import KEY, Gate, post
from tests.support.stored_keys import RECORD, claim, put_key


async def release(proxy: RunningProxy, record: str, query: str = "") -> tuple[int, dict[str, Any]]:
    got = await proxy.admin("DELETE", f"/keys/{record}{query}")
    return got.status, json.loads(got.body)


def record_of(proxy: RunningProxy) -> str:
    (name,) = proxy.app._in_flight_keys._by_name
    return name


@pytest.mark.parametrize(("policy", "now"), [("hold", "held"), ("release", "free")])
async def test_an_attempt_is_under_way(policy: str, now: str) -> None:
    gate = Gate(response(201, b"late"))
    async with ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour)
        config = one_route(upstream, f"idempotency: {{on_ambiguous: {policy}}}\nretry: true")
        async with running(config) as proxy:
            owner = asyncio.create_task(post(proxy))
            await gate.reached.wait()
            record = record_of(proxy)
            status, shown = await release(proxy, record)
            assert (status, shown["type"]) == (409, "urn:holdfast:problem:key_in_flight")
            status, shown = await release(proxy, record, "?force=true")
            assert (status, shown["was"], shown["now"]) == (200, "in_flight", now)
            assert shown["may_be_running"] is True
            assert shown["result"] == ("released" if now == "free" else "taken")
            if now == "held":
                assert (await post(proxy)).reason_word == "outcome_unknown"
                assert (await release(proxy, record))[1]["result"] == "released"
            assert (await post(proxy)).status == 200, "the key is free"
            gate.open()
            got = await owner
            assert (got.status, got.body) == (201, b"late"), "its own client gets its response"
            assert len(proxy.app._in_flight_keys) == 0
        assert len(upstream.requests) == 2


async def test_a_response_is_under_way() -> None:
    go_on = asyncio.Event()

    async def slowly(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
        await go_on.wait()
        await visit.send(b"half")

    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "idempotency: true")) as proxy,
        proxy.client() as client,
    ):
        upstream.script(slowly)
        await client.send(request("POST", "/", KEY, body=b"pay"))
        await eventually(lambda: proxy.app._in_flight_keys._by_name)
        record = record_of(proxy)
        (flight,) = proxy.app._in_flight_keys._by_name.values()
        await eventually(lambda: getattr(flight.owner, "status", 0) == 200)
        _, shown = await release(proxy, record, "?force=true")
        assert (shown["result"], shown["now"]) == ("taken", "unstored")
        go_on.set()
        assert (await client.response("POST")).body == b"halfhalf"
        assert len(upstream.requests) == 1


async def test_nothing_was_sent_and_nothing_will_be() -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script(answer(response(429, b"", "Retry-After: 1")))
        config = one_route(upstream, "idempotency: {on_ambiguous: hold}\nretry: true")
        async with running(config) as proxy:
            owner = asyncio.create_task(post(proxy))
            await eventually(lambda: upstream.requests and proxy.waiting_requests)
            _, shown = await release(proxy, record_of(proxy), "?force=true")
            assert (shown["result"], shown["now"]) == ("released", "free"), (
                "429 says that it did not"
            )
            assert (await owner).reason_word == "store"
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("store", ["sqlite", pytest.param("redis", marks=pytest.mark.deep)])
async def test_it_runs_in_another_instance(store: str, tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream, opened(store, tmp_path) as top:
        upstream.script(answer(response(429, b"", "Retry-After: 1")))
        config = one_route(upstream, "idempotency: {lease: 1s}\nretry: true", top=top)
        async with running_together(config, config) as (first, other):
            owner = asyncio.create_task(post(first))
            await eventually(lambda: upstream.requests)
            record = record_of(first)
            _, shown = await release(other, record, "?force=true")
            assert (shown["result"], shown["now"]) == ("taken", "held"), "nobody there knows more"
            assert (await owner).reason_word == "outcome_unknown", "and it sends nothing more"
            assert (await release(other, record))[1]["result"] == "released"
            assert (await post(other)).status == 200
        assert len(upstream.requests) == 2


async def test_what_is_not_running_is_released_as_without_force() -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        assert (await release(proxy, RECORD, "?force=true"))[0] == 404
        await put_key(proxy, RecordState.HELD)
        assert (await release(proxy, RECORD, "?force=true"))[1] == {
            "result": "released",
            "record": RECORD,
            "was": "held",
            "route": "charges",
        }


@pytest.mark.parametrize("query", ["?force", "?force=yes", "?forec=true"])
async def test_what_is_misspelt_does_nothing(query: str) -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        await put_key(proxy, RecordState.HELD)
        assert (await release(proxy, RECORD, query))[0] == 400
        assert await claim(proxy) == "held"


async def test_the_command_says_that_it_may_still_run() -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        await put_key(proxy, RecordState.IN_FLIGHT)
        url = f"http://127.0.0.1:{proxy.admin_port}"
        arguments = ["keys", "release", RECORD, "--force", "--yes", "--admin", url]
        result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
        assert (result.exit_code, result.stdout.splitlines()) == (
            0,
            [
                f"record: {RECORD}",
                "was: in_flight",
                "warning: its request was running; what it has sent may still run",
                "now: held, it may have run, and its outcome is unknown; duplicates get 409",
                f"to release it, find out whether it ran, then: holdfast keys release {RECORD}",
            ],
        )
