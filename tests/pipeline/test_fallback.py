"""What a client gets instead of a failure: a fixed answer, or another upstream's."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from tests.support import (
    Behaviour,
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_close,
    answer_and_hang,
    answer_and_reset,
    eventually,
    hang,
    one_route,
    real_time,
    request,
    reset,
    response,
    running,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.leftovers import nothing_left
from tests.support.ports import refusing_port
from tests.support.proxies import LogRecord
from tests.support.records import last_logged, outcomes

pytestmark = virtual_time


FIXED = 'fallback: {status: 200, headers: {Content-Type: text/plain, X-Mood: calm}, body: "later"}'
RETRY = "retry: {backoff: {strategy: constant, base: 1ms}}"
FAILS = b"the upstream's own words"

unavailable = answer(response(503, FAILS))


def reasons(record: LogRecord) -> list[str]:
    return [attempt["why"] for attempt in record["attempts"]]


def assert_fixed(given: Response) -> None:
    """The response is the route's fixed answer, and says so."""
    assert (given.status, given.body) == (200, b"later")
    assert (given.get("Content-Type"), given.get("X-Mood")) == ("text/plain", "calm")
    assert given.get("Proxy-Status") == 'holdfast; details="fallback"'
    assert given.get("X-Request-Id")
    assert given.get("Date")


# For which failures.

FAILURES: dict[str, Behaviour] = {
    "reset": reset,
    "timeout": hang,
    "protocol": answer(b"HTTP/9 what?\r\n\r\n"),
    "refused": answer(response(429, FAILS)),
    "503": unavailable,
    "404": answer(response(404, FAILS)),
}
LISTED = [*FAILURES, "connect", "breaker_open"]


@contextmanager
def failing(how: str, upstream: ScriptedUpstream) -> Iterator[str]:
    """The URL of an upstream that fails so."""
    if how == "connect":
        with refusing_port() as port:
            yield f"http://127.0.0.1:{port}"
    else:
        upstream.usual = FAILURES.get(how, answer(response(500)))
        yield upstream.url


async def answer_after(how: str, on: list[str]) -> tuple[Response, LogRecord]:
    """What a client gets after that failure, and what is logged, with that list."""
    retry = "retry: {attempts: 1, attempt_timeout: 60ms}"
    fallback = FIXED.replace("{status", f"{{on: [{', '.join(on)}], status")
    breaker = "breaker: {min_requests: 1}" if how == "breaker_open" else ""
    async with ScriptedUpstream() as upstream:
        with failing(how, upstream) as url:
            async with (
                running(one_route(url, f"{retry}\n{fallback}", options=breaker)) as proxy,
                proxy.client() as client,
            ):
                if how == "breaker_open":
                    assert (await client.get()).status == 500
                given = await client.get()
                log = await proxy.logged(1 + (how == "breaker_open"))
                await nothing_left(proxy)
                return given, log[-1]


@pytest.mark.parametrize("how", LISTED)
async def test_a_listed_failure_is_replaced(how: str) -> None:
    given, record = await answer_after(how, [how])
    assert_fixed(given)
    assert record["fallback"] is True
    assert "refusal" not in record
    assert len(record["attempts"]) == (0 if how == "breaker_open" else 1)


@pytest.mark.parametrize("how", LISTED)
async def test_a_failure_that_is_not_listed_is_not(how: str) -> None:
    given, record = await answer_after(how, [other for other in LISTED if other != how])
    assert given.get("Proxy-Status") != 'holdfast; details="fallback"'
    expected = {"refused": 429, "503": 503, "404": 404, "timeout": 504, "breaker_open": 503}
    assert given.status == expected.get(how, 502)
    assert "fallback" not in record
    if how in {"refused", "503", "404"}:
        assert given.body == FAILS


@pytest.mark.parametrize(
    ("route", "status", "replaced"),
    [
        pytest.param("", 503, True, id="503 is in the built-in list"),
        pytest.param("", 500, False, id="500 is not"),
        pytest.param("retry: {attempts: 1, on: [500]}", 500, True, id="retry.on decides"),
        pytest.param("retry: {attempts: 1, on: [500]}", 503, False, id="and replaces the list"),
    ],
)
async def test_by_default_it_covers_what_is_retried(
    route: str, status: int, *, replaced: bool
) -> None:
    async with (
        ScriptedUpstream(answer(response(status, FAILS))) as upstream,
        running(one_route(upstream, f"{route}\n{FIXED}")) as proxy,
    ):
        given = await proxy.get()
        if replaced:
            assert_fixed(given)
        else:
            assert (given.status, given.body) == (status, FAILS)


@pytest.mark.parametrize("route", ["", "retry: {attempts: 1}"], ids=["no retry", "with retry"])
async def test_by_default_it_covers_an_open_breaker(route: str) -> None:
    async with (
        ScriptedUpstream(answer(response(500))) as upstream,
        running(
            one_route(upstream, f"{route}\n{FIXED}", options="breaker: {min_requests: 1}")
        ) as proxy,
    ):
        assert (await proxy.get()).status == 500
        assert_fixed(await proxy.get())
        assert len(upstream.requests) == 1


async def test_a_hint_makes_a_status_count() -> None:
    fallback = FIXED.replace("{status", "{on: [403+hint], status")
    async with ScriptedUpstream() as upstream, running(one_route(upstream, fallback)) as proxy:
        upstream.script(answer(response(403)), answer(response(403, b"", "Retry-After: 5")))
        assert (await proxy.get()).status == 403
        assert_fixed(await proxy.get())


async def test_a_good_answer_is_left_alone() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, FIXED)) as proxy:
        given = await proxy.get()
        assert (given.body, given.get("Proxy-Status")) == (b"ok", None)
        record = await last_logged(proxy)
        assert "fallback" not in record
        assert reasons(record) == ["success"]


async def test_an_answer_that_broke_off_is_beyond_help() -> None:
    on = FIXED.replace("{status", "{on: [default, 5xx], status")
    async with ScriptedUpstream() as upstream, running(one_route(upstream, on)) as proxy:
        upstream.script(answer_and_reset(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart"))
        given = await proxy.get()
        assert (given.body, given.complete) == (b"part", False)
        assert reasons(await last_logged(proxy)) == ["response_started"]


# The fixed answer itself.


@pytest.mark.parametrize(
    ("method", "fallback", "status", "body", "length"),
    [
        pytest.param("GET", FIXED, 200, b"later", "5", id="a body and its length"),
        pytest.param("HEAD", FIXED, 200, b"", "5", id="to HEAD the length of the body alone"),
        pytest.param("GET", "fallback: {status: 204}", 204, b"", None, id="204 has no length"),
        pytest.param("GET", "fallback: {status: 304}", 304, b"", None, id="304 has no length"),
        pytest.param("GET", "fallback: {status: 503}", 503, b"", "0", id="no body is an empty one"),
        pytest.param(
            "GET", 'fallback: {status: 200, body: "dépôt"}', 200, "dépôt".encode(), "7", id="UTF-8"
        ),
    ],
)
async def test_the_fixed_answer_is_framed_rightly_and_keeps_the_connection(
    method: str, fallback: str, status: int, body: bytes, length: str | None
) -> None:
    async with (
        ScriptedUpstream(unavailable) as upstream,
        running(one_route(upstream, fallback)) as proxy,
        proxy.client() as client,
    ):
        for _ in range(3):
            given = await client.request(method, "/")
            assert (given.status, given.body, given.get("Content-Length")) == (status, body, length)
            assert given.get("Connection") is None
            assert given.get("Holdfast-Attempts") is None
        assert client.is_silent
        record = await last_logged(proxy, 3)
        assert (record["code"], outcomes(record)) == (status, ["5xx"])


async def test_what_the_fixed_answer_says_of_our_own_fields_stands() -> None:
    fields = "{Date: 'Thu, 01 Jan 1970 00:00:00 GMT', x-request-id: mine, Holdfast-Attempts: '0'}"
    route = f"{RETRY}\nfallback: {{status: 200, headers: {fields}}}"
    async with (
        ScriptedUpstream(unavailable) as upstream,
        running(one_route(upstream, route)) as proxy,
    ):
        given = await proxy.get()
        assert given.all("Date") == ["Thu, 01 Jan 1970 00:00:00 GMT"]
        assert given.all("X-Request-Id") == ["mine"]
        assert given.all("Holdfast-Attempts") == ["0"]


async def test_a_client_that_asked_to_close_is_told_so() -> None:
    async with (
        ScriptedUpstream(unavailable) as upstream,
        running(one_route(upstream, FIXED)) as proxy,
        proxy.client() as client,
    ):
        given = await client.get("/", "Connection: close")
        assert_fixed(given)
        assert given.get("Connection") == "close"
        await client.ended()


async def test_an_upload_that_goes_on_gets_its_fixed_answer() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, FIXED)) as proxy,
        proxy.client() as client,
    ):

        async def answer_before_the_body(visit: Visit) -> None:
            await visit.send(response(503))
            await visit.until_the_peer_leaves()

        upstream.script(answer_before_the_body)
        await client.send(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\npart")
        assert_fixed(await client.response("PUT"))
        await client.send(b"+rest")
        assert (await client.get()).body == b"ok"


# After a retry that came to nothing.


@pytest.mark.parametrize(
    ("method", "body", "fields", "route", "options", "why"),
    [
        pytest.param(
            *("GET", None, (), RETRY, "", ["retried", "retried", "attempts_exhausted"]),
            id="attempts_exhausted",
        ),
        pytest.param("POST", b"x", (), RETRY, "", ["not_repeatable"], id="not_repeatable"),
        pytest.param(
            *("GET", None, ("X-Should-Retry: false",), RETRY, "", ["server_said_no"]),
            id="server_said_no",
        ),
        pytest.param(
            *("GET", None, (), RETRY, "budget: {ratio: 0.2, min_per_second: 0}", ["budget"]),
            id="budget",
        ),
        pytest.param(
            *("GET", None, ("Retry-After: 20",), f"{RETRY}\ntimeout: 5s", "", ["deadline"]),
            id="deadline",
        ),
        pytest.param(
            *("GET", None, ("Retry-After: 90",), f"{RETRY}\ntimeout: 5m", "", ["hint_too_long"]),
            id="hint_too_long",
        ),
        pytest.param(
            *("PUT", b"too long", (), f"{RETRY}\nbuffer: 4B", "", ["body_too_large"]),
            id="body_too_large",
        ),
        pytest.param(
            *("GET", None, (), RETRY, "breaker: {min_requests: 1}", ["breaker_open"]),
            id="breaker_open",
        ),
    ],
)
async def test_whatever_ends_the_retries_the_fallback_follows(
    *,
    method: str,
    body: bytes | None,
    fields: tuple[str, ...],
    route: str,
    options: str,
    why: list[str],
) -> None:
    async with (
        ScriptedUpstream(answer(response(503, FAILS, *fields))) as upstream,
        running(one_route(upstream, f"{route}\n{FIXED}", options=options)) as proxy,
        proxy.client() as client,
    ):
        given = await client.request(method, "/", body=body)
        assert_fixed(given)
        assert given.get("Holdfast-Attempts") == (str(len(why)) if len(why) > 1 else None)
        assert reasons(await last_logged(proxy)) == why
        assert len(upstream.requests) == len(why)
        await nothing_left(proxy)


@real_time  # of sockets, which bring a long rest in pieces
@pytest.mark.parametrize(
    ("rest", "connections"),
    [
        pytest.param(b"", 1, id="without a rest"),
        pytest.param(b"x" * 1000, 1, id="of which a short rest comes at once"),
        pytest.param(b"x" * 200_000, 3, id="whose rest is too long to be read"),
    ],
)
async def test_the_connection_of_a_replaced_response_is_kept_if_that_is_cheap(
    rest: bytes, connections: int
) -> None:
    async def in_two_pieces(visit: Visit) -> None:
        head = f"HTTP/1.1 503 No\r\nContent-Length: {len(rest)}\r\n\r\n"
        await visit.send(head.encode(), rest)

    async with (
        ScriptedUpstream(in_two_pieces) as upstream,
        running(one_route(upstream, FIXED)) as proxy,
        proxy.client() as client,
    ):
        for _ in range(3):
            assert_fixed(await client.get())
        assert len(upstream.connections) == connections


async def test_a_replaced_response_that_dawdles_is_not_waited_for() -> None:
    dawdling = answer_and_hang(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\npart")
    async with ScriptedUpstream(dawdling) as upstream, running(one_route(upstream, FIXED)) as proxy:
        assert_fixed(await proxy.get())
        await eventually(lambda: upstream.open_connections == [])


# Another upstream.


def two(
    first: ScriptedUpstream | str,
    other: ScriptedUpstream | str,
    route: str = "",
    *,
    options: str = "",
    other_options: str = "",
) -> str:
    """A route to *first* with a fallback to *other*, and one to *other* alone."""
    urls = [u if isinstance(u, str) else u.url for u in (first, other)]
    config = one_route(urls[0], f"fallback: {{upstream: other}}\n{route}", options=options)
    head, _, tail = config.partition("routes:\n")
    return (
        f"{head}  other:\n    urls: [{urls[1]}/base]\n    {other_options}\n"
        f"routes:\n  - name: direct\n    match: /direct\n    upstream: other\n{tail}"
    )


@asynccontextmanager
async def pair(
    route: str = "",
    *,
    options: str = "",
    other_options: str = "",
    first: Behaviour = unavailable,
    clock: FakeClock | None = None,
) -> AsyncIterator[tuple[RunningProxy, ScriptedUpstream, ScriptedUpstream]]:
    """A proxy, an upstream that fails, and the one that stands in for it."""
    async with ScriptedUpstream(first) as failing_one, ScriptedUpstream() as other:
        config = two(failing_one, other, route, options=options, other_options=other_options)
        async with running(config, clock=clock) as proxy:
            yield proxy, failing_one, other


async def test_the_other_is_asked_once_and_on_its_own_record() -> None:
    async with pair() as (proxy, first, other):
        given = await proxy.get("/path?q=1", "X-Colour: red")
        assert (given.status, given.body) == (200, b"ok")
        assert given.get("Holdfast-Attempts") == "2"
        assert given.get("Proxy-Status") is None, "an upstream said this, not we"
        [asked], [stood_in] = first.requests, other.requests
        assert (asked.target, stood_in.target) == ("/path?q=1", "/base/path?q=1")
        assert stood_in.get("Host") == f"127.0.0.1:{other.port}"
        same = [[field for field in r.headers if field[0] != "Host"] for r in (asked, stood_in)]
        assert same[0] == same[1]

        record = await last_logged(proxy)
        assert record["fallback"] is True
        assert [a["upstream"] for a in record["attempts"]] == ["scripted", "other"]
        assert record["attempts"][1]["address"] == f"127.0.0.1:{other.port}"
        assert "wait_ms" not in record["attempts"][1]
        assert reasons(record) == ["attempts_exhausted", "recovered"]
        metrics = await proxy.metrics()
        attempts = "holdfast_upstream_attempts_total"
        assert metrics.total(attempts, upstream="other", outcome="2xx") == 1
        assert metrics.total(attempts, upstream="scripted", outcome="5xx") == 1
        verdicts = "holdfast_retry_verdicts_total"
        assert metrics.total(verdicts, reason="attempts_exhausted") == 1
        assert metrics.total(verdicts, reason="recovered") == 1
        assert metrics.total(verdicts) == 2
        await nothing_left(proxy)


async def test_it_comes_after_the_last_retry() -> None:
    async with pair(RETRY) as (proxy, first, other):
        given = await proxy.get()
        assert (given.body, given.get("Holdfast-Attempts")) == (b"ok", "4")
        assert (len(first.requests), len(other.requests)) == (3, 1)
        why = ["retried", "retried", "attempts_exhausted", "recovered"]
        assert reasons(await last_logged(proxy)) == why


async def test_with_every_breaker_open_it_is_the_only_attempt() -> None:
    async with pair(options="breaker: {min_requests: 1}") as (proxy, first, other):
        await proxy.get()
        given = await proxy.get()
        assert (given.body, given.get("Holdfast-Attempts")) == (b"ok", None)
        record = await last_logged(proxy, 2)
        assert [a["upstream"] for a in record["attempts"]] == ["other"]
        assert reasons(record) == ["recovered"]
        assert (len(first.requests), len(other.requests)) == (1, 2)
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_retry_verdicts_total", reason="breaker_open") == 1


KEY, ORDER = "Idempotency-Key", "X-Order-Id"
YES, NO = "true", "false"
NEITHER = (NO, NO)
ALWAYS, NEVER = "unsafe: always", "unsafe: never"


@pytest.mark.parametrize(
    ("failure", "sent_on", "keys", "route", "promises"),
    [
        pytest.param("503", False, (), "", NEITHER, id="a POST that may have run is not"),
        pytest.param("503", False, (KEY,), "", NEITHER, id="nor with a key that none honours"),
        pytest.param("503", False, (KEY,), "", (YES, NO), id="nor if the other does not"),
        pytest.param("503", False, (KEY,), "", (NO, YES), id="nor if only the other does"),
        pytest.param("503", False, (KEY,), "", (YES, ORDER), id="nor if that goes by another"),
        pytest.param("503", False, (), "", (YES, YES), id="nor without a key"),
        pytest.param("503", False, (KEY,), "", (YES, YES), id="nor with one that both honour"),
        pytest.param("503", False, (KEY, ORDER), "", (YES, ORDER), id="nor with a key for each"),
        pytest.param("reset", False, (KEY,), "", (YES, YES), id="nor after a reset"),
        pytest.param("reset", False, (KEY,), "", (YES, NO), id="after a reset neither"),
        pytest.param("timeout", False, (), "", NEITHER, id="nor after silence"),
        pytest.param("connect", True, (), "", NEITHER, id="one that was never sent is"),
        pytest.param("refused", True, (), "", NEITHER, id="one that was refused is"),
        pytest.param("503", True, (), ALWAYS, NEITHER, id="one that may run twice by order is"),
        pytest.param("503", False, (KEY,), NEVER, (YES, YES), id="forbidden it is not, key or no"),
        pytest.param("refused", False, (), NEVER, NEITHER, id="nor is one that was refused"),
        pytest.param("connect", True, (), NEVER, NEITHER, id="but one that was never sent is"),
    ],
)
async def test_whether_a_post_is_sent_to_the_other(
    failure: str,
    *,
    sent_on: bool,
    keys: tuple[str, ...],
    route: str,
    promises: tuple[str, str],
) -> None:
    words = [f"honours_key: {promise}" for promise in promises]
    route = f"retry: {{attempts: 1, attempt_timeout: 60ms, {route}}}"
    async with ScriptedUpstream() as first, ScriptedUpstream() as other:
        with failing(failure, first) as url:
            config = two(url, other, route, options=words[0], other_options=words[1])
            async with running(config) as proxy, proxy.client() as client:
                fields = [f"{key}: k1" for key in keys]
                given = await client.request("POST", "/", *fields, body=b"order")
                assert [r.body for r in other.requests] == [b"order"] * sent_on
                if sent_on:
                    assert (given.status, given.body) == (200, b"ok")
                    assert [other.requests[0].get(key) for key in keys] == ["k1" for _ in keys]
                else:
                    statuses = {"503": 503, "timeout": 504, "refused": 429}
                    assert given.status == statuses.get(failure, 502)
                assert len((await last_logged(proxy))["attempts"]) == 1 + sent_on
                await nothing_left(proxy)


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("size", [0, 1, 70_000, 300_000])
async def test_the_other_gets_the_same_body(framing: str, size: int) -> None:
    body = bytes(n % 251 for n in range(size))
    chunks = [body[start : start + 50_000] for start in range(0, size, 50_000)]
    async with pair() as (proxy, first, other), proxy.client() as client:
        if framing == "length":
            await client.send(
                f"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n".encode()
            )
            await client.send(*chunks)
        else:
            await client.send(b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            await client.send(*(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks))
            await client.send(b"0\r\n\r\n")
        assert (await client.response("PUT")).status == 200
        digests = [hashlib.sha256(r.body).digest() for r in (*first.requests, *other.requests)]
        assert digests == [hashlib.sha256(body).digest()] * 2
        heads = [
            [f for f in r.headers if f[0] != "Host"] for r in (*first.requests, *other.requests)
        ]
        assert heads[0] == heads[1]
        await nothing_left(proxy)


async def test_a_body_that_is_lost_is_not_sent_to_the_other() -> None:
    async with pair("buffer: 4B") as (proxy, _, other), proxy.client() as client:
        given = await client.request("PUT", "/", body=b"too long")
        assert (given.status, given.body) == (503, FAILS)
        assert other.requests == []


async def test_a_body_of_which_nothing_was_sent_is_sent_however_large() -> None:
    async with ScriptedUpstream() as other:
        with refusing_port() as port:
            config = two(f"http://127.0.0.1:{port}", other, "buffer: 4B")
            async with running(config) as proxy, proxy.client() as client:
                assert (await client.request("POST", "/", body=b"too long")).status == 200
                assert other.requests[0].body == b"too long"


class Gate:
    """Answers 503 once it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def __call__(self, visit: Visit) -> None:
        await visit.read_body()
        await self.opened.wait()
        await unavailable(visit)


async def test_without_time_left_the_response_in_hand_is_relayed() -> None:
    clock, gate = FakeClock(), Gate()
    async with (
        pair("timeout: 30s", first=gate, clock=clock) as (proxy, first, other),
        proxy.client() as client,
    ):
        await client.send(request("GET", "/"))
        await first.seen()
        clock.advance(29.995)
        gate.opened.set()
        given = await client.response()
        assert (given.status, given.body) == (503, FAILS)
        assert other.requests == []
        record = await last_logged(proxy)
        assert "fallback" not in record
        assert reasons(record) == ["attempts_exhausted"]


async def test_after_the_deadline_nobody_is_asked_but_a_fixed_answer_is_given() -> None:
    async with pair("timeout: 30ms", first=hang) as (proxy, _, other):
        assert (await proxy.get()).reason_word == "timeout"
        assert other.requests == []
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, f"timeout: 30ms\n{FIXED}")) as proxy,
    ):
        assert_fixed(await proxy.get())


async def test_the_time_left_bounds_the_other_too() -> None:
    async with pair("timeout: 100ms") as (proxy, _, other):
        other.script(hang)
        given = await proxy.get()
        assert (given.reason_word, given.problem["attempts"]) == ("timeout", 2)
        record = await last_logged(proxy)
        assert outcomes(record) == ["5xx", "timeout"]
        assert record["duration_ms"] >= 100
        await nothing_left(proxy)


async def test_a_throttled_other_is_asked_however_little_time_is_left_for_it() -> None:
    async with pair("timeout: 500ms", other_options="throttle: 100/s") as (proxy, _, other):
        assert (await proxy.get()).body == b"ok"
        assert len(other.requests) == 1


async def test_who_is_in_the_queue_of_the_other_when_we_end_gets_no_fallback() -> None:
    slow = "throttle: {rate: 1/m, max_wait: 2m}"
    async with pair("timeout: 5m", other_options=slow) as (proxy, _, other):
        assert (await proxy.get("/direct")).status == 200
        waiting = asyncio.create_task(proxy.get())
        await eventually(lambda: len(proxy.app._retry_waits) == 1)
        proxy.app._retry_waits.end()
        assert (await waiting).reason_word == "draining"
        assert len(other.requests) == 1
        record = await last_logged(proxy, 2)
        assert "fallback" not in record
        assert reasons(record) == ["attempts_exhausted"]


async def test_with_every_breaker_open_a_bad_body_is_told_as_what_it_is() -> None:
    async with pair(options="breaker: {min_requests: 1}") as (proxy, _, other):
        other.script(answer(response(200, b"ok")), hang)
        await proxy.get()
        async with proxy.client() as client:
            await client.send(request("PUT", "/", "Transfer-Encoding: chunked"), b"3\r\nabc\r\n")
            await eventually(lambda: len(other.requests) == 2)
            await client.send(b"no size\r\n")
            assert (await client.response("PUT")).status == 400
        assert reasons((await proxy.logged(2))[1]) == ["not_retryable_kind"]


async def test_the_other_with_an_open_breaker_is_not_asked() -> None:
    async with pair(other_options="breaker: {min_requests: 1}") as (proxy, _, other):
        other.script(answer(response(500)))
        assert (await proxy.get("/direct")).status == 500
        given = await proxy.get()
        assert (given.status, given.body) == (503, FAILS)
        assert len(other.requests) == 1
        assert reasons(await last_logged(proxy, 2)) == ["attempts_exhausted"]


async def test_both_with_open_breakers_is_our_own_answer() -> None:
    options = "breaker: {min_requests: 1}"
    async with pair(options=options, other_options=options) as (proxy, first, other):
        other.script(answer(response(500)))
        assert (await proxy.get()).status == 500
        refused = await proxy.get()
        assert (refused.reason_word, refused.get("Retry-After")) == ("breaker_open", "30")
        assert (len(first.requests), len(other.requests)) == (1, 1)


@pytest.mark.parametrize(
    ("behaviour", "status", "body", "why"),
    [
        pytest.param(answer(response(404, b"who?")), 404, b"who?", "recovered", id="404"),
        pytest.param(
            answer(response(500, b"me too")), 500, b"me too", "attempts_exhausted", id="500"
        ),
        pytest.param(
            answer(response(503, b"me too")), 503, b"me too", "attempts_exhausted", id="503"
        ),
        pytest.param(reset, 502, None, "attempts_exhausted", id="a reset"),
        pytest.param(
            answer_and_reset(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart"),
            *(200, b"part", "response_started"),
            id="a body that breaks off",
        ),
    ],
)
async def test_what_the_other_says_stands(
    behaviour: Behaviour, status: int, body: bytes | None, why: str
) -> None:
    async with pair() as (proxy, first, other):
        other.script(behaviour)
        given = await proxy.get()
        assert given.status == status
        assert body in {None, given.body}
        assert reasons(await last_logged(proxy)) == ["attempts_exhausted", why]
        assert (len(first.requests), len(other.requests)) == (1, 1)
        await nothing_left(proxy)


async def test_the_other_that_cannot_be_reached_is_an_attempt_as_well() -> None:
    async with ScriptedUpstream(unavailable) as first:
        with refusing_port() as port:
            async with running(two(first, f"http://127.0.0.1:{port}")) as proxy:
                given = await proxy.get()
                assert (given.reason_word, given.problem["attempts"]) == ("connect", 2)
                assert outcomes(await last_logged(proxy)) == ["5xx", "connect"]


async def test_a_stale_connection_to_the_other_is_replaced() -> None:
    async with pair() as (proxy, _, other):
        await proxy.get("/direct")
        other.script(answer_and_close())
        given = await proxy.get()
        assert (given.body, given.get("Holdfast-Attempts")) == (b"ok", "3")
        record = await last_logged(proxy, 2)
        assert outcomes(record) == ["5xx", "reset", "2xx"]
        assert reasons(record) == ["attempts_exhausted", "retried", "recovered"]


async def test_a_client_that_leaves_while_the_other_works_ends_it() -> None:
    async with pair() as (proxy, _, other):
        other.script(hang)
        async with proxy.client() as client:
            await client.send(request("GET", "/"))
            await other.seen()
        await nothing_left(proxy, clients=0)
        record = await last_logged(proxy)
        assert (record["code"], outcomes(record)) == (499, ["5xx", "cancelled"])
        assert reasons(record) == ["attempts_exhausted", "client_gone"]


@pytest.mark.parametrize(
    ("route", "given_instead"),
    [
        pytest.param("fallback: {upstream: other}", False, id="no other upstream is asked"),
        pytest.param(FIXED, True, id="a fixed answer is given all the same"),
    ],
)
async def test_while_draining(route: str, *, given_instead: bool) -> None:
    gate = Gate()
    async with ScriptedUpstream(gate) as first, ScriptedUpstream() as other:
        config = two(first, other).replace("fallback: {upstream: other}", route)
        async with running(config) as proxy, proxy.client() as client:
            await client.send(request("GET", "/"))
            await first.seen()
            draining = asyncio.create_task(proxy.app.drain())
            await eventually(lambda: proxy.app._retry_waits.is_over)
            gate.opened.set()
            given = await client.response()
            if given_instead:
                assert_fixed(given)
            else:
                assert (given.status, given.body) == (503, FAILS)
            assert given.get("Connection") == "close"
            await draining
        assert other.requests == []
