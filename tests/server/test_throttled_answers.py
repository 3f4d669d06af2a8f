"""429 ``throttled``: what it says, that it is true, and what becomes of the connection."""

import re
from collections.abc import Awaitable, Callable

import pytest

from tests.support import (
    End,
    Response,
    RunningProxy,
    ScriptedUpstream,
    answer,
    hang,
    ok,
    one_route,
    request,
    response,
    running,
)
from tests.support.clock import FakeClock
from tests.support.records import last_logged, outcomes
from tests.support.throttles import decisions, join_queue, statuses
from tests.vectors.load import group

ONE_PER_HOUR = "throttle: {rate: 1/h, max_wait: 0s}"
STATUS = next(case["status"] for case in group("local_errors")["cases"] if case["status"] == 429)

# Lists of Strings with parameters (RFC 9651), as strictly as they can be read.

_STRING = r'"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"'
_PARAMETER = rf";([a-z*][a-z0-9_.*-]*)=(-?[0-9]{{1,15}}|{_STRING})"
_member = re.compile(rf"({_STRING})((?:{_PARAMETER})*)").fullmatch
_parameter = re.compile(_PARAMETER).finditer

Items = dict[str, dict[str, int | str]]


def read_list(field: str | None) -> Items:
    """A structured field: its members by their String, with their parameters."""
    assert field is not None
    items: Items = {}
    for text in field.split(", "):
        member = _member(text)
        assert member is not None, f"{text!r} of {field!r}"
        name = member[1][1:-1]
        assert name not in items, f"{name} is there twice"
        found = [(match[1], match[2]) for match in _parameter(member[2])]
        assert len(dict(found)) == len(found), f"a parameter twice in {text!r}"
        items[name] = {key: value[1:-1] if value[0] == '"' else int(value) for key, value in found}
    return items


@pytest.mark.parametrize(
    "field",
    ['"a";q=1,"b"', '"a"; q=1', "a;q=1", '"a";Q=1', '"a";q=1;q=2', '"a";q=', '"a";q=1.5', ""],
)
def test_the_reading_here_is_strict(field: str) -> None:
    with pytest.raises(AssertionError):
        read_list(field)


# The four causes.


async def after_one(_: ScriptedUpstream, proxy: RunningProxy) -> Response:
    """The second caller is refused."""
    assert (await proxy.get("/first")).status == 200
    return await proxy.get("/refused")


async def after_two_who_stay(upstream: ScriptedUpstream, proxy: RunningProxy) -> Response:
    """One call is under way and one waits in the queue: the third is refused."""
    upstream.script(hang)
    async with proxy.client() as first, proxy.client() as second:
        await first.send(request("GET", "/first"))
        await upstream.seen()
        await join_queue(proxy, second)
        return await proxy.get("/refused")


async def after_it_was_told_to_wait(upstream: ScriptedUpstream, proxy: RunningProxy) -> Response:
    upstream.script(answer(response(429, b"slow down", "Retry-After: 40")))
    assert (await proxy.get("/first")).body == b"slow down"
    return await proxy.get("/refused")


Provoke = Callable[[ScriptedUpstream, RunningProxy], Awaitable[Response]]

CAUSES: list[tuple[str, str, Provoke, str]] = [
    (
        "max_wait",
        "throttle: {rate: 1/m, margin: 500ms, max_wait: 59s}\ntimeout: 2m",
        after_one,
        "61",
    ),
    ("queue_full", "throttle: {concurrency: 1, max_queue: 1}", after_two_who_stay, "1"),
    (
        "deadline",
        "throttle: {rate: 1/m, margin: 500ms, max_wait: none}\ntimeout: 59s",
        after_one,
        "61",
    ),
    ("paused", "throttle: true", after_it_was_told_to_wait, "40"),
]


@pytest.mark.parametrize(
    ("cause", "route", "provoke", "retry_after"),
    [pytest.param(*row, id=row[0]) for row in CAUSES],
)
async def test_cause(cause: str, route: str, provoke: Provoke, retry_after: str) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        refused = await provoke(upstream, proxy)
        assert refused.status == STATUS
        assert refused.reason_word == "throttled"
        assert refused.problem["cause"] == cause
        assert refused.problem.keys() == {"type", "title", "status", "detail", "cause"}
        assert refused.get("Proxy-Status") == "holdfast; error=http_request_denied"
        assert refused.get("Retry-After") == retry_after
        assert refused.get("Date")
        assert refused.get("Connection") is None
        # No word about where the upstream is, and none to it.
        assert b"127.0.0.1" not in refused.raw_head + refused.body
        assert [seen.target for seen in upstream.requests] == ["/first"]
        [record] = [r for r in await proxy.logged(2) if r["path"] == "/refused"]
        assert (record["refusal"], record["cause"], record["attempts"]) == ("throttled", cause, [])
        assert (await decisions(proxy))["refused"] == 1
        by_code = {"route": "all", "method": "GET", "code": "429"}
        ours = 2 if cause == "paused" else 1
        assert (await proxy.metrics()).total("holdfast_requests_total", **by_code) == ours


# When to come back.


@pytest.mark.parametrize(
    ("limit", "burst"),
    [
        pytest.param("rate: 1/m", 1, id="one a minute"),
        pytest.param("rate: 7/m, burst: 3", 3, id="an interval that is no whole number"),
        pytest.param("rate: 3/7s, burst: 2", 2, id="an odd period"),
        pytest.param("rate: 2/s", 1, id="less than a second"),
        pytest.param("rate: [2/s, 10/m], burst: 4", 4, id="the slower of two rates decides"),
        pytest.param("rate: 3/20s, algorithm: window", 3, id="a window"),
        pytest.param("rate: [1/2s, 5/m], algorithm: window", 1, id="two windows"),
    ],
)
async def test_a_lone_caller_that_comes_back_when_told_to_succeeds(limit: str, burst: int) -> None:
    clock = FakeClock()
    clock.stop()  # a busy machine would be late for what is refused at that very moment
    route = f"throttle: {{{limit}, max_wait: 0s}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route), clock=clock) as proxy,
    ):
        assert await statuses(proxy, burst) == [200] * burst
        for _ in range(3):
            while (refused := await proxy.get()).status == 200:
                pass  # a window may free all of its slots together
            seconds = int(refused.get("Retry-After") or 0)
            assert seconds >= 1
            if seconds > 1:
                clock.advance(seconds - 1)
                assert (await proxy.get()).status == 429  # what it was told is no second too long
            clock.advance(1)
            assert (await proxy.get()).status == 200
        assert (await decisions(proxy)).keys() == {"passed", "refused"}


@pytest.mark.parametrize(
    ("limit", "policy", "state"),
    [
        pytest.param(
            "rate: 100/m, burst: 1",
            {"100-per-60s": {"q": 100, "w": 60}},
            {"100-per-60s": {"r": 0, "t": 1}},
            id="a rate",
        ),
        pytest.param(
            "rate: [2/s, 20/h], burst: 1",
            {"2-per-1s": {"q": 2, "w": 1}, "20-per-3600s": {"q": 20, "w": 3600}},
            {"2-per-1s": {"r": 0, "t": 1}, "20-per-3600s": {"r": 0, "t": 180}},
            id="several rates",
        ),
        pytest.param(
            "rate: [1/h, 5/d], algorithm: window, margin: 500ms",
            {"1-per-3600s": {"q": 1, "w": 3600}, "5-per-86400s": {"q": 5, "w": 86400}},
            {"1-per-3600s": {"r": 0, "t": 3601}, "5-per-86400s": {"r": 4}},
            id="of several windows one has something left",
        ),
        pytest.param(
            "rate: 5/1500ms, burst: 1",
            {"6-per-2s": {"q": 6, "w": 2}},
            {"6-per-2s": {"r": 0, "t": 1}},
            id="a period that is no whole number of seconds",
        ),
        pytest.param(
            "concurrency: 1",
            {"concurrency": {"q": 1, "qu": "concurrent-requests"}},
            {"concurrency": {"r": 0}},
            id="calls under way",
        ),
        pytest.param(
            "rate: 1/h, burst: 3, concurrency: 1",
            {
                "1-per-3600s": {"q": 1, "w": 3600},
                "concurrency": {"q": 1, "qu": "concurrent-requests"},
            },
            {"1-per-3600s": {"r": 2}, "concurrency": {"r": 0}},
            id="calls under way besides a rate",
        ),
    ],
)
async def test_limits_and_what_is_left_of_them_are_told(
    limit: str, policy: Items, state: Items
) -> None:
    route = f"throttle: {{{limit}, max_wait: 0s}}"
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as first,
    ):
        await first.send(request("GET", "/first"))
        await upstream.seen()
        refused = await proxy.get()
        assert refused.status == 429
        assert read_list(refused.get("RateLimit-Policy")) == policy
        assert read_list(refused.get("RateLimit")) == state


@pytest.mark.parametrize("limit", ["throttle: true", "throttle: {concurrency: 2}"])
async def test_a_pause_without_any_rate_is_told_as_one_that_lets_nothing_through(
    limit: str,
) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, limit)) as proxy:
        refused = await after_it_was_told_to_wait(upstream, proxy)
        assert read_list(refused.get("RateLimit-Policy"))["pause"] == {"q": 0, "w": 40}
        assert read_list(refused.get("RateLimit"))["pause"] == {"r": 0, "t": 40}


@pytest.mark.parametrize("status", [200, 429])
async def test_what_the_upstream_says_of_its_own_limits_passes_unchanged(status: int) -> None:
    theirs = ('RateLimit: "theirs";r=5;t=9', "RateLimit-Policy: limit=10", "X-RateLimit-Reset: 9")
    async with (
        ScriptedUpstream(answer(response(status, b"", *theirs))) as upstream,
        running(one_route(upstream, "throttle: {rate: 1/s, burst: 5}")) as proxy,
    ):
        got = await proxy.get()
        assert got.status == status
        limits = [f"{name}: {value}" for name, value in got.headers if "ratelimit" in name.lower()]
        assert limits == list(theirs)
        assert got.get("Retry-After") is None


# The connection.


async def test_head_gets_the_head_alone_and_the_connection_goes_on() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, ONE_PER_HOUR)) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get()).status == 200
        by_head = await client.request("HEAD", "/")
        by_get = await client.get()
        assert [by_head.status, by_get.status] == [429, 429]
        differ = {"date", "x-request-id"}
        fields = [
            [(name, value) for name, value in got.headers if name.lower() not in differ]
            for got in (by_head, by_get)
        ]
        assert fields[0] == fields[1]
        assert by_head.get("Content-Length") == str(len(by_get.body))


@pytest.mark.parametrize("framing", ["Content-Length: 100000", "Transfer-Encoding: chunked"])
async def test_a_body_that_was_sent_already_is_skipped(framing: str) -> None:
    body = bytes(100_000)
    if "chunked" in framing:
        body = b"186a0\r\n" + body + b"\r\n0\r\n\r\n"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, ONE_PER_HOUR)) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get()).status == 200
        await client.send(request("POST", "/", framing) + body)
        refused = await client.response("POST")
        assert (refused.status, refused.reason_word) == (429, "throttled")
        assert (await client.get()).status == 429
        assert len(upstream.requests) == 1


async def test_pipelined_requests_are_told_one_by_one() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "throttle: {rate: 1/h, burst: 2, max_wait: 0s}")) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("GET", "/") * 4)
        responses = await client.responses(["GET"] * 4)
        assert [got.status for got in responses] == [200, 200, 429, 429]
        assert len(upstream.requests) == 2


EXPECTING = request("PUT", "/expecting", "Expect: 100-continue", "Content-Length: 5")


async def test_who_asks_before_sending_its_body_is_refused_before_it_sends() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, ONE_PER_HOUR)) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get()).status == 200
        await client.send(EXPECTING)
        refused = await client.response("PUT")
        assert (refused.status, refused.interim) == (429, [])
        # What it would send next cannot be told: the body after all, or a request.
        assert refused.get("Connection") == "close"
        assert await client.ended() is End.CLOSED
        assert len(upstream.requests) == 1


async def test_who_asks_before_sending_its_body_is_told_to_when_its_turn_has_come() -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "throttle: {rate: 5/s, burst: 1}"), clock=clock) as proxy,
        proxy.client() as client,
    ):
        clock.stop()  # it is not admitted before it was seen in the queue
        assert (await proxy.get()).status == 200
        await join_queue(proxy, client, EXPECTING)
        assert client.is_silent
        clock.go_on()
        assert (await client.interim()).status == 100
        await client.send(b"hello")
        assert (await client.response("PUT")).status == 200
        assert upstream.requests[-1].body == b"hello"
        record = await last_logged(proxy, 2)
        assert outcomes(record) == ["2xx"]
        assert record["attempts"][0]["queue_ms"] > 0


async def test_who_passes_is_told_nothing_about_limits() -> None:
    async with (
        ScriptedUpstream(answer(ok(b"fine"))) as upstream,
        running(one_route(upstream, "throttle: 100/s")) as proxy,
    ):
        got = await proxy.get()
        assert not {"ratelimit", "ratelimit-policy", "retry-after", "proxy-status"} & got.names
        assert "queue_ms" not in (await last_logged(proxy))["attempts"][0]
