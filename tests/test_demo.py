"""The demo upstream over real sockets."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from proxy.demo.upstream import MAX_IDS, Faults, make_app

ROOT = Path(__file__).parent.parent


class FakeTime:
    """A clock that stands still until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


Client = TestClient[aiohttp.web.Request, aiohttp.web.Application]


@pytest.fixture
async def upstream(time: FakeTime) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_app(time))) as client:
        yield client


async def test_front_page_lists_what_it_can_do(upstream: Client) -> None:
    text = await (await upstream.get("/")).text()
    routes = make_app(FakeTime()).router.resources()
    for first_segment in {resource.canonical.split("/")[1] for resource in routes}:
        assert f"  /{first_segment}" in text or not first_segment


async def test_echo_shows_what_arrived(upstream: Client) -> None:
    response = await upstream.put(
        URL("/echo?a=%2F", encoded=True), data="hello", headers={"X-Demo": "yes"}
    )
    seen = await response.json()
    assert (seen["method"], seen["path"], seen["body"]) == ("PUT", "/echo?a=%2F", "hello")
    assert ["X-Demo", "yes"] in seen["headers"]


async def test_echo_refuses_to_hold_a_large_body(upstream: Client) -> None:
    assert (await upstream.post("/echo", data=BytesIO(bytes(2 * 1024 * 1024)))).status == 413


@pytest.mark.parametrize(
    ("target", "status"),
    [
        pytest.param("/status/503", 503, id="answers with the status asked for"),
        pytest.param("/delay/1ms", 200, id="answers after a delay"),
        pytest.param("/status/42", 400, id="refuses a status that HTTP does not have"),
        pytest.param("/status/2%C2%B20", 400, id="refuses a superscript as a digit"),
        pytest.param("/delay/5", 400, id="refuses a delay without a unit"),
        pytest.param("/delay/61s", 400, id="refuses a delay beyond its limit"),
        pytest.param("/bytes/2GiB", 400, id="refuses a body beyond its limit"),
        pytest.param("/stream?ticks=1001", 400, id="refuses more ticks than its limit"),
        pytest.param("/flaky?chance=nan", 400, id="refuses a chance that is no number"),
        pytest.param("/flaky?fail=-1", 400, id="refuses a negative count"),
    ],
)
async def test_status(upstream: Client, target: str, status: int) -> None:
    assert (await upstream.get(target)).status == status


async def test_status_with_a_hint(upstream: Client) -> None:
    response = await upstream.get("/status/429?retry_after=7")
    assert response.headers["Retry-After"] == "7"


async def test_flaky_fails_as_often_as_asked_for_each_id_and_starts_over(upstream: Client) -> None:
    async def statuses(caller: str, count: int) -> list[int]:
        target = f"/flaky?fail=2&id={caller}"
        return [(await upstream.get(target)).status for _ in range(count)]

    assert await statuses("a", 4) == [503, 503, 200, 503]
    assert await statuses("b", 3) == [503, 503, 200]
    assert await statuses("a", 2) == [503, 200]


async def test_flaky_forgets_the_oldest_ids(upstream: Client) -> None:
    for number in range(MAX_IDS + 1):
        await upstream.get(f"/flaky?fail=1&id={number}")
    assert (await upstream.get("/flaky?fail=1&id=0")).status == 503, "forgotten, so it begins again"
    assert (await upstream.get(f"/flaky?fail=1&id={MAX_IDS}")).status == 200


async def test_only_the_bank_knows_a_key_again(upstream: Client) -> None:
    async def pay(target: str, key: str = "") -> tuple[int, str]:
        response = await upstream.post(target, headers={"Idempotency-Key": key} if key else {})
        return response.status, (await response.text()).split(maxsplit=2)[1].rstrip(",")

    assert [await pay("/pay", "k") for _ in range(2)] == [(503, "1"), (503, "2")]
    assert [await pay("/bank/pay", "k") for _ in range(3)] == [(503, "3"), (200, "3"), (200, "3")]
    assert [await pay("/bank/pay") for _ in range(2)] == [(503, "4"), (503, "5")]


async def test_flaky_by_chance_is_the_same_in_every_run(time: FakeTime) -> None:
    async def run(seed: int) -> list[int]:
        async with TestClient(TestServer(make_app(time, seed))) as client:
            return [(await client.get("/flaky?chance=0.5")).status for _ in range(20)]

    first = await run(seed=1)
    assert set(first) == {200, 503}
    assert await run(seed=1) == first
    assert await run(seed=2) != first


async def test_limited_lets_two_through_in_any_second(upstream: Client, time: FakeTime) -> None:
    async def statuses(count: int) -> list[int]:
        return [(await upstream.get("/limited")).status for _ in range(count)]

    assert await statuses(1) == [200]
    time.now += 0.6
    assert await statuses(2) == [200, 429]
    time.now += 0.4
    assert await statuses(2) == [200, 429]
    assert (await upstream.get("/limited")).headers["Retry-After"] == "1"


async def test_reset_answers_nothing(upstream: Client) -> None:
    with pytest.raises(aiohttp.ClientConnectionError):
        await upstream.post("/reset")


async def test_stream_sends_each_tick_as_an_event(upstream: Client) -> None:
    response = await upstream.get("/stream?ticks=2&every=1ms")
    assert response.content_type == "text/event-stream"
    assert await response.text() == "event: tick\ndata: 1\n\nevent: tick\ndata: 2\n\n"


@pytest.mark.parametrize(
    ("size", "length"), [("0B", 0), ("1B", 1), ("65KiB", 65 * 1024), ("1MiB", 1024**2)]
)
async def test_bytes_has_the_size_asked_for(upstream: Client, size: str, length: int) -> None:
    response = await upstream.get(f"/bytes/{size}")
    assert response.content_length == length
    assert await response.read() == bytes(length)


async def test_bytes_answers_head_without_a_body(upstream: Client) -> None:
    assert (await upstream.head("/bytes/1GiB")).headers["Content-Length"] == str(1024**3)


async def test_websocket_echoes_text_and_bytes(upstream: Client) -> None:
    async with upstream.ws_connect("/ws") as socket_:
        await socket_.send_str("hello")
        await socket_.send_bytes(b"\x00\xff")
        assert await socket_.receive_str() == "hello"
        assert await socket_.receive_bytes() == b"\x00\xff"


async def statuses(faults: Faults, seed: int = 0, target: str = "/v1/charges") -> list[int]:
    """The answers to 40 requests; 0 for a connection that was closed."""
    found = []
    async with TestClient(TestServer(make_app(FakeTime(), seed, faults))) as client:
        for _ in range(40):
            try:
                found.append((await client.post(target, data="x")).status)
            except aiohttp.ClientConnectionError:
                found.append(0)
    return found


async def test_faults_of_all_paths() -> None:
    assert set(await statuses(Faults())) == {200}, "any path is echoed"
    assert set(await statuses(Faults(errors=1, status=529))) == {529}
    assert set(await statuses(Faults(resets=1))) == {0}
    assert set(await statuses(Faults(errors=1), target="/status/404")) == {503}
    some = await statuses(Faults(errors=0.3, resets=0.3))
    assert {some.count(0) > 4, some.count(503) > 4, some.count(200) > 4} == {True}
    assert await statuses(Faults(errors=0.3, resets=0.3)) == some, "the same in every run"
    assert await statuses(Faults(errors=0.3, resets=0.3), seed=1) != some


async def test_a_delay_of_all_paths() -> None:
    faults = Faults(errors=1, delay=0.05)
    async with TestClient(TestServer(make_app(FakeTime(), 0, faults))) as client:
        began = asyncio.get_running_loop().time()
        assert (await client.get("/a")).status == 503
        assert asyncio.get_running_loop().time() - began >= 0.045


async def test_without_faults_unknown_paths_are_unknown(upstream: Client) -> None:
    assert (await upstream.get("/v1/charges")).status == 404


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy.demo", *arguments),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def test_command_serves_until_interrupted_and_exits_0() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = await start("--listen", address)
    assert process.stdout is not None
    assert address in (await process.stdout.readline()).decode()
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/") as response:
        assert response.status == 200
    process.send_signal(signal.SIGINT)
    _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")


async def test_command_says_which_address_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = await start("--listen", address)
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert f"cannot listen on {address}" in errors.decode()


async def test_command_explains_a_file_that_it_cannot_use(tmp_path: Path) -> None:
    process = await start("--listen", "127.0.0.1:0", "--with-proxy", str(tmp_path / "absent.yaml"))
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert "absent.yaml must be a readable file" in errors.decode()
