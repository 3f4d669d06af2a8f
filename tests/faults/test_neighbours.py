"""Hostile neighbours: whatever one caller does to what all share, another one is served.

Each attack goes at full tilt, alone and (deep) together with all others, from one address.
The victim uses everything meanwhile: new keys, duplicates of an old one, a limit of its own, dead
letters and plain requests. Every one of its requests has to succeed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    Visit,
    Wire,
    WireEnded,
    ok,
    request,
    response,
    running,
)
from tests.support.messages import read_response

VICTIM = ("Authorization: Bearer victim", "X-Api-Key: victim")
LARGE = 64 * 1024
AT_ONCE = 8
"""Connections of each attack."""


def config(upstream: ScriptedUpstream, folder: Path) -> str:
    """Everything that is shared is small."""
    return f"""
store: {{url: memory, entries: 300, bytes: 2MiB}}
limits: {{replay_memory: 2MiB, connections: 500}}
state_dir: {folder}
access_log: none
upstreams:
  scripted: {{urls: [{upstream.url}], max_connections: 64, budget: false}}
defaults: {{timeout: 5s}}
routes:
  - match: /keyed/**
    upstream: scripted
    buffer: 256KiB
    idempotency: {{on_ambiguous: hold, max_response: 128KiB}}
  - match: /limited/**
    upstream: scripted
    throttle: {{rate: 2000/s, key: 'header:X-Api-Key', max_keys: 40, max_wait: 2s}}
  - match: /letters/**
    upstream: scripted
    dead_letter: {{ttl: 1h}}
  - match: /**
    upstream: scripted
    retry: true
"""


async def behave(visit: Visit) -> None:
    """The upstream knows the victim, and answers strangers as the target says."""
    await visit.read_body()
    target = visit.request.target
    if target.startswith("/letters/"):
        await visit.send(response(503, b"not now"))
    elif target.startswith(("/limited/", "/keyed/made-up")) and _is_stranger(visit):
        await visit.send(response(401, b"who?"))
    elif "slow" in target:
        await asyncio.sleep(0.05)
        await visit.send(ok())
    elif "large" in target:
        await visit.send(ok(b"l" * LARGE))
    elif "empty" in target:
        await visit.send(b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n")
        await asyncio.sleep(0.001)
        visit.wire.write(b"evil")
    else:
        await visit.send(ok(target.encode()))


def _is_stranger(visit: Visit) -> bool:
    return visit.request.get("X-Api-Key") != "victim"


# The attacks: each sends for ever, over one connection after another.


@asynccontextmanager
async def connected(proxy: RunningProxy) -> AsyncIterator[Wire]:
    """A connection from an address that is not the victim's."""
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_connection(
        Wire, "127.0.0.1", proxy.port, local_addr=("127.0.0.2", 0)
    )
    try:
        yield wire
    finally:
        wire.reset()
        await wire.close_and_wait()


_numbers = count()


async def exchange(proxy: RunningProxy, data: bytes, method: str = "POST") -> None:
    """Send *data* over a connection of its own, and take what comes."""
    async with connected(proxy) as wire:
        wire.write(data)
        with suppress(WireEnded):
            await read_response(wire, method)


def keyed(target: str, key: object, *fields: str, body: bytes = b"b") -> bytes:
    return request("POST", target, f"Idempotency-Key: {key}", *fields, body=body)


async def fill_the_store_with_held_keys(proxy: RunningProxy) -> None:
    while True:
        data = keyed("/keyed/slow", f"held-{next(_numbers)}", "Holdfast-Timeout: 5ms")
        await exchange(proxy, data)


async def fill_the_store_with_results(proxy: RunningProxy) -> None:
    while True:
        await exchange(proxy, keyed("/keyed/large", f"large-{next(_numbers)}"))


async def fill_the_store_under_many_names(proxy: RunningProxy) -> None:
    """Names that the upstream does not know: to those that it knows, the room belongs."""
    while True:
        name = f"Authorization: Bearer {next(_numbers)}"
        await exchange(proxy, keyed("/keyed/made-up", f"k-{next(_numbers)}", name))


async def repeat_a_large_result(proxy: RunningProxy) -> None:
    while True:
        await exchange(proxy, keyed("/keyed/large", "always the same"))


async def never_finish_an_upload(proxy: RunningProxy) -> None:
    while True:
        async with connected(proxy) as wire:
            data = keyed("/keyed/upload", f"u-{next(_numbers)}", body=b"u" * 200_000)
            wire.write(data[:-1])
            with suppress(WireEnded):
                await read_response(wire, "POST")


async def be_another_caller_each_time(proxy: RunningProxy) -> None:
    while True:
        data = request("GET", "/limited/x", f"X-Api-Key: made-up-{next(_numbers)}")
        await exchange(proxy, data, "GET")


async def leave_letters(proxy: RunningProxy) -> None:
    while True:
        await exchange(proxy, request("POST", "/letters/x", body=b"x" * 2000))


async def poison_connections(proxy: RunningProxy) -> None:
    """A body behind 204, trailers that want to be another's fields, a head that never ends."""
    trailers = (
        request("POST", "/plain", "Transfer-Encoding: chunked")
        + b"1\r\nx\r\n0\r\nAuthorization: Bearer evil\r\n\r\n"
        + request("GET", "/plain")
    )
    while True:
        await exchange(proxy, request("GET", "/empty"), "GET")
        await exchange(proxy, trailers)
        await exchange(proxy, b"GET / HTTP/1.1\r\nX: \x00\r\n\r\n", "GET")


Attack = Callable[[RunningProxy], Coroutine[None, None, None]]
ATTACKS: list[Attack] = [
    fill_the_store_with_held_keys,
    fill_the_store_with_results,
    fill_the_store_under_many_names,
    repeat_a_large_result,
    never_finish_an_upload,
    be_another_caller_each_time,
    leave_letters,
    poison_connections,
]


# The victim.


class Victim:
    """A caller that uses everything, and must be served each time."""

    def __init__(self, proxy: RunningProxy) -> None:
        self._proxy = proxy
        self._kept = b""

    async def settle(self) -> None:
        """Before the attack: one key is kept, so that it is known for good."""
        async with self._proxy.client() as client:
            first = await client.request(
                "POST", "/keyed/first", "Idempotency-Key: first", *VICTIM, body=b"b"
            )
            assert first.status == 200
            self._kept = first.body
            assert (await client.get("/limited/x", *VICTIM)).status == 200

    async def live(self, rounds: int) -> None:
        """Use everything, so many times."""
        for number in range(rounds):
            async with self._proxy.client() as client:
                new = await client.request(
                    "POST", f"/keyed/{number}", f"Idempotency-Key: {number}", *VICTIM, body=b"b"
                )
                assert (new.status, new.body) == (200, b"/keyed/%d" % number), new
                old = await client.request(
                    "POST", "/keyed/first", "Idempotency-Key: first", *VICTIM, body=b"b"
                )
                assert (old.status, old.body) == (200, self._kept), old
                assert old.get("Idempotent-Replayed") == "true"
                limited = await client.get("/limited/x", *VICTIM)
                assert limited.status == 200, limited
                plain = await client.get(f"/plain/{number}", *VICTIM)
                assert (plain.status, plain.body) == (200, b"/plain/%d" % number), plain
                if number % 5 == 0:
                    failed = await client.request("POST", "/letters/v", *VICTIM, body=b"mine")
                    assert failed.status == 503
                    assert failed.get("Holdfast-Dead-Letter"), failed


async def attacked(attacks: list[Attack], rounds: int, folder: Path) -> None:
    async with (
        ScriptedUpstream(behave) as upstream,
        running(config(upstream, folder)) as proxy,
    ):
        victim = Victim(proxy)
        await victim.settle()
        tasks = [asyncio.create_task(attack(proxy)) for attack in attacks for _ in range(AT_ONCE)]
        try:
            await asyncio.sleep(0.3)  # so that all is full by then
            await victim.live(rounds)
            assert not any(task.done() for task in tasks), "an attack has ended"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert all(request.get("Authorization") != "Bearer evil" for request in upstream.requests)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__.replace("_", " "))
async def test_a_neighbour_is_served(attack: Attack, tmp_path: Path) -> None:
    await attacked([attack], 12, tmp_path)


@pytest.mark.deep
@pytest.mark.timeout(300)
async def test_a_neighbour_is_served_whatever_all_of_them_do(tmp_path: Path) -> None:
    await attacked(ATTACKS, 60, tmp_path)
