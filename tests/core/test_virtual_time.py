"""The loop whose time is a number: exact, ordered, never stuck, and closed to real time."""

import asyncio
import random
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proxy.core.virtual_time import (
    START,
    START_OF_WALL,
    NothingToWaitFor,
    NotInVirtualTime,
    VirtualClock,
    VirtualLoop,
)

YEAR = 365 * 24 * 3600.0


def run(main: Callable[[VirtualLoop], Awaitable[Any]]) -> Any:  # noqa: ANN401 - whatever it returns
    """What *main* returns, on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)

        async def begin() -> Any:  # noqa: ANN401 - as above
            return await main(loop)

        return runner.run(begin())


# Time.


def test_a_year_costs_nothing_and_is_exact() -> None:
    async def main(loop: VirtualLoop) -> float:
        await asyncio.sleep(YEAR)
        return loop.time()

    began = time.monotonic()
    assert run(main) == START + YEAR
    assert time.monotonic() - began < 5


def test_no_time_passes_while_something_is_ready() -> None:
    async def main(loop: VirtualLoop) -> float:
        loop.call_later(0.001, lambda: None)
        for _ in range(1000):
            await asyncio.sleep(0)
        return loop.time()

    assert run(main) == START


def test_the_time_is_that_of_the_timer_and_not_a_sum() -> None:
    """A thousand steps of 0.1 s that were added up would be off, and a timer might come early."""

    async def main(loop: VirtualLoop) -> list[tuple[float, float]]:
        seen: list[tuple[float, float]] = []

        def note(due: float) -> None:
            seen.append((due, loop.time()))

        for step in range(1, 1001):
            due = START + step / 10
            loop.call_at(due, note, due)
        await asyncio.sleep(101)
        return seen

    seen = run(main)
    assert len(seen) == 1000
    assert all(due == at for due, at in seen)


def test_timers_a_hair_apart_do_not_come_together() -> None:
    async def main(loop: VirtualLoop) -> list[float]:
        seen: list[float] = []
        for when in (START + 1e-9, START + 2e-9, START + 3e-9):
            loop.call_at(when, lambda: seen.append(loop.time()))
        await asyncio.sleep(1)
        return seen

    assert run(main) == [START + 1e-9, START + 2e-9, START + 3e-9]


def test_timers_of_one_moment_come_in_the_order_in_which_they_were_set() -> None:
    async def main(loop: VirtualLoop) -> list[int]:
        seen: list[int] = []
        for number in range(100):
            loop.call_at(START + 1, seen.append, number)
        await asyncio.sleep(2)
        return seen

    assert run(main) == list(range(100))


def test_what_is_overdue_comes_at_once() -> None:
    async def main(loop: VirtualLoop) -> float:
        await asyncio.sleep(10)
        called = loop.create_future()
        loop.call_at(START + 5, called.set_result, None)
        await called
        return loop.time()

    assert run(main) == START + 10


def test_cancelled_timers_are_not_waited_for_and_take_no_place() -> None:
    async def main(loop: VirtualLoop) -> tuple[float, int]:
        for _ in range(10_000):
            loop.call_later(YEAR, lambda: None).cancel()
        await asyncio.sleep(1)
        return loop.time(), len(loop._scheduled)

    ended, timers = run(main)
    assert ended == START + 1
    assert timers < 1000


def test_a_timeout_cuts_what_waits_for_ever() -> None:
    async def main(loop: VirtualLoop) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return loop.time()

    assert run(main) == START + 30


def test_the_clock_reads_the_loop_and_the_chance_that_it_is_given() -> None:
    async def main(loop: VirtualLoop) -> tuple[float, float, float]:
        clock = VirtualClock(loop, random.Random(7).random)
        await asyncio.sleep(12.5)
        return clock.monotonic(), clock.wall(), clock.roll()

    assert run(main) == (START + 12.5, START_OF_WALL + 12.5, random.Random(7).random())


# Nothing is left to wait for.


def test_a_deadlock_is_found_and_says_who_waits() -> None:
    async def waits_in_vain() -> None:
        await asyncio.Event().wait()

    async def main(_: VirtualLoop) -> None:
        await asyncio.create_task(waits_in_vain(), name="the one that waits")

    with pytest.raises(NothingToWaitFor, match=r"the one that waits .*in_vain.*waits in .*py:"):
        run(main)


def test_after_it_tasks_can_still_clean_up() -> None:
    cleaned = []

    async def main(_: VirtualLoop) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            cleaned.append("up")

    with pytest.raises(NothingToWaitFor):
        run(main)
    assert cleaned == ["up"]


# Real time stays out.


async def ask_executor(loop: VirtualLoop) -> None:
    await loop.run_in_executor(None, print)


async def ask_thread(_: VirtualLoop) -> None:
    await asyncio.to_thread(print)


async def ask_subprocess(_: VirtualLoop) -> None:
    await asyncio.create_subprocess_exec("true")


async def ask_signal(loop: VirtualLoop) -> None:
    loop.add_signal_handler(15, print)


async def ask_unix(_: VirtualLoop) -> None:
    await asyncio.open_unix_connection("/tmp/none")  # noqa: S108 - it gets no further


async def ask_tls(loop: VirtualLoop) -> None:
    await loop.create_connection(asyncio.Protocol, "127.0.0.1", 443, ssl=True)


async def ask_udp(loop: VirtualLoop) -> None:
    await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))


async def ask_reader(loop: VirtualLoop) -> None:
    with socket.socket() as sock:
        loop.add_reader(sock, print)


async def ask_with_socket(loop: VirtualLoop) -> None:
    with socket.socket() as sock:
        await loop.create_connection(asyncio.Protocol, sock=sock)


@pytest.mark.parametrize(
    "ask",
    [
        *(ask_executor, ask_thread, ask_subprocess, ask_signal, ask_unix, ask_tls),
        *(ask_udp, ask_reader, ask_with_socket),
    ],
)
def test_what_lives_in_real_time_is_refused(ask: Callable[[VirtualLoop], Awaitable[None]]) -> None:
    with pytest.raises(NotInVirtualTime, match="real time"):
        run(ask)


def test_nor_may_another_thread_call() -> None:
    caught: list[BaseException] = []

    async def main(loop: VirtualLoop) -> None:
        def call() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except NotInVirtualTime as error:
                caught.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        done = loop.create_future()
        loop.call_soon_threadsafe(done.set_result, None)  # the loop's own may
        await done

    run(main)
    assert len(caught) == 1


# Names, latency, addresses that do not answer.


async def serve_nothing(loop: VirtualLoop) -> int:
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    return port


def test_names_are_in_memory() -> None:
    async def main(loop: VirtualLoop) -> None:
        port = await serve_nothing(loop)
        loop.names["api.example"] = ["10.0.0.1", "127.0.0.1"]
        transport, _ = await loop.create_connection(asyncio.Protocol, "api.example", port)
        assert transport.get_extra_info("peername") == ("127.0.0.1", port)
        with pytest.raises(socket.gaierror):
            await loop.create_connection(asyncio.Protocol, "unknown.example", port)

    run(main)


def test_latency_counts_for_the_connect_and_either_way() -> None:
    async def main(loop: VirtualLoop) -> list[float]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(4))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        loop.latencies["127.0.0.1", port] = 0.25
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        opened = loop.time()
        writer.write(b"ping")
        await reader.readexactly(4)
        answered = loop.time()
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(1)
        return [opened, answered]

    assert run(main) == [START + 0.5, START + 1.0]


def test_an_unreachable_address_does_not_answer() -> None:
    async def main(loop: VirtualLoop) -> float:
        loop.unreachable.add(("10.0.0.9", 80))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await loop.create_connection(asyncio.Protocol, "10.0.0.9", 80)
        return loop.time()

    assert run(main) == START + 3
