"""What failed for good is on disk before its client hears of it."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.policy.dead_letter import DeadLetter, DeadLetterState, Missing
from proxy.policy.failure_category import FailureCategory
from tests.support import (
    PATIENCE,
    Behaviour,
    End,
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_reset,
    answer_early,
    chunked,
    eventually,
    hang,
    hang_up,
    ok,
    one_route,
    request,
    response,
    running,
)
from tests.support.dead_letters import replayed
from tests.support.disks import fill, small_disk
from tests.support.keys import KEY, new_key
from tests.support.leftovers import nothing_left
from tests.support.letters import every_letter
from tests.support.ports import refusing_port
from tests.support.records import last_logged
from tests.support.redis_server import redis_server

KEEPS = "dead_letter: true"
RETRY = "retry: {backoff: {strategy: constant, base: 1ms}, attempt_timeout: 80ms}"
OFTEN = "retry: {unsafe: always, backoff: {strategy: constant, base: 1ms}}"

unavailable = answer(response(503, b"not now"))


async def post(
    proxy: RunningProxy, *fields: str, body: bytes = b"pay", method: str = "POST"
) -> Response:
    async with proxy.client() as client:
        return await client.request(method, "/pay?now=1", *fields, body=body)


async def letters(proxy: RunningProxy) -> list[DeadLetter]:
    """All there are, the oldest one first."""
    return await every_letter(proxy.app._dead_letters)


async def only_letter(proxy: RunningProxy, told_in: Response) -> DeadLetter:
    """The one that the client was told of, and no other."""
    (letter,) = await letters(proxy)
    assert told_in.all("Holdfast-Dead-Letter") == [letter.id]
    return letter


@contextmanager
def failing(how: str, upstream: ScriptedUpstream) -> Iterator[str]:
    if how == "connect":
        with refusing_port() as port:
            yield f"http://127.0.0.1:{port}"
        return
    upstream.usual = {
        "reset": hang_up,
        "timeout": hang,
        "protocol": answer(b"HTTP/9 what?\r\n\r\n"),
        "503": unavailable,
        "429": answer(response(429)),
        "500": answer(response(500)),
        "408": answer(response(408)),
    }[how]
    yield upstream.url


# Which ones.


@pytest.mark.parametrize("policy", ["", RETRY], ids=["one attempt", "retries"])
@pytest.mark.parametrize(
    ("how", "status", "category", "ran"),
    [
        ("connect", 502, FailureCategory.TRANSIENT, False),
        ("reset", 502, FailureCategory.TRANSIENT, True),
        ("timeout", 504, FailureCategory.TRANSIENT, True),
        ("protocol", 502, FailureCategory.PERMANENT, True),
        ("503", 503, FailureCategory.TRANSIENT, True),
        ("429", 429, FailureCategory.TRANSIENT, False),
        ("408", 408, FailureCategory.TRANSIENT, False),
    ],
)
async def test_each_failure_is_kept(
    how: str, status: int, category: FailureCategory, policy: str, *, ran: bool
) -> None:
    async with ScriptedUpstream() as upstream:
        with failing(how, upstream) as url:
            config = one_route(url, f"{KEEPS}\ntimeout: 200ms\n{policy}")
            async with running(config) as proxy:
                given = await post(proxy)
                assert given.status == status
                letter = await only_letter(proxy, given)
                record = await last_logged(proxy)
                await nothing_left(proxy)
    out = letter.summary
    assert (out.error, out.category, out.may_have_run) == (how, category, ran)
    assert (out.method, out.target, letter.body) == ("POST", "/pay?now=1", b"pay")
    assert (out.route, out.state, out.missing) == ("all", DeadLetterState.WAITING, None)
    assert out.request_id == given.get("X-Request-Id")
    assert record["dead_letter"] == letter.id
    (run,) = letter.runs
    assert len(run.attempts) == out.used == len(record["attempts"])
    assert out.allowed == (3 if policy else 1)
    for kept, logged in zip(run.attempts, record["attempts"], strict=True):
        same = ("n", "address", "outcome", "status", "sent", "received", "reused")
        assert {key: kept[key] for key in same} == {key: logged[key] for key in same}
        assert kept.get("why") == logged.get("why")


@pytest.mark.parametrize(
    ("policy", "behaviour", "status"),
    [
        pytest.param("", answer(ok()), 200, id="a success"),
        pytest.param("", answer(response(404)), 404, id="a status that is not listed"),
        pytest.param("", answer(response(500)), 500, id="nor is this one"),
        pytest.param("retry: {on: [connect]}", unavailable, 503, id="nor this one here"),
        pytest.param("throttle: {rate: 1/h, max_wait: 0s}", answer(ok()), 429, id="throttled"),
        pytest.param("max_body: 2B", unavailable, 413, id="a body that is too large"),
        pytest.param("idempotency: {required: true}", unavailable, 400, id="no key"),
    ],
)
async def test_these_are_no_failures(policy: str, behaviour: Behaviour, status: int) -> None:
    async with (
        ScriptedUpstream(usual=behaviour) as upstream,
        running(one_route(upstream, f"{KEEPS}\n{policy}")) as proxy,
    ):
        given = await post(proxy)
        if given.status != status:
            given = await post(proxy)  # the first one used up the rate
        assert given.status == status
        assert given.all("Holdfast-Dead-Letter") == []
        assert await letters(proxy) == []
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_dead_letters_total", route="all") == 0


async def test_nobody_else_tells_of_letters() -> None:
    liar = answer(ok(b"", "Holdfast-Dead-Letter: 0123"))
    async with (
        ScriptedUpstream(usual=liar) as upstream,
        running(one_route(upstream, KEEPS)) as proxy,
    ):
        assert (await post(proxy)).all("Holdfast-Dead-Letter") == []


@pytest.mark.parametrize(("listed", "status"), [("5xx", 500), ("4xx", 400)])
async def test_a_list_of_ones_own_is_heeded(listed: str, status: int) -> None:
    async with (
        ScriptedUpstream(usual=answer(response(status))) as upstream,
        running(one_route(upstream, f"{KEEPS}\nretry: {{attempts: 1, on: [{listed}]}}")) as proxy,
    ):
        letter = await only_letter(proxy, await post(proxy))
        assert letter.summary.error == str(status)
        assert letter.summary.may_have_run == (status == 500)


@pytest.mark.parametrize(("hint", "count"), [("Retry-After: 70", 1), ("X-Other: 1", 0)])
async def test_a_status_that_counts_only_with_a_hint(hint: str, count: int) -> None:
    policy = f"{KEEPS}\nretry: {{on: [403+hint]}}"
    async with (
        ScriptedUpstream(usual=answer(response(403, b"", hint))) as upstream,
        running(one_route(upstream, policy)) as proxy,
    ):
        assert (await post(proxy)).status == 403
        assert len(await letters(proxy)) == count


async def test_an_open_breaker_is_a_refusal() -> None:
    breaker = "breaker: {min_requests: 1, open_for: 1m}"
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, KEEPS, options=breaker)) as proxy,
    ):
        assert (await post(proxy)).get("Holdfast-Dead-Letter")
        given = await post(proxy)
        assert given.reason_word == "breaker_open"
        assert given.get("Holdfast-Dead-Letter") is None
        assert len(await letters(proxy)) == 1


async def test_only_listed_methods() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, "dead_letter: {methods: [PUT]}")) as proxy,
    ):
        for method in ("POST", "PUT", "GET"):
            given = await post(proxy, method=method)
            assert (given.get("Holdfast-Dead-Letter") is None) == (method != "PUT")
        (letter,) = await letters(proxy)
        assert letter.summary.method == "PUT"


async def test_a_client_that_leaves_leaves_no_letter() -> None:
    async with (
        ScriptedUpstream(usual=hang) as upstream,
        running(one_route(upstream, KEEPS)) as proxy,
    ):
        async with proxy.client() as client:
            await client.send(request("POST", "/", body=b"pay"))
            await eventually(lambda: upstream.requests)
        assert (await last_logged(proxy))["code"] == 499
        assert await letters(proxy) == []
        await nothing_left(proxy)


@pytest.mark.parametrize("policy", ["", RETRY], ids=["one attempt", "retries"])
@pytest.mark.parametrize(
    ("then", "error"),
    [
        (answer(response(503, b"x" * 100)), "503"),
        (answer(response(200)), None),
        (answer(response(404)), None),
        (hang_up, "reset"),
        (hang, "timeout"),
    ],
    ids=["503", "200", "404", "reset", "timeout"],
)
async def test_the_owner_of_a_key_that_goes_on_alone_and_fails_is_kept(
    then: Behaviour, error: str | None, policy: str
) -> None:
    """The client is gone, so the failure was told to no one."""

    async def later(visit: Visit) -> None:
        await visit.read_body()
        await gone.wait()
        await then(visit)

    gone = asyncio.Event()
    limit = "1s" if error == "timeout" else "30s"
    keys = f"{KEEPS}\nidempotency: true\ntimeout: {limit}\n{policy.replace('80ms', 'none')}"
    async with (
        ScriptedUpstream(usual=later) as upstream,
        running(one_route(upstream, keys)) as proxy,
    ):
        async with proxy.client() as client:
            await client.send(request("POST", "/pay?now=1", KEY, body=b"pay"))
            await eventually(lambda: upstream.requests)
        await eventually(lambda: proxy.client_connections == 0)
        gone.set()
        record = await last_logged(proxy)
        assert record["code"] == 499
        await nothing_left(proxy)
        found = await letters(proxy)
        assert [letter.summary.error for letter in found] == ([] if error is None else [error])
        assert record.get("dead_letter") == (found[0].id if found else None)
        assert len(upstream.requests) == 1
        for letter in found:
            assert (letter.body, letter.record) == (b"pay", record["record"])
            assert letter.summary.used == 1


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "not listed"])
async def test_also_if_it_left_while_another_attempt_was_about_to_follow(
    monkeypatch: pytest.MonkeyPatch, *, listed: bool
) -> None:
    """The response that was set aside has not ended yet."""
    monkeypatch.setattr("proxy.upstream.call.DISCARD_TIME", PATIENCE)

    async def slow_end(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 429 No\r\nContent-Length: 6\r\n\r\nabc")
        set_aside.append(True)
        await gone.wait()
        await visit.send(b"def")

    gone, set_aside = asyncio.Event(), list[bool]()
    keeps = KEEPS if listed else "dead_letter: {on: [503]}"
    async with (
        ScriptedUpstream(usual=slow_end) as upstream,
        running(one_route(upstream, f"{keeps}\nidempotency: true\nretry: true")) as proxy,
    ):
        async with proxy.client() as client:
            await client.send(request("POST", "/", KEY, body=b"pay"))
            await eventually(lambda: set_aside)
        await eventually(lambda: proxy.client_connections == 0)
        gone.set()
        await nothing_left(proxy)
        found = [letter.summary for letter in await letters(proxy)]
        assert [(out.error, out.may_have_run) for out in found] == [("429", False)] * listed
        assert len(upstream.requests) == 1


async def test_but_not_if_it_ran_and_its_response_is_too_large_to_be_kept() -> None:
    """Nothing is kept of it, so it is not read to its end."""

    async def later(visit: Visit) -> None:
        await visit.read_body()
        await gone.wait()
        await visit.send(response(200, b"x" * 2000)[:-1])
        await visit.until_the_peer_leaves()

    gone = asyncio.Event()
    policy = f"{KEEPS}\nidempotency: {{max_response: 1KiB}}"
    async with (
        ScriptedUpstream(usual=later) as upstream,
        running(one_route(upstream, policy)) as proxy,
    ):
        async with proxy.client() as client:
            await client.send(request("POST", "/", KEY, body=b"pay"))
            await eventually(lambda: upstream.requests)
        await eventually(lambda: proxy.client_connections == 0)
        gone.set()
        assert (await last_logged(proxy))["code"] == 499
        await nothing_left(proxy)
        assert await letters(proxy) == []


async def test_also_if_our_own_time_is_up() -> None:
    top = "drain_timeout: 100ms"
    async with ScriptedUpstream(usual=hang) as upstream:
        policy = f"{KEEPS}\nidempotency: true"
        async with running(one_route(upstream, policy, top=top)) as proxy:
            async with proxy.client() as client:
                await client.send(request("POST", "/", KEY, body=b"pay"))
                await eventually(lambda: upstream.requests)
            await eventually(lambda: proxy.client_connections == 0)
            file = proxy.config.parent / "state" / "letters.db"
            await proxy.app.drain()
            with sqlite3.connect(file) as db:
                row = db.execute(
                    "SELECT error, may_have_run, body FROM deliveries, bodies"
                ).fetchone()
            db.close()
            assert row == ("cancelled", 1, b"pay")


async def test_a_client_that_leaves_before_anything_was_sent_leaves_no_letter() -> None:
    policy = f"{KEEPS}\nidempotency: true\nthrottle: {{concurrency: 1}}"
    async with (
        ScriptedUpstream(usual=hang) as upstream,
        running(one_route(upstream, policy, top="drain_timeout: 100ms")) as proxy,
        proxy.client() as first,
    ):
        await first.send(request("POST", "/", new_key(), body=b"pay"))
        await eventually(lambda: upstream.requests)
        async with proxy.client() as second:
            await second.send(request("POST", "/", new_key(), body=b"pay"))
            await eventually(lambda: proxy.client_connections == 2)
            await asyncio.sleep(0.05)
        await eventually(lambda: proxy.client_connections == 1)
        assert len(upstream.requests) == 1
        assert await letters(proxy) == []


@pytest.mark.parametrize("hasty", [True, False])
@pytest.mark.parametrize("keys", ["", "idempotency: true"], ids=["no key", "key"])
async def test_a_clients_own_haste_is_no_failure(keys: str, *, hasty: bool) -> None:
    async with (
        ScriptedUpstream(usual=hang) as upstream,
        running(one_route(upstream, f"{KEEPS}\ntimeout: 100ms\n{keys}")) as proxy,
    ):
        field = "Holdfast-Timeout: 15ms" if hasty else "Holdfast-Timeout: 1s"
        given = await post(proxy, field, KEY)
        assert given.status == 504
        assert (given.get("Holdfast-Dead-Letter") is None) == hasty
        assert len(await letters(proxy)) == (not hasty)


async def test_a_failure_in_time_is_kept_however_hasty_the_client_is() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, f"{KEEPS}\nretry: {{backoff: {{base: 1ms}}}}")) as proxy,
    ):
        given = await post(proxy, "Holdfast-Timeout: 5s")
        await only_letter(proxy, given)


# What Holdfast refused itself.

REFUSALS = "dead_letter: {on: [default, refusals]}"


async def refused_ones(
    policy: str, keep: str, options: str = "", top: str = ""
) -> list[DeadLetter]:
    """The letters of two requests, of which the second is refused."""
    async with (
        ScriptedUpstream(usual=answer(ok())) as upstream,
        running(one_route(upstream, f"{keep}\n{policy}", options=options, top=top)) as proxy,
    ):
        if options:
            upstream.script(answer(response(500)))
        await post(proxy, new_key(), body=b"one")
        given = await post(proxy, new_key(), body=b"two")
        assert given.reason_word == ("breaker_open" if options else "throttled")
        found = await letters(proxy)
        assert given.all("Holdfast-Dead-Letter") == [letter.id for letter in found]
        record = (await proxy.logged(2))[1]
        assert record.get("dead_letter") == (found[0].id if found else None)
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_dead_letters_total", route="all") == len(found)
        await nothing_left(proxy)
        return found


@pytest.mark.parametrize("keys", ["", "idempotency: true"], ids=["no key", "key"])
@pytest.mark.parametrize("retries", ["", "retry: true"], ids=["one attempt", "retries"])
@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("throttle: {rate: 1/h, max_wait: 0s}", ""),
        ("", "breaker: {min_requests: 1, open_for: 1m}"),
    ],
    ids=["throttled", "breaker open"],
)
async def test_refusals_are_kept_where_the_file_says_so(
    policy: str, options: str, retries: str, keys: str
) -> None:
    policies = f"{policy}\n{retries}\n{keys}"
    assert await refused_ones(policies, KEEPS, options) == []
    (letter,) = await refused_ones(policies, REFUSALS, options)
    out = letter.summary
    assert out.error == ("breaker_open" if options else "throttled")
    assert (out.may_have_run, out.category, out.used) == (False, FailureCategory.TRANSIENT, 0)
    assert (letter.body, out.obstacle(force=False)) == (b"two", None)
    (run,) = letter.runs
    assert (run.result, run.attempts) == ("refused", ())


async def test_a_store_that_is_down() -> None:
    async with redis_server() as redis, ScriptedUpstream() as upstream:
        top = f"store: {{url: 'redis://127.0.0.1:{redis.port}', timeout: 50ms}}"
        policy = f"{REFUSALS}\nidempotency: true"
        async with running(one_route(upstream, policy, top=top)) as proxy:
            await redis.stop()
            given = await post(proxy, KEY)
            assert given.reason_word == "store"
            letter = await only_letter(proxy, given)
            assert (letter.summary.error, letter.summary.may_have_run) == ("store", False)
            assert (letter.body, bool(letter.record)) == (b"pay", True)
            assert upstream.requests == []
            proxy.complaints.clear()


async def test_no_memory_for_a_body() -> None:
    top = "limits: {replay_memory: 10B}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"{REFUSALS}\nidempotency: true", top=top)) as proxy,
    ):
        given = await post(proxy, KEY, body=b"x" * 20)
        assert given.reason_word == "overload"
        letter = await only_letter(proxy, given)
        assert (letter.summary.error, letter.summary.missing) == ("overload", Missing.BUFFER_FULL)


@pytest.mark.parametrize(
    ("policy", "fields", "status"),
    [
        ("max_body: 2B", (), 413),
        ("idempotency: {required: true}", (), 400),
        ("idempotency: true", (KEY, KEY), 400),
        ("throttle: {rate: 1/h, max_wait: 0s}", ("Transfer-Encoding: nonsense",), 400),
    ],
)
async def test_bad_requests_are_kept_nowhere(
    policy: str, fields: tuple[str, ...], status: int
) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"{REFUSALS}\n{policy}")) as proxy,
    ):
        given = await post(proxy, *fields)
        assert given.status == status
        assert await letters(proxy) == []


async def test_a_refusal_for_a_clients_own_haste_is_not_kept() -> None:
    policy = f"{REFUSALS}\nthrottle: {{rate: 1/h, max_wait: none}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, policy)) as proxy,
    ):
        await post(proxy)
        hasty = await post(proxy, "Holdfast-Timeout: 10ms")
        assert (hasty.status, hasty.get("Holdfast-Dead-Letter")) == (429, None)
        assert (await post(proxy)).get("Holdfast-Dead-Letter")


async def test_a_refusal_that_no_haste_has_caused_is_kept_however_hasty_the_client_is() -> None:
    policy = f"{REFUSALS}\nthrottle: {{rate: 1/h, max_wait: 0s}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, policy)) as proxy,
    ):
        await post(proxy)
        given = await post(proxy, "Holdfast-Timeout: 5s")
        assert given.status == 429
        await only_letter(proxy, given)


async def test_duplicates_that_are_told_of_the_refusal_leave_no_letters() -> None:
    policy = f"{REFUSALS}\nidempotency: true\nthrottle: {{concurrency: 1, max_wait: 1s}}"
    async with (
        ScriptedUpstream(usual=hang) as upstream,
        running(one_route(upstream, policy, top="drain_timeout: 100ms")) as proxy,
        proxy.client() as first,
    ):
        await first.send(request("POST", "/", new_key(), body=b"pay"))
        await eventually(lambda: upstream.requests)
        key = new_key()
        given = await asyncio.gather(*(post(proxy, key) for _ in range(3)))
        assert [one.status for one in given] == [429] * 3
        assert len(await letters(proxy)) == 1


@pytest.mark.parametrize(
    ("failure", "error"), [(hang_up, "reset"), (unavailable, "503")], ids=["reset", "503"]
)
async def test_what_failed_before_it_was_refused_has_failed(failure: Behaviour, error: str) -> None:
    """The wait for another attempt ends with the process."""
    retry = "retry: {unsafe: always, backoff: {strategy: constant, base: 10s}}\ntimeout: 60s"
    async with (
        ScriptedUpstream(usual=failure) as upstream,
        running(one_route(upstream, f"{KEEPS}\n{retry}")) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("POST", "/", body=b"pay"))
        await eventually(lambda: upstream.requests)
        await asyncio.sleep(0.05)
        proxy.app._retry_waits.end()
        given = await client.response("POST")
        assert given.reason_word == "draining"
        letter = await only_letter(proxy, given)
        out = letter.summary
        assert (out.error, out.verdict, out.may_have_run) == (error, "shutdown", True)


async def test_what_an_open_breaker_refused_is_kept_before_its_fallback() -> None:
    breaker = "breaker: {min_requests: 1, open_for: 1m}"
    policy = f"{REFUSALS}\nfallback: {{status: 202}}"
    async with (
        ScriptedUpstream(usual=answer(response(500))) as upstream,
        running(one_route(upstream, policy, options=breaker)) as proxy,
    ):
        assert (await post(proxy)).status == 500
        given = await post(proxy)
        assert given.status == 202
        letter = await only_letter(proxy, given)
        assert (letter.summary.error, letter.fallback) == ("breaker_open", "-")
        assert not letter.summary.may_have_run


# What is kept.


async def test_what_scope_takes_for_a_credential_is_not_written_to_disk_by_default() -> None:
    names = ("Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key")
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, "dead_letter: true")) as proxy,
    ):
        letter = await only_letter(proxy, await post(proxy, *(f"{name}: s3cret" for name in names)))
        files = [file.read_bytes() for file in proxy.config.parent.glob("state/*")]
    assert set(letter.dropped) == {"Authorization", "Cookie", "X-Api-Key"}
    assert not any(b"s3cret" in content for content in files)


async def test_fields_are_kept_but_for_secrets_and_those_between_two_hops() -> None:
    fields = (
        "Authorization: Bearer s3cret",
        "Cookie: s3cret=1",
        "Proxy-Authorization: Basic s3cret",
        "X-Api-Key: s3cret",
        "Content-Type: application/json",
        "X-Tenant: acme",
        "X-Tenant: other",
        "Connection: keep-alive, X-Hop",
        "X-Hop: 1",
        "Holdfast-Timeout: 10s",
    )
    policy = "dead_letter: {headers: {drop: [authorization, cookie, X-API-KEY]}}"
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, policy)) as proxy,
    ):
        letter = await only_letter(proxy, await post(proxy, *fields))
        files = [file.read_bytes() for file in proxy.config.parent.glob("state/*")]
    assert [(name, value) for name, value in letter.headers if name != b"Host"] == [
        (b"Content-Type", b"application/json"),
        (b"X-Tenant", b"acme"),
        (b"X-Tenant", b"other"),
    ]
    assert letter.dropped == ("Authorization", "Cookie", "X-Api-Key")
    assert not any(b"s3cret" in content for content in files)
    assert any(b"acme" in content for content in files)


@pytest.mark.parametrize(
    ("policy", "body", "missing"),
    [
        ("dead_letter: {max_body: 3B}", b"pay", None),
        ("dead_letter: {max_body: 2B}", b"pay", Missing.TOO_LARGE),
        ("dead_letter: true\nbuffer: 2B", b"pay", Missing.TOO_LARGE),
        ("dead_letter: true", b"x" * 300_000, None),
        ("dead_letter: {max_body: 0B}", b"", None),
    ],
)
async def test_a_body_is_kept_up_to_its_limit(
    policy: str, body: bytes, missing: Missing | None
) -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, policy)) as proxy,
    ):
        letter = await only_letter(proxy, await post(proxy, body=body))
        assert upstream.requests[0].body == body, "the upstream gets all of it"
        assert letter.summary.missing is missing
        assert letter.body == (body if missing is None else b"")
        await nothing_left(proxy)


async def test_without_memory_for_it_a_letter_has_no_body() -> None:
    top = "limits: {replay_memory: 10B}"
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, KEEPS, top=top)) as proxy,
    ):
        letter = await only_letter(proxy, await post(proxy, body=b"x" * 20))
        assert letter.summary.missing is Missing.BUFFER_FULL


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_body_that_nobody_asked_for_is_read_to_be_kept(framing: str) -> None:
    pieces = [b"a" * 100, b"b" * 200_000, b"c"]
    body = b"".join(pieces)
    async with ScriptedUpstream() as unused:
        with failing("connect", unused) as url:
            async with running(one_route(url, KEEPS)) as proxy, proxy.client() as client:
                if framing == "length":
                    head = request("POST", "/", f"Content-Length: {len(body)}")
                    sent = pieces
                else:
                    head = request("POST", "/", "Transfer-Encoding: chunked")
                    sent = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
                    sent.append(b"0\r\n\r\n")
                await client.send(head)
                for piece in sent:
                    await asyncio.sleep(0.02)
                    await client.send(piece)
                given = await client.response("POST")
                assert given.status == 502
                assert (await only_letter(proxy, given)).body == body
                await nothing_left(proxy)


async def test_an_answer_before_the_end_of_the_body_waits_for_the_rest() -> None:
    async with (
        ScriptedUpstream(usual=answer_early(response(503))) as upstream,
        running(one_route(upstream, KEEPS)) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("POST", "/", "Content-Length: 6"), b"pay")
        await eventually(lambda: upstream.requests)
        await asyncio.sleep(0.05)
        await client.send(b"now")
        given = await client.response("POST")
        assert given.status == 503
        assert (await only_letter(proxy, given)).body == b"paynow"


# When, and what the client gets.


async def test_a_failing_response_reaches_the_client_as_it_was() -> None:
    in_chunks = chunked(b"not", b" now").replace(b"200 OK", b"503 No")
    async with (
        ScriptedUpstream(usual=answer(in_chunks)) as upstream,
        running(one_route(upstream, f"{KEEPS}\n{OFTEN}")) as proxy,
    ):
        given = await post(proxy)
        assert (given.status, given.body, given.complete) == (503, b"not now", True)
        assert given.get("Holdfast-Attempts") == "3"
        letter = await only_letter(proxy, given)
        assert [attempt["why"] for attempt in letter.runs[0].attempts] == [
            "retried",
            "retried",
            "attempts_exhausted",
        ]
        assert letter.summary.verdict == "attempts_exhausted"


async def test_a_long_failing_response_streams_once_the_letter_is_written() -> None:
    body = bytes(range(256)) * 8000
    head = f"HTTP/1.1 503 No\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with (
        ScriptedUpstream(
            usual=answer(head, *(body[n : n + 99_999] for n in range(0, len(body), 99_999)))
        ) as upstream,
        running(one_route(upstream, KEEPS)) as proxy,
    ):
        given = await post(proxy)
        assert (given.status, given.body == body) == (503, True)
        assert (await only_letter(proxy, given)).body == b"pay"
        await nothing_left(proxy)


async def test_a_failing_response_that_breaks_off_is_cut_for_the_client_too() -> None:
    head = b"HTTP/1.1 503 No\r\nContent-Length: 10\r\n\r\nabc"
    async with (
        ScriptedUpstream(usual=answer_and_reset(head)) as upstream,
        running(one_route(upstream, KEEPS)) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("POST", "/", body=b"pay"))
        given = await client.response("POST")
        assert not given.complete
        assert await client.ended() is End.RESET
        await only_letter(proxy, given)


@pytest.mark.parametrize("fixed", [True, False])
async def test_the_letter_comes_before_the_fallback(*, fixed: bool) -> None:
    # A request that may have run would not go to another upstream.
    usual = answer(response(429))
    async with ScriptedUpstream(usual=usual) as upstream, ScriptedUpstream() as other:
        fallback = "{status: 202, body: later}" if fixed else "{upstream: other}"
        config = one_route(upstream, f"{KEEPS}\nfallback: {fallback}").replace(
            "routes:", f"  other: {other.url}\nroutes:"
        )
        async with running(config) as proxy:
            given = await post(proxy, body=b"x" * 100_000)
            assert given.status == (202 if fixed else 200)
            letter = await only_letter(proxy, given)
            assert letter.body == b"x" * 100_000
            assert letter.fallback == ("-" if fixed else "other")
            assert letter.summary.may_have_run == (not fixed), "the other one may have done it"
            assert len(letter.runs[0].attempts) == 1
            await nothing_left(proxy)


async def test_a_fallback_that_fails_too_leaves_one_letter() -> None:
    async with ScriptedUpstream(usual=unavailable) as upstream, ScriptedUpstream() as other:
        upstream.usual = answer(response(429))
        other.usual = unavailable
        config = one_route(upstream, f"{KEEPS}\nfallback: {{upstream: other}}").replace(
            "routes:", f"  other: {other.url}\nroutes:"
        )
        async with running(config) as proxy:
            await only_letter(proxy, await post(proxy))


async def test_with_a_key_the_letter_knows_its_record() -> None:
    config_of = f"{KEEPS}\nidempotency: true"
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, config_of)) as proxy,
    ):
        given = await post(proxy, KEY, "Authorization: Bearer a")
        letter = await only_letter(proxy, given)
        record = await last_logged(proxy)
        assert letter.record == record["record"]
        assert (given.status, given.body) == (503, b"not now")
        # What is free runs again, and is another letter.
        await post(proxy, KEY, "Authorization: Bearer a")
        assert len(await letters(proxy)) == 2
        await nothing_left(proxy)


async def test_duplicates_that_wait_get_the_failure_and_leave_no_letters() -> None:
    async def fail_slowly(visit: Visit) -> None:
        await visit.read_body()
        await eventually(lambda: proxy.waiting_for_keys == 2)
        await visit.send(response(503))

    async with (
        ScriptedUpstream(usual=fail_slowly) as upstream,
        running(one_route(upstream, f"{KEEPS}\nidempotency: true")) as proxy,
    ):
        key = new_key()
        given = await asyncio.gather(*(post(proxy, key) for _ in range(3)))
        assert [one.status for one in given] == [503] * 3
        assert len(await letters(proxy)) == 1


async def test_metrics_and_status() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, KEEPS)) as proxy,
    ):
        before = await proxy.metrics()
        for name in ("_pending", "_total", "_dropped_total"):
            assert before.total(f"holdfast_dead_letters{name}", route="all") == 0
        for _ in range(2):
            await post(proxy)
        await eventually(lambda: proxy.app._dead_letters.counts.get("all"))
        await eventually(lambda: proxy.app._dead_letters.counts["all"].waiting == 2)
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_dead_letters_pending", route="all") == 2
        assert metrics.total("holdfast_dead_letters_total", route="all") == 2
        oldest = metrics.total("holdfast_dead_letters_oldest_timestamp_seconds", route="all")
        assert oldest == (await letters(proxy))[0].summary.created
        status = proxy.status()["routes"]["all"]["dead_letters"]  # type: ignore[index]  # JSON
        assert (status["waiting"], status["replayable"], status["kept"]) == (2, 0, 2)


# When it cannot be written.


async def test_without_room_the_client_gets_its_answer_and_no_promise() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, KEEPS)) as proxy,
    ):
        proxy.app._dead_letters._most = (1, 10**9)
        assert (await post(proxy)).get("Holdfast-Dead-Letter")
        given = await post(proxy)
        assert (given.status, given.body) == (503, b"not now")
        assert given.get("Holdfast-Dead-Letter") is None
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_dead_letters_dropped_total", route="all") == 1
        assert "dead_letter" not in (await proxy.logged(2))[1]


async def test_a_file_that_fails_does_not_keep_a_client_from_its_answer() -> None:
    async with ScriptedUpstream() as unused:
        with failing("connect", unused) as url:
            async with running(one_route(url, KEEPS)) as proxy:
                letters_of = proxy.app._dead_letters
                await letters_of._ask(lambda table: table._run("DROP TABLE deliveries"))
                given = await post(proxy)
                assert given.reason_word == "connect"
                assert given.get("Holdfast-Dead-Letter") is None
                metrics = await proxy.metrics()
                assert metrics.total("holdfast_dead_letters_dropped_total", route="all") == 1


async def test_a_reload_can_switch_it_on_and_off() -> None:
    async with ScriptedUpstream(usual=unavailable) as upstream:
        off = one_route(upstream)
        async with running(off) as proxy:
            text = proxy.config.read_text()
            assert not (proxy.config.parent / "state").exists()
            assert (await post(proxy)).get("Holdfast-Dead-Letter") is None
            proxy.config.write_text(text + "    dead_letter: true\n")
            assert (await proxy.admin("POST", "/-/reload")).status == 200
            assert (await post(proxy)).get("Holdfast-Dead-Letter")
            proxy.config.write_text(text)
            assert (await proxy.admin("POST", "/-/reload")).status == 200
            assert (await post(proxy)).get("Holdfast-Dead-Letter") is None
            await eventually(lambda: proxy.app._dead_letters.counts)
            assert (await proxy.metrics()).total("holdfast_dead_letters_pending", route="all") == 1


async def test_a_folder_that_cannot_be_used_refuses_the_reload() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        (proxy.config.parent / "state").mkdir()
        (proxy.config.parent / "state" / "letters.db").write_text("x" * 5000)
        proxy.config.write_text(proxy.config.read_text() + "    dead_letter: true\n")
        refused = await proxy.admin("POST", "/-/reload")
        assert refused.status == 422
        assert b"dead_letter: " in refused.body
        assert proxy.complaints.pop().startswith("reload refused: dead_letter: ")
        assert (await proxy.get()).status == 200


# Whose they are.


async def test_a_letter_knows_its_caller_and_not_its_credentials() -> None:
    policy = f"{KEEPS}\nidempotency: {{scope: [header:X-Tenant]}}"
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, policy)) as proxy,
    ):
        for fields in (
            ("Authorization: Bearer s3cret",),
            ("authorization: Bearer s3cret",),
            ("Authorization: Bearer other",),
            ("Authorization: Bearer s3cret", "X-Tenant: acme"),
            (),
        ):
            await post(proxy, *fields)
        callers = [letter.summary.caller for letter in await letters(proxy)]
        files = [file.read_bytes() for file in proxy.config.parent.glob("state/*")]
        (first, *_) = await letters(proxy)
    assert callers[0] == callers[1]
    assert len(set(callers)) == 4
    assert callers[4] == ""
    assert {"authorization", "cookie", "x-tenant"} <= set(first.summary.credentials)
    assert first.holder == "127.0.0.1"
    assert not any(b"s3cret" in content for content in files)


# When the disk is full.


async def test_what_a_full_disk_costs_is_told_everywhere_and_can_be_cleared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", 512 * 1024) as disk:
        async with (
            ScriptedUpstream(usual=unavailable) as upstream,
            running(one_route(upstream, KEEPS, top=f"state_dir: {disk}/state")) as proxy,
        ):
            kept = await post(proxy)
            assert kept.get("Holdfast-Dead-Letter")
            fill(disk)
            lost = [await post(proxy, body=b"x" * 30_000) for _ in range(4)]
            assert [given.get("Holdfast-Dead-Letter") for given in lost] == [None] * 4
            assert [given.status for given in lost] == [503] * 4
            for given in lost:
                assert f"request {given.get('X-Request-Id')} could not be kept" in caplog.text
            await eventually(lambda: proxy.app._dead_letters.counts)
            status = proxy.status()["routes"]["all"]["dead_letters"]  # type: ignore[index]  # JSON
            assert (status["waiting"], status["kept"], status["lost"]) == (1, 1, 4)
            metrics = await proxy.metrics()
            assert metrics.total("holdfast_dead_letters_dropped_total", route="all") == 4
            assert "again" not in caplog.text

            upstream.usual = answer(ok())
            (letter,) = await letters(proxy)
            assert (await replayed(proxy, letter.id, force=True))["result"] == "succeeded"
            upstream.usual = unavailable
            assert (await post(proxy)).get("Holdfast-Dead-Letter"), "in the room of the first one"
            answered = await proxy.admin("DELETE", "/dead-letters?all=true")
            assert json.loads(answered.body) == {"result": "dropped", "letters": 1}


async def test_a_stranger_does_not_take_the_room_of_others() -> None:
    top = "trusted_proxies: [127.0.0.1/32]"
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, KEEPS, top=top)) as proxy,
    ):
        proxy.app._dead_letters._most = (20, 10**9)

        async def kept_of(address: str, count: int) -> int:
            field = f"X-Forwarded-For: {address}"
            given = [await post(proxy, field) for _ in range(count)]
            assert {one.status for one in given} == {503}
            return sum(one.get("Holdfast-Dead-Letter") is not None for one in given)

        assert await kept_of("192.0.2.1", 1) == 1
        # However many addresses of its own network it uses.
        assert await kept_of("2001:db8::1", 8) == 8
        assert await kept_of("2001:db8::2:1", 8) == 2
        assert await kept_of("192.0.2.1", 9) == 9
        assert await kept_of("::ffff:192.0.2.1", 1) == 0, "now there is no room at all"
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_dead_letters_dropped_total", route="all") == 7
        status = proxy.status()["routes"]["all"]["dead_letters"]  # type: ignore[index]  # JSON
        assert status["lost"] == 7


async def test_a_caller_that_is_known_for_good_has_room_of_its_own() -> None:
    """Names that anybody can make up bring nobody more room."""
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, f"{KEEPS}\nidempotency: true")) as proxy,
    ):
        proxy.app._dead_letters._most = (20, 10**9)

        async def kept_of(name: str, count: int) -> int:
            field = f"Authorization: Bearer {name}"
            given = [await post(proxy, field, new_key()) for _ in range(count)]
            return sum(one.get("Holdfast-Dead-Letter") is not None for one in given)

        upstream.script(answer(ok()))
        assert await kept_of("known", 2) == 1, "the first one succeeded"
        assert sum([await kept_of(f"made-up-{n}", 1) for n in range(15)]) == 10
        assert await kept_of("known", 9) == 9
        holders = {letter.holder for letter in await letters(proxy)}
        assert len(holders) == 2
        assert "127.0.0.1" in holders
