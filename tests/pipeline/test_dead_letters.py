"""What failed for good is on disk before its client hears of it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from proxy.policy.failures import Category
from proxy.policy.letters import Letter, LetterState, Missing
from tests.support import (
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
from tests.support.keys import KEY, new_key
from tests.support.leftovers import nothing_left
from tests.support.ports import refusing_port
from tests.support.records import told

KEEPS = "dead_letter: true"
RETRY = "retry: {backoff: {strategy: constant, base: 1ms}, attempt_timeout: 80ms}"
OFTEN = "retry: {unsafe: always, backoff: {strategy: constant, base: 1ms}}"

unavailable = answer(response(503, b"not now"))


async def post(
    proxy: RunningProxy, *fields: str, body: bytes = b"pay", method: str = "POST"
) -> Response:
    async with proxy.client() as client:
        return await client.request(method, "/pay?now=1", *fields, body=body)


async def letters(proxy: RunningProxy) -> list[Letter]:
    """All there are, the oldest one first."""
    return [letter async for letter in proxy.app._letters.every()]


async def only_letter(proxy: RunningProxy, told_in: Response) -> Letter:
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
        ("connect", 502, Category.TRANSIENT, False),
        ("reset", 502, Category.TRANSIENT, True),
        ("timeout", 504, Category.TRANSIENT, True),
        ("protocol", 502, Category.PERMANENT, True),
        ("503", 503, Category.TRANSIENT, False),
        ("429", 429, Category.TRANSIENT, False),
        ("408", 408, Category.TRANSIENT, False),
    ],
)
async def test_each_failure_is_kept(
    how: str, status: int, category: Category, policy: str, *, ran: bool
) -> None:
    async with ScriptedUpstream() as upstream:
        with failing(how, upstream) as url:
            config = one_route(url, f"{KEEPS}\ntimeout: 200ms\n{policy}")
            async with running(config) as proxy:
                given = await post(proxy)
                assert given.status == status
                letter = await only_letter(proxy, given)
                record = await told(proxy)
                await nothing_left(proxy)
    out = letter.outline
    assert (out.error, out.category, out.may_have_run) == (how, category, ran)
    assert (out.method, out.target, letter.body) == ("POST", "/pay?now=1", b"pay")
    assert (out.route, out.state, out.missing) == ("all", LetterState.WAITING, None)
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


async def test_a_list_of_ones_own_is_heeded() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(500))) as upstream,
        running(one_route(upstream, f"{KEEPS}\nretry: {{attempts: 1, on: [5xx]}}")) as proxy,
    ):
        letter = await only_letter(proxy, await post(proxy))
        assert (letter.outline.error, letter.outline.may_have_run) == ("500", True)


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
        assert letter.outline.method == "PUT"


async def test_a_client_that_leaves_leaves_no_letter() -> None:
    async with (
        ScriptedUpstream(usual=hang) as upstream,
        running(one_route(upstream, KEEPS)) as proxy,
    ):
        async with proxy.client() as client:
            await client.send(request("POST", "/", body=b"pay"))
            await eventually(lambda: upstream.requests)
        assert (await told(proxy))["code"] == 499
        assert await letters(proxy) == []
        await nothing_left(proxy)


async def test_nor_one_whose_key_goes_on_without_it() -> None:
    async def fail_later(visit: Visit) -> None:
        await visit.read_body()
        await gone.wait()
        await visit.send(response(503))

    gone = asyncio.Event()
    async with (
        ScriptedUpstream(usual=fail_later) as upstream,
        running(one_route(upstream, f"{KEEPS}\nidempotency: true")) as proxy,
    ):
        async with proxy.client() as client:
            await client.send(request("POST", "/", KEY, body=b"pay"))
            await eventually(lambda: upstream.requests)
        await eventually(lambda: proxy.client_connections == 0)
        gone.set()
        await nothing_left(proxy)
        assert await letters(proxy) == []


# What is kept.


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
        assert letter.outline.missing is missing
        assert letter.body == (body if missing is None else b"")
        await nothing_left(proxy)


async def test_without_memory_for_it_a_letter_has_no_body() -> None:
    top = "limits: {replay_memory: 10B}"
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, KEEPS, top=top)) as proxy,
    ):
        letter = await only_letter(proxy, await post(proxy, body=b"x" * 20))
        assert letter.outline.missing is Missing.NO_ROOM


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
        assert letter.outline.why == "attempts_exhausted"


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
        await only_letter(proxy, given)
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
            assert letter.outline.may_have_run == (not fixed), "the other one may have done it"
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
        record = await told(proxy)
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
        for name in ("", "_total", "_dropped_total"):
            assert before.total(f"holdfast_dead_letters{name}", route="all") == 0
        for _ in range(2):
            await post(proxy)
        await eventually(lambda: proxy.app._letters.counts.get("all"))
        await eventually(lambda: proxy.app._letters.counts["all"].waiting == 2)
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_dead_letters", route="all") == 2
        assert metrics.total("holdfast_dead_letters_total", route="all") == 2
        oldest = metrics.total("holdfast_dead_letters_oldest_timestamp_seconds", route="all")
        assert oldest == (await letters(proxy))[0].outline.created
        status = proxy.app.status()["routes"]["all"]["dead_letters"]  # type: ignore[index]  # JSON
        assert (status["waiting"], status["replayable"], status["kept"]) == (2, 2, 2)


# When it cannot be written.


async def test_without_room_the_client_gets_its_answer_and_no_promise() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(one_route(upstream, KEEPS)) as proxy,
    ):
        proxy.app._letters._most = (1, 10**9)
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
                letters_of = proxy.app._letters
                await letters_of._ask(lambda table: table._run("DROP TABLE letters"))
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
            await eventually(lambda: proxy.app._letters.counts)
            assert (await proxy.metrics()).total("holdfast_dead_letters", route="all") == 1


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
