"""The finer points of one request's attempts."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from proxy.pipeline import retry_session
from tests.pipeline.twins import outcomes
from tests.support import (
    Certificates,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_close,
    eventually,
    hang,
    hang_up,
    ok,
    one_route,
    real_time,
    response,
    running,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.ports import black_hole
from tests.support.records import last_logged

pytestmark = virtual_time


QUICK = "retry: {backoff: {base: 1ms}}"
LONG = 5.0
KEY = "Idempotency-Key: 8e03978e"


# The key is what the upstream gets.


@pytest.mark.parametrize(
    ("honours", "field", "edits", "sent"),
    [
        pytest.param("true", KEY, "", 2, id="a key that is passed on counts"),
        pytest.param(
            "true", KEY, "headers: {request: {remove: [Idempotency-Key]}}", 1, id="not if removed"
        ),
        pytest.param(
            "true",
            KEY,
            "headers: {request: {set: {Idempotency-Key: same-for-all}}}",
            1,
            id="nor if it is the same for everybody",
        ),
        pytest.param("true", "Idempotency-Key:", "", 1, id="nor if it is empty"),
        pytest.param("X-Order-Id", "X-Order-Id: 7", "", 2, id="whatever its name"),
        pytest.param(
            "X-Order-Id",
            "X-Order-Id: 7\r\nConnection: X-Order-Id",
            "",
            2,
            id="which no Connection takes off on the way",
        ),
        pytest.param("X-Order-Id", KEY, "", 1, id="nor one that it does not go by"),
    ],
)
async def test_a_post_is_repeated_only_with_its_key(
    honours: str, field: str, edits: str, sent: int
) -> None:
    route = f"{QUICK}\n{edits}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, options=f"honours_key: {honours}")) as proxy,
        proxy.client() as client,
    ):
        upstream.script(hang_up)
        await client.request("POST", "/", field, body=b"pay")
        assert len(upstream.requests) == sent
        record = await last_logged(proxy)
        assert record["attempts"][-1]["why"] == ("recovered" if sent > 1 else "not_repeatable")


async def test_over_a_stale_connection_too() -> None:
    route = "headers: {request: {remove: [Idempotency-Key]}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, options="honours_key: true")) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer(ok()), hang_up)
        await client.get()
        await client.request("POST", "/", KEY, body=b"pay")
        assert [r.method for r in upstream.requests] == ["GET", "POST"]


# Time.


async def test_the_fallback_is_asked_after_an_attempt_ran_out_of_time() -> None:
    async with ScriptedUpstream(hang) as upstream, ScriptedUpstream() as other:
        config = one_route(
            upstream,
            "retry: {attempts: 1, attempt_timeout: 30ms}\nfallback: {upstream: other}",
        ).replace("upstreams:", f"upstreams:\n  other: {other.url}", 1)
        async with running(config) as proxy:
            assert (await proxy.get()).status == 200
            record = await last_logged(proxy)
            assert [(a["outcome"], a["why"]) for a in record["attempts"]] == [
                ("timeout", "attempts_exhausted"),
                ("2xx", "recovered"),
            ]
            assert record["fallback"] is True


async def test_an_attempt_at_the_fallback_has_no_more_time_than_others() -> None:
    async with ScriptedUpstream(hang) as upstream, ScriptedUpstream(hang) as other:
        config = one_route(
            upstream,
            "retry: {attempts: 1, attempt_timeout: 30ms}\nfallback: {upstream: other}",
        ).replace("upstreams:", f"upstreams:\n  other: {other.url}", 1)
        async with running(config) as proxy:
            answered = await proxy.get()
            assert (answered.status, answered.reason_word) == (504, "timeout")
            record = await last_logged(proxy)
            assert [a["outcome"] for a in record["attempts"]] == ["timeout", "timeout"]
            assert "fallback" not in record, "the client did not get it"


async def test_an_impatient_caller_says_nothing_of_the_upstream() -> None:
    async def slow(visit: Visit) -> None:
        await asyncio.sleep(0.05)
        await answer(ok())(visit)

    async with (
        ScriptedUpstream(slow) as upstream,
        running(one_route(upstream, options="breaker: {min_requests: 2}")) as proxy,
    ):
        for _ in range(3):
            assert (await proxy.get("/", "Holdfast-Timeout: 5ms")).status == 504
        assert (await proxy.get()).status == 200


async def test_a_slow_rest_of_the_response_takes_nothing_from_the_wait() -> None:
    slow_503 = b"HTTP/1.1 503 No\r\nContent-Length: 9\r\nretry-after-ms: 200\r\n\r\n"
    async with (
        ScriptedUpstream() as upstream,
        running(
            one_route(upstream, "retry: {attempts: 5, backoff: {strategy: constant, jitter: none}}")
        ) as proxy,
    ):

        async def begin(visit: Visit) -> None:
            await visit.send(slow_503)
            await visit.until_the_peer_leaves()

        upstream.script(*[begin] * 4)
        assert (await proxy.get()).status == 200
        attempts = (await last_logged(proxy))["attempts"]
        assert [attempt["wait_ms"] for attempt in attempts[1:]] == [200.0] * 4
        gaps = [after["start_ms"] - before["start_ms"] for before, after in pairwise(attempts)]
        assert min(gaps) >= 200
        # The best of four, because this machine may have other things to do.
        assert min(gaps) < 245, "the 50 ms of reading on are part of it"


# The words for it.


@real_time  # TLS
@pytest.mark.parametrize("status", [200, 404, 500, 503])
async def test_a_response_that_broke_off_had_begun(status: int, tmp_path: Path) -> None:
    """Over TLS, where the client is told in another order than over plain TCP."""
    broken = b"HTTP/1.1 %d Broken\r\nContent-Length: 100\r\n\r\nbeginning" % status
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    listen = f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}"
    async with (
        ScriptedUpstream(answer_and_close(broken)) as upstream,
        running(one_route(upstream, "retry: {attempts: 1}", top=listen)) as proxy,
        proxy.client(tls=certificates.for_client()) as client,
    ):
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await client.ended()
        record = await last_logged(proxy)
        assert [a["why"] for a in record["attempts"]] == ["response_started"]


async def test_stale_connections_are_replaced_once_for_a_request() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, QUICK)) as proxy,
    ):
        release = asyncio.Event()

        async def together(visit: Visit) -> None:
            await release.wait()
            await answer(ok())(visit)

        upstream.usual = together
        crowd = [asyncio.create_task(proxy.get()) for _ in range(4)]
        await upstream.seen(4)
        release.set()
        await asyncio.gather(*crowd)
        assert proxy.idle_upstream_connections == 4

        async def once_more(visit: Visit) -> None:
            if visit.request.connection <= 4:
                await hang_up(visit)
            else:
                await answer_and_close(response(503))(visit)

        upstream.usual = once_more
        response_ = await proxy.get()
        assert response_.status == 503
        record = (await proxy.logged(5))[-1]
        assert [(a["outcome"], a["reused"]) for a in record["attempts"]] == [
            ("reset", True),
            ("5xx", False),
            ("5xx", False),
            ("5xx", False),
        ]


# Faults of our own.


class BrokenClock(FakeClock):
    """Chance itself fails."""

    def roll(self) -> float:
        raise ZeroDivisionError


@pytest.mark.parametrize("limit", ["none", "5s"])
async def test_a_fault_while_judging_ends_the_request_at_once(limit: str) -> None:
    async with (
        ScriptedUpstream(answer(response(503))) as upstream,
        running(one_route(upstream, f"timeout: {limit}\nretry: true"), clock=BrokenClock()) as p,
    ):
        async with asyncio.timeout(LONG):
            answered = await p.get()
        assert (answered.status, answered.reason_word) == (502, "unknown")
        assert p.complaints
        p.complaints.clear()
        assert len(upstream.requests) == 1


# The budget.


async def test_a_retry_of_which_nothing_was_sent_costs_nothing_if_its_client_leaves() -> None:
    one_place = "max_connections: 1\nbudget: {min_per_second: 1, ratio: 0}"
    route = "retry: {backoff: {base: 40ms, jitter: none}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, options=one_place)) as proxy,
        proxy.client() as other,
    ):

        async def left() -> float:
            return (await proxy.metrics()).total("holdfast_retry_budget_remaining")

        upstream.script(answer_and_close(response(503)), hang)
        assert await left() == 10
        async with proxy.client() as client:
            await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await eventually(lambda: proxy.waiting_requests == 1, what="the wait")
            # Takes the only place, so that the retry has to wait for it.
            await other.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await upstream.seen(2)
            await eventually(lambda: proxy.waiting_requests == 0, what="the end of the wait")
            assert await left() == 9
        await proxy.logged(1)
        assert await left() == 10
        assert len(upstream.requests) == 2


async def test_a_retry_that_was_sent_is_paid_for_even_if_its_client_leaves_the_fallback() -> None:
    with black_hole() as nowhere:
        async with ScriptedUpstream(answer(response(503))) as upstream:
            config = one_route(
                upstream,
                "retry: {attempts: 2, backoff: {base: 1ms}}\nfallback: {upstream: other}",
                options="budget: {min_per_second: 1, ratio: 0}",
            ).replace("upstreams:", f"upstreams:\n  other: http://127.0.0.1:{nowhere}\n", 1)
            async with running(config) as proxy:
                async with proxy.client() as client:
                    await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                    await upstream.seen(2)
                    await eventually(lambda: proxy.open_upstream_connections == 2, what="a dial")
                await proxy.logged()
                metrics = await proxy.metrics()
                assert metrics.total("holdfast_retry_budget_remaining", upstream="scripted") == 9


async def test_a_body_of_tiny_pieces_holds_up_nobody_when_it_is_sent_again() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, QUICK)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer(response(503)))
        await client.send(b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        await client.send(*[b"1\r\nx\r\n"] * 3000)
        await client.send(b"0\r\n\r\n")
        assert (await client.response("PUT")).status == 200
        first, second = upstream.requests
        assert first.body == second.body == b"x" * 3000
        assert second.framing == "chunked"


# Twins: what is said twice for speed comes to the same.


@pytest.mark.parametrize(
    ("route", "options"),
    [
        ("timeout: 2s\nretry: {attempts: 2}", ""),
        ("timeout: 2s\nretry: {attempts: 3}\nthrottle: 10/s", "breaker: true\nbudget: {ratio: 1}"),
        ("timeout: 50ms\nfallback: {status: 200, body: x}\nretry: true", ""),
    ],
)
async def test_a_good_first_answer_needs_no_verdict(
    monkeypatch: pytest.MonkeyPatch, route: str, options: str
) -> None:
    in_one = await outcomes(route, options)
    monkeypatch.setattr(retry_session, "FIRST_FAILURE", 0)  # each attempt gets its verdict
    assert await outcomes(route, options) == in_one
