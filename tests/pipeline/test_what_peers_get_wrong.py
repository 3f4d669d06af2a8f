"""Behaviours that other proxies and clients get wrong, each as a test of ours.

Sleeping past the deadline and misreading ``Retry-After`` are in
``test_hints_on_the_wire.py``; how often every kind of request may be sent is in
``test_retry_on_the_wire.py``.
"""

import asyncio

import pytest

from tests.support import (
    Behaviour,
    End,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_hang,
    answer_and_reset,
    chunked,
    hang,
    ok,
    one_route,
    request,
    reset,
    response,
    running,
    virtual_time,
)
from tests.support.proxies import LogRecord
from tests.support.records import last_logged, outcomes

pytestmark = virtual_time


QUICK = "backoff: {strategy: constant, base: 1ms, jitter: none}"
RETRY = f"retry: {{{QUICK}}}"
DOWN = response(503, b"down")
KEY = "Idempotency-Key: 8e03978e-40d5"


def whys(record: LogRecord) -> list[str]:
    return [attempt["why"] for attempt in record["attempts"]]


# A POST is repeated although it may have run.

MAY_HAVE_RUN = [
    pytest.param(reset, 502, id="reset once it was read"),
    pytest.param(hang, 504, id="no answer in time"),
    pytest.param(answer(response(504, b"late")), 504, id="504"),
]
IMPATIENT = f"retry: {{{QUICK}, attempt_timeout: 300ms}}"


@pytest.mark.parametrize(("fault", "status"), MAY_HAVE_RUN)
async def test_a_post_that_may_have_run_is_sent_once_and_its_caller_gets_the_true_error(
    fault: Behaviour, status: int
) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, IMPATIENT)) as proxy:
        upstream.script(fault)
        async with proxy.client() as client:
            got = await client.request("POST", "/charges", KEY, body=b"10 EUR")
        assert (got.status, got.get("Holdfast-Attempts")) == (status, None)
        assert whys(await last_logged(proxy)) == ["not_repeatable"]
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(("fault", "status"), MAY_HAVE_RUN)
async def test_with_a_key_that_the_upstream_honours_it_is_sent_again_under_the_same_key(
    fault: Behaviour, status: int
) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, IMPATIENT, options="honours_key: true")) as proxy,
    ):
        upstream.script(fault)
        async with proxy.client() as client:
            got = await client.request("POST", "/charges", KEY, body=b"10 EUR")
        assert (got.status, got.get("Holdfast-Attempts")) == (200, "2")
        record = await last_logged(proxy)
        assert whys(record) == ["retried", "recovered"]
        assert record["attempts"][0]["status"] in (None, status)
        first, second = upstream.requests
        assert second.get("Idempotency-Key") == "8e03978e-40d5"
        assert (first.raw_head, first.body) == (second.raw_head, second.body)


async def test_an_upstream_that_was_not_there_yet_gets_even_a_post() -> None:
    route = "retry: {attempts: 100, backoff: {strategy: constant, base: 20ms, jitter: none}}"
    async with ScriptedUpstream() as gone:
        pass
    async with (
        running(one_route(gone, route, options="budget: false")) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("POST", "/charges", body=b"10 EUR"))
        await until_attempts_failed(proxy, 2)
        async with ScriptedUpstream(port=gone.port) as back:
            assert (await client.response("POST")).status == 200
            assert set(outcomes(await last_logged(proxy))) == {"connect", "2xx"}
            assert [arrived.body for arrived in back.requests] == [b"10 EUR"]


async def until_attempts_failed(proxy: RunningProxy, count: int) -> None:
    async with asyncio.timeout(5):
        while True:
            metrics = await proxy.metrics()
            if metrics.total("holdfast_upstream_attempts_total", outcome="connect") >= count:
                return
            await asyncio.sleep(0.005)


# Attempts that nobody counts.


async def test_a_stale_connection_costs_an_attempt_that_is_told_of_but_not_one_that_counts() -> (
    None
):
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, RETRY)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer(ok()), reset, answer(DOWN), answer(DOWN))
        await client.get("/warm")
        got = await client.get("/again")
        assert (got.status, got.get("Holdfast-Attempts")) == (200, "4")
        record = await last_logged(proxy, 2)
        assert outcomes(record) == ["reset", "5xx", "5xx", "2xx"]
        assert whys(record) == ["retried", "retried", "retried", "recovered"]
        assert [r.target for r in upstream.requests] == ["/warm", *["/again"] * 4]


async def test_a_post_on_a_stale_connection_is_not_sent_twice_in_secret() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, RETRY)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer(ok()), reset)
        await client.get()
        got = await client.request("POST", "/charges", KEY, body=b"10 EUR")
        assert (got.status, got.problem["attempts"]) == (502, 1)
        assert whys(await last_logged(proxy, 2)) == ["not_repeatable"]
        assert len(upstream.requests) == 2


@pytest.mark.parametrize("host", ["preserve", "upstream"])
async def test_host_is_the_same_at_every_attempt(host: str) -> None:
    async with (
        ScriptedUpstream(answer(DOWN)) as upstream,
        running(one_route(upstream, RETRY, options=f"host: {host}")) as proxy,
    ):
        await proxy.get("/", "Host: api.example")
        wanted = {"preserve": "api.example", "upstream": f"127.0.0.1:{upstream.port}"}[host]
        assert [r.get("Host") for r in upstream.requests] == [wanted] * 3


@pytest.mark.parametrize("switch", ["retry: false", "retry: 1", "retry: {attempts: 1}"])
async def test_no_retry_means_none(switch: str) -> None:
    top = "defaults: {retry: 5}"
    async with (
        ScriptedUpstream(answer(DOWN)) as upstream,
        running(one_route(upstream, switch, top=top)) as proxy,
    ):
        got = await proxy.get()
        assert (got.status, got.body, got.get("Holdfast-Attempts")) == (503, b"down", None)
        assert len(upstream.requests) == 1


# The wrong answer at the end.


async def test_the_last_response_is_handed_over_as_it_came() -> None:
    body = bytes(range(256)) * 20
    fields = [
        "date: Mon, 01 Jan 2024 00:00:00 GMT",
        "Set-Cookie: a=1",
        "Set-Cookie: b=2",
        "retry-After: 0",
        "X-Odd:  two  blanks ",
        "Server: scripted",
        "Content-Type: application/octet-stream",
    ]
    async with ScriptedUpstream() as upstream, running(one_route(upstream, RETRY)) as proxy:
        upstream.script(answer(response(502)), answer(DOWN), answer(response(504, body, *fields)))
        got = await proxy.get()
        start, *lines = got.raw_head.decode("latin-1").split("\r\n")[:-2]
        assert start == "HTTP/1.1 504 Scripted"
        assert lines[: len(fields)] == fields
        added = {line.partition(":")[0] for line in lines[len(fields) :]}
        assert added == {"X-Request-Id", "Holdfast-Attempts", "Via", "Content-Length"}
        assert got.get("Holdfast-Attempts") == "3"
        assert got.body == body
        assert whys(await last_logged(proxy)) == ["retried", "retried", "attempts_exhausted"]


@pytest.mark.parametrize(("failures", "claimed"), [(0, None), (1, "2")])
async def test_the_number_of_attempts_is_ours_to_tell(failures: int, claimed: str | None) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, RETRY)) as proxy:
        upstream.script(*[answer(DOWN)] * failures, answer(ok(b"", "Holdfast-Attempts: 7")))
        assert (await proxy.get()).get("Holdfast-Attempts") == claimed


async def test_an_earlier_response_is_not_shown_in_place_of_the_last_failure() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, RETRY)) as proxy:
        upstream.script(answer(response(503, b"", "Connection: close")), reset, reset)
        got = await proxy.get()
        assert (got.status, got.reason_word) == (502, "reset")
        assert (got.problem["attempts"], got.get("Holdfast-Attempts")) == (3, "3")
        assert outcomes(await last_logged(proxy)) == ["5xx", "reset", "reset"]


async def test_a_503_of_ours_can_be_told_from_the_upstream_s() -> None:
    options = "max_connections: 1\nconnect_timeout: 20ms"
    async with (
        ScriptedUpstream(answer(DOWN)) as upstream,
        running(one_route(upstream, RETRY, options=options)) as proxy,
        proxy.client() as occupant,
    ):
        theirs = await proxy.get()
        assert (theirs.status, theirs.get("Proxy-Status")) == (503, None)
        upstream.script(hang)
        await occupant.send(request("GET", "/"))
        await upstream.seen(4)
        ours = await proxy.get()
        assert (ours.status, ours.reason_word) == (503, "busy")
        assert ours.get("Proxy-Status") == "holdfast; error=connection_limit_reached"
        first, second = await proxy.logged(2)
        assert ("refusal" in first, second["refusal"]) == (False, "busy")
        assert (outcomes(first), outcomes(second)) == (["5xx"] * 3, ["busy"])


# A response that was given up keeps its connection, or its caller, waiting.


async def without_end(visit: Visit) -> None:
    head = b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n"
    await visit.send(head)
    while visit.wire.is_open and visit.wire.end is None:
        await visit.send(b"400\r\n%b\r\n" % bytes(1024))
        await asyncio.sleep(0.001)


PARTLY = b"HTTP/1.1 503 No\r\nContent-Length: 100\r\n\r\npartly"


@pytest.mark.parametrize(
    ("fault", "connections"),
    [
        pytest.param(answer(DOWN), 1, id="a short one is read, and its connection used again"),
        pytest.param(answer(DOWN[:-2], DOWN[-2:]), 1, id="so is one that comes in pieces"),
        pytest.param(answer(response(503, bytes(4 << 20))), 2, id="a large one is closed"),
        pytest.param(answer_and_hang(PARTLY), 2, id="a slow one is closed"),
        pytest.param(without_end, 2, id="an endless one is closed"),
        pytest.param(answer_and_hang(b"HTTP/1.1 503 No\r\n\r\n"), 2, id="one without a length"),
        pytest.param(answer_and_reset(PARTLY), 2, id="one that breaks off"),
    ],
)
async def test_a_response_that_was_given_up_holds_up_nobody(
    fault: Behaviour, connections: int
) -> None:
    options = "max_connections: 1\nconnect_timeout: 5s"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, RETRY, options=options)) as proxy,
    ):
        upstream.script(fault)
        assert (await proxy.get()).status == 200
        record = await last_logged(proxy)
        assert outcomes(record) == ["5xx", "2xx"]
        first, second = upstream.requests
        assert second.at - first.at < 1
        assert len(upstream.connections) == connections
        assert proxy.open_upstream_connections == 1


# A stream is broken, or a part of it is sent twice.


async def test_nothing_is_repeated_once_a_byte_has_reached_the_client() -> None:
    fault = answer_and_reset(chunked(b"the first half", last=False))
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, RETRY)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(fault)
        got = await client.get()
        assert (got.status, got.body, got.complete) == (200, b"the first half", False)
        assert await client.ended() is End.RESET
        record = await last_logged(proxy)
        assert (outcomes(record), whys(record)) == (["truncated"], ["response_started"])
        assert len(upstream.requests) == 1


async def test_events_pass_one_by_one_after_a_retry() -> None:
    seen = asyncio.Event()

    async def two_events(visit: Visit) -> None:
        await visit.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"
        )
        await seen.wait()
        await visit.send(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")

    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, RETRY)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer(DOWN), two_events)
        await client.send(request("GET", "/events"))
        head = await client.wire.read_until(b"\r\n\r\n")
        assert b"Content-Type: text/event-stream" in head
        # The second is not sent before the first was here.
        assert await client.wire.read_until(b"\n\n\r\n") == b"9\r\ndata: 1\n\n\r\n"
        seen.set()
        assert await client.wire.read_until(b"0\r\n\r\n") == b"9\r\ndata: 2\n\n\r\n0\r\n\r\n"
        assert outcomes(await last_logged(proxy)) == ["5xx", "2xx"]


@pytest.mark.parametrize("fault", [answer(DOWN), reset, answer(response(429))])
async def test_a_request_for_a_tunnel_gets_one_attempt(fault: Behaviour) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, RETRY)) as proxy:
        upstream.script(fault)
        got = await proxy.get("/", "Connection: Upgrade", "Upgrade: websocket")
        assert got.status in {429, 502, 503}
        assert got.get("Holdfast-Attempts") is None
        assert len(upstream.requests) == 1


# Methods, and whom to ask next.


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
async def test_methods_that_only_ask_are_repeated(method: str) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, RETRY)) as proxy:
        upstream.script(reset, answer(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"))
        upstream.usual = answer(ok(b""))
        async with proxy.client() as client:
            got = await client.request(method, "/")
        assert (got.status, got.get("Holdfast-Attempts")) == (200, "3")
        assert [r.method for r in upstream.requests] == [method] * 3


async def test_trace_is_refused_and_not_even_sent_once() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, RETRY)) as proxy:
        async with proxy.client() as client:
            assert (await client.request("TRACE", "/")).reason_word == "method"
        assert upstream.connections == []


@pytest.mark.parametrize("balance", ["round_robin", "first"])
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(answer(DOWN), id="that answered 503"),
        pytest.param(answer(response(421)), id="that knows nothing of the host"),
        pytest.param(reset, id="that hung up"),
    ],
)
async def test_another_address_is_asked_than_the_one(balance: str, fault: Behaviour) -> None:
    async with ScriptedUpstream(fault) as bad, ScriptedUpstream() as good:
        urls = f"{bad.url}, {good.url}"
        config = one_route(urls, RETRY, options=f"balance: {balance}\nbudget: false")
        async with running(config) as proxy:
            for _ in range(6):
                assert (await proxy.get()).status == 200
            # No request came back to the bad one, although three attempts were allowed,
            # and that one is asked first no more often than when it was good.
            log = await proxy.logged(6)
            assert max(len(record["attempts"]) for record in log) == 2
            assert len(bad.requests) == (6 if balance == "first" else 3)
            assert len(good.requests) == 6


async def test_after_421_not_even_the_only_connection_there_is_serves_again() -> None:
    async def take_a_while(visit: Visit) -> None:
        await asyncio.sleep(0.01)
        await visit.send(ok())

    options = "max_connections: 1\nconnect_timeout: 5s"
    async with (
        ScriptedUpstream(take_a_while) as upstream,
        running(one_route(upstream, RETRY, options=options)) as proxy,
    ):
        upstream.script(answer(response(421)))
        # The others are in the queue for it, and hand it from one to the next.
        answers = await asyncio.gather(*(proxy.get(f"/{n}") for n in range(4)))
        assert [got.status for got in answers] == [200] * 4
        misdirected = upstream.requests[0]
        [again] = [r for r in upstream.requests[1:] if r.target == misdirected.target]
        assert again.connection != misdirected.connection
        assert len(upstream.requests) == 5


async def test_where_all_addresses_failed_they_are_asked_in_turn_nevertheless() -> None:
    async with ScriptedUpstream(answer(DOWN)) as one, ScriptedUpstream(answer(DOWN)) as other:
        config = one_route(f"{one.url}, {other.url}", RETRY)
        async with running(config) as proxy:
            got = await proxy.get()
            assert (got.status, got.get("Holdfast-Attempts")) == (503, "3")
            assert {len(one.requests), len(other.requests)} == {1, 2}
