"""Deferred writes: never out of order, never lost, and taken back when they must not go out."""

import asyncio

import pytest

from proxy.core.clock import SystemClock
from proxy.http.response_head import ResponseHead
from proxy.net.write_coalescer import SMALL as LARGEST_DEFERRED, WriteCoalescer
from proxy.policy.attempt import Attempt, FailureKind
from proxy.upstream.call import Call
from proxy.upstream.connection import UpstreamConnection
from tests.support import (
    End,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_close,
    both_loops,
    eventually,
    ok,
    one_route,
    request,
    running,
)
from tests.support.exchanges import UnservedExchange
from tests.support.records import last_logged, outcomes


class Written(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.data: list[bytes] = []
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True

    close = abort


# The coalescer itself.


async def test_nothing_goes_out_in_the_present_turn_and_all_of_it_in_the_next() -> None:
    coalescer, first, second = WriteCoalescer(), Written(), Written()
    coalescer.put(first, b"a")
    coalescer.put(second, b"b")
    assert (first.data, second.data) == ([], [])
    await asyncio.sleep(0)
    assert (first.data, second.data) == ([b"a"], [b"b"])


async def test_two_messages_for_one_connection_keep_their_order() -> None:
    coalescer, transport = WriteCoalescer(), Written()
    coalescer.put(transport, b"first ")
    coalescer.put(transport, b"second")
    await asyncio.sleep(0)
    assert b"".join(transport.data) == b"first second"


@both_loops
async def test_a_task_woken_after_a_message_was_put_finds_it_gone_out() -> None:
    coalescer, transport, other = WriteCoalescer(), Written(), Written()
    done = asyncio.get_running_loop().create_future()

    async def writes_next() -> None:
        await done
        transport.write(b"direct")

    task = asyncio.create_task(writes_next())
    await asyncio.sleep(0)
    coalescer.put(other, b"an earlier message of this turn")
    coalescer.put(transport, b"deferred ")
    done.set_result(None)
    await task
    assert transport.data == [b"deferred ", b"direct"]


async def test_a_connection_that_closed_meanwhile_gets_nothing() -> None:
    coalescer, transport = WriteCoalescer(), Written()
    coalescer.put(transport, b"late")
    transport.abort()
    await asyncio.sleep(0)
    assert transport.data == []


async def test_what_is_taken_back_never_goes_out_and_the_rest_does() -> None:
    coalescer, taken, kept = WriteCoalescer(), Written(), Written()
    coalescer.put(taken, b"a")
    assert coalescer.take_back(taken)
    assert not coalescer.take_back(taken)
    coalescer.put(kept, b"b")
    await asyncio.sleep(0)
    assert (taken.data, kept.data) == ([], [b"b"])
    assert not coalescer.take_back(kept)


# An upstream's connection with a request that has not gone out yet.


class Silent(UnservedExchange):
    """An exchange that remembers whether it was answered."""

    answered = False

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        del head, pieces, complete
        self.answered = True

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        del pieces, complete


class Home:
    """Where the connection goes back to."""

    def __init__(self) -> None:
        self.given_back = 0

    def give_back(self, connection: UpstreamConnection) -> None:
        del connection
        self.given_back += 1

    def lost(self, connection: UpstreamConnection) -> None:
        del connection


class Upstream:
    """A connection with one small request on it, put in this very turn."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.transport, self.home, self.exchange = Written(), Home(), Silent("POST")
        self.connection = UpstreamConnection(self.home, loop, WriteCoalescer(), 30.0)
        self.connection.connection_made(self.transport)
        self.attempt = Attempt(1, "upstream", 0.0)
        self.call = Call(self.exchange, self.attempt, None, loop, SystemClock())
        assert self.connection.send(self.call, b"head", b"body", more=False)
        self.attempt.sent = True
        self.call.connection = self.connection


async def test_bytes_that_came_before_the_request_went_out_are_not_its_answer() -> None:
    upstream = Upstream()
    upstream.connection.data_received(b"HTTP/1.1 408 Idle\r\nContent-Length: 0\r\n\r\n")
    assert upstream.call.done.done()
    assert upstream.attempt.kind is FailureKind.RESET
    assert (upstream.attempt.sent, upstream.attempt.received) == (False, False)
    await asyncio.sleep(0)
    assert upstream.transport.closing
    assert upstream.transport.data == []
    assert upstream.home.given_back == 0
    assert not upstream.exchange.answered


async def test_a_connection_lost_before_the_request_went_out_has_sent_nothing() -> None:
    upstream = Upstream()
    upstream.connection.connection_lost(None)
    assert upstream.attempt.kind is FailureKind.RESET
    assert not upstream.attempt.sent


async def test_a_connection_that_began_to_close_in_that_turn_has_sent_nothing() -> None:
    upstream = Upstream()
    upstream.transport.close()
    await asyncio.sleep(0)
    # A loop tells of the end a moment after it has begun: uvloop always does.
    upstream.connection.connection_lost(None)
    assert upstream.transport.data == []
    assert upstream.attempt.kind is FailureKind.RESET
    assert not upstream.attempt.sent


async def test_once_the_request_has_gone_out_bytes_are_its_answer() -> None:
    upstream = Upstream()
    await asyncio.sleep(0)
    upstream.connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert upstream.transport.data == [b"headbody"]
    assert upstream.attempt.kind is None
    assert upstream.attempt.sent
    assert upstream.exchange.answered
    assert upstream.home.given_back == 1


@pytest.mark.parametrize("kind", [FailureKind.CANCELLED, FailureKind.TIMEOUT])
async def test_a_request_given_up_in_the_same_turn_never_goes_out(kind: FailureKind) -> None:
    upstream = Upstream()
    upstream.call.fail(kind)
    assert (upstream.attempt.kind, upstream.attempt.sent) == (kind, False)
    await asyncio.sleep(0)
    assert upstream.transport.data == []


@pytest.mark.parametrize("kind", [FailureKind.CANCELLED, FailureKind.TIMEOUT])
async def test_a_request_given_up_in_the_next_turn_has_gone_out(kind: FailureKind) -> None:
    upstream = Upstream()
    await asyncio.sleep(0)
    upstream.call.fail(kind)
    assert (upstream.attempt.kind, upstream.attempt.sent) == (kind, True)
    assert upstream.transport.data == [b"headbody"]


# On the wire: small answers are deferred, large ones and our own are not.

SMALL = b"s"
LARGE = b"L" * (LARGEST_DEFERRED + 1)


@both_loops
async def test_pipelined_answers_keep_their_order_whichever_way_they_are_written() -> None:
    bodies = [SMALL, LARGE, SMALL, SMALL, LARGE, LARGE, SMALL] * 4

    async def by_number(visit: Visit) -> None:
        await answer(ok(bodies[int(visit.request.target[1:])]))(visit)

    async with ScriptedUpstream(by_number) as upstream, running(one_route(upstream)) as proxy:
        targets = [f"/{n}" for n in range(len(bodies))]
        # After every third a refusal of our own, written at once.
        for place in range(len(targets), 0, -3):
            targets.insert(place, "/a/../b")
        async with proxy.client() as client:
            await client.send(b"".join(request("GET", target) for target in targets))
            responses = await client.responses(["GET"] * len(targets))
    expected = [b"" if "." in target else bodies[int(target[1:])] for target in targets]
    found = [b"" if response.status == 400 else response.body for response in responses]
    assert found == expected


@both_loops
@pytest.mark.parametrize(
    ("fields", "body"),
    [
        pytest.param(["Connection: close"], SMALL, id="the client asks for a close"),
        pytest.param(["Connection: close"], LARGE, id="the same, with a large answer"),
    ],
)
async def test_an_answer_comes_whole_before_the_close(fields: list[str], body: bytes) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer(ok(SMALL)), answer_and_close(ok(body)))
        async with proxy.client() as client:
            await client.send(request("GET", "/1") + request("GET", "/2", *fields))
            first, second = await client.responses(["GET", "GET"])
            assert (first.body, second.body) == (SMALL, body)
            assert await client.ended() is End.CLOSED


@pytest.mark.parametrize("turns", range(8))
async def test_a_drain_at_any_moment_loses_no_answer_that_was_complete(turns: int) -> None:
    """The drain meets the answer in the turn in which it is put, or one nearby."""
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            await client.send(request("GET", "/"))
            await upstream.seen()
            for _ in range(turns):
                await asyncio.sleep(0)
            drained = asyncio.create_task(proxy.app.drain())
            response = await client.response()
            assert (response.status, response.body) == (200, b"ok")
            assert await client.ended() is End.CLOSED
        await drained


@pytest.mark.parametrize("turns", range(12))
async def test_an_end_at_any_moment_leaves_a_whole_answer_or_none(turns: int) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            await client.send(request("GET", "/"))
            await upstream.seen()
            for _ in range(turns):
                await asyncio.sleep(0)
            stopped = asyncio.create_task(proxy.app.stop_at_once())
            await client.ended()
            if client.wire.unread:
                response = await client.response()
                assert response.complete
                assert response.status in (200, 503)
            record = (await proxy.logged())[0]
            if record["code"] == 200:
                assert response.status == 200
        await stopped


async def test_a_reset_by_the_upstream_right_behind_its_answer_does_not_lose_it() -> None:
    async def answer_then_reset(visit: Visit) -> None:
        visit.wire.write(ok(b"whole"))
        visit.wire.reset()

    async with (
        ScriptedUpstream(answer_then_reset) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        for lines in range(1, 6):
            response = await client.get()
            # The reset may overtake the answer in the kernel; half of it never comes out.
            assert response.status in (200, 502)
            assert response.complete
            await proxy.logged(lines)


async def test_a_client_that_leaves_in_the_turn_of_its_answer_is_no_fault() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        for lines in range(1, 11):
            async with proxy.client() as client:
                await client.send(request("GET", "/"))
                await upstream.seen(lines)
                for _ in range(lines % 6):
                    await asyncio.sleep(0)
                client.wire.reset()
            record = await last_logged(proxy, lines)
            assert record["code"] in (200, 499)
            assert outcomes(record) in (["2xx"], ["cancelled"])
        await eventually(lambda: proxy.client_connections == 0)
