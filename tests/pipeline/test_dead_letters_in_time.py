"""The order of things: the letter, the disk, the client; and those who do not wait for it."""

import asyncio
from pathlib import Path

import pytest

from proxy.app.lifecycle import CannotStart
from proxy.policy.dead_letter import Missing
from tests.support import (
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    hang_up,
    ok,
    one_route,
    request,
    response,
    running,
)
from tests.support.clock import FakeClock
from tests.support.dead_letters import listed, obstacle, replay, replayed, shown
from tests.support.keys import KEY
from tests.support.leftovers import nothing_left
from tests.support.letters import locked
from tests.support.ports import refusing_port

KEEPS = "dead_letter: true"
DAY = 86_400.0

unavailable = answer(response(503, b"not now"))


def state_dir(proxy: RunningProxy) -> Path:
    return proxy.config.parent / "state"


async def nothing_comes(given: "asyncio.Future[Response]") -> None:
    await asyncio.sleep(0.15)
    assert not given.done(), "the client hears of it before it is on disk"


@pytest.mark.parametrize(
    ("policy", "behaviour", "status"),
    [
        pytest.param("", unavailable, 503, id="a response"),
        pytest.param("idempotency: true", unavailable, 503, id="a response under a key"),
        pytest.param("", hang_up, 502, id="no response"),
        pytest.param("idempotency: true", hang_up, 502, id="no response under a key"),
        pytest.param("fallback: {status: 202}", unavailable, 202, id="a fallback"),
    ],
)
async def test_the_client_is_answered_once_the_letter_is_on_disk(
    policy: str, behaviour: object, status: int
) -> None:
    async with (
        ScriptedUpstream(usual=behaviour) as upstream,  # type: ignore[arg-type]  # a behaviour
        running(one_route(upstream, f"{KEEPS}\n{policy}")) as proxy,
        proxy.client() as client,
    ):
        with locked(state_dir(proxy)):
            given = asyncio.ensure_future(client.request("POST", "/", KEY, body=b"pay"))
            await eventually(lambda: upstream.requests)
            await nothing_comes(given)
        answered = await given
        assert answered.status == status
        assert [one["id"] for one in await listed(proxy)] == answered.all("Holdfast-Dead-Letter")
        await nothing_left(proxy)


async def test_a_long_response_waits_with_its_head_and_is_not_read_on() -> None:
    body = b"x" * 24_000_000  # more than the system keeps for us
    sent = 0

    async def stream(visit: Visit) -> None:
        nonlocal sent
        await visit.read_body()
        await visit.send(b"HTTP/1.1 503 No\r\nContent-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 50_000):
            await visit.send(body[start : start + 50_000])
            sent = start

    async with (
        ScriptedUpstream(usual=stream) as upstream,
        running(one_route(upstream, f"{KEEPS}\ntimeout: 250ms")) as proxy,
        proxy.client() as client,
    ):
        with locked(state_dir(proxy)):
            given = asyncio.ensure_future(client.request("POST", "/", body=b"pay"))
            await eventually(lambda: upstream.requests)
            # Longer than its timeout, which reaches up to the head.
            await asyncio.sleep(0.4)
            assert not given.done()
            assert sent < len(body) // 2, "it is slowed down meanwhile"
        answered = await given
        assert (answered.status, answered.body == body) == (503, True)
        assert answered.get("Holdfast-Dead-Letter")
        await nothing_left(proxy)


@pytest.mark.parametrize("policy", ["", "idempotency: true"])
async def test_a_client_that_leaves_while_the_disk_is_slow_leaves_nothing_else(policy: str) -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, f"{KEEPS}\n{policy}")) as proxy,
    ):
        with locked(state_dir(proxy)):
            async with proxy.client() as client:
                await client.send(request("POST", "/", KEY, body=b"pay"))
                await eventually(lambda: upstream.requests)
                await asyncio.sleep(0.05)
            await eventually(lambda: proxy.client_connections == 0)
        await nothing_left(proxy)
        assert (await proxy.logged())[0]["code"] == 499


async def test_a_bad_rest_of_the_body_makes_no_letter() -> None:
    with refusing_port() as port:
        config = one_route(f"http://127.0.0.1:{port}", KEEPS)
        async with running(config) as proxy, proxy.client() as client:
            await client.send(request("POST", "/", "Transfer-Encoding: chunked"), b"3\r\npay\r\n")
            await asyncio.sleep(0.05)
            await client.send(b"what?\r\n")
            given = await client.response("POST")
            assert given.status == 400
            assert await listed(proxy) == []


async def test_a_client_that_waits_for_our_word_gets_it_for_the_letters_sake() -> None:
    with refusing_port() as port:
        config = one_route(f"http://127.0.0.1:{port}", KEEPS)
        async with running(config) as proxy, proxy.client() as client:
            await client.send(request("POST", "/", "Content-Length: 3", "Expect: 100-continue"))
            assert (await client.interim()).status == 100
            await client.send(b"pay")
            given = await client.response("POST")
            assert given.status == 502
            (letter,) = await listed(proxy)
            assert (await shown(proxy, letter["id"]))["body"] == "pay"


async def test_a_response_that_streams_while_the_client_sends_leaves_a_letter_without_body() -> (
    None
):
    async def answer_at_once(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 503 No\r\nContent-Length: 6\r\n\r\nnot")
        await visit.read_body()
        await visit.send(b"now")

    async with (
        ScriptedUpstream(usual=answer_at_once) as upstream,
        running(one_route(upstream, KEEPS)) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("POST", "/", "Content-Length: 6"), b"pay")
        await eventually(lambda: upstream.requests)
        await asyncio.sleep(0.1)
        await client.send(b"now")
        given = await client.response("POST")
        assert (given.status, given.body) == (503, b"notnow")
        (letter,) = await listed(proxy)
        assert letter["body_missing"] == Missing.INCOMPLETE


async def test_what_has_expired_is_gone_at_the_next_start_and_counted(tmp_path: Path) -> None:
    async with ScriptedUpstream(usual=unavailable) as upstream:
        config = one_route(upstream, KEEPS, top=f"state_dir: {tmp_path}/state")
        async with running(config) as proxy, proxy.client() as client:
            await client.request("POST", "/", body=b"pay")
        clock = FakeClock()
        clock.advance(6.9 * DAY)
        async with running(config, clock=clock) as proxy:
            assert len(await listed(proxy)) == 1
        clock.advance(0.2 * DAY)
        async with running(config, clock=clock) as proxy:
            await eventually(lambda: not proxy.app._dead_letters.counts)
            assert await listed(proxy) == []
            metrics = await proxy.metrics()
            assert metrics.total("holdfast_dead_letters_dropped_total", route="all") == 1


async def test_letters_outlive_the_policy_that_wrote_them(tmp_path: Path) -> None:
    async with ScriptedUpstream(usual=unavailable) as upstream:
        top = f"state_dir: {tmp_path}/state"
        async with running(one_route(upstream, KEEPS, top=top)) as proxy, proxy.client() as client:
            given = await client.request("POST", "/", body=b"pay")
        upstream.usual = answer(ok())
        async with running(one_route(upstream, top=top)) as proxy:
            metrics = await proxy.metrics()
            assert metrics.total("holdfast_dead_letters_pending", route="all") == 1
            letter = given.get("Holdfast-Dead-Letter") or ""
            assert (await replayed(proxy, letter, force=True))["result"] == "succeeded"


async def test_nothing_is_sent_again_once_the_end_has_begun() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, KEEPS)) as proxy,
        proxy.client() as client,
    ):
        given = await client.request("POST", "/", body=b"pay")
        letter = given.get("Holdfast-Dead-Letter") or ""
        await proxy.app._replays.drain(0)
        assert obstacle(await replay(proxy, letter)) == (503, "draining")
        assert len(upstream.requests) == 1


async def test_a_folder_that_cannot_be_used_is_a_fault_at_start(tmp_path: Path) -> None:
    (tmp_path / "letters.db").write_bytes(b"somebody else's" * 1000)
    config = one_route("http://127.0.0.1:9", KEEPS, top=f"state_dir: {tmp_path}")
    with pytest.raises(CannotStart, match=r"letters\.db is damaged, or no SQLite file"):
        async with running(config):
            pass
