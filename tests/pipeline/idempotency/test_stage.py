"""Requests with a key on the wire: the first runs, the others get its result."""

import asyncio

import pytest

from proxy.policy.reasons import KeyResult
from tests.support import (
    REFUSES_503,
    RunningProxy,
    ScriptedUpstream,
    answer,
    answer_and_close,
    answer_and_hang,
    answer_and_reset,
    chunked,
    eventually,
    hang,
    hang_up,
    now,
    ok,
    request,
    response,
    running,
    virtual_time,
)
from tests.support.keys import KEY, Gate, is_replayed, keyed, new_key, post

pytestmark = virtual_time


QUICK = "retry: {attempts: 3, backoff: {base: 1ms}}"


async def results(proxy: RunningProxy) -> dict[str, int]:
    """How often a key meant what; what never occurred is left out."""
    metrics = await proxy.metrics()
    counts = {
        result.value: int(metrics.total("holdfast_idempotency_total", result=result.value))
        for result in KeyResult
    }
    return {word: count for word, count in counts.items() if count}


# What it is to be the same.


@pytest.mark.parametrize("key", ["a-b", '"a-b"', '"a-b";v=1', "  a-b  "])
async def test_all_spellings_of_one_key_are_one(key: str) -> None:
    async with keyed() as (upstream, proxy):
        await post(proxy, "Idempotency-Key: a-b")
        assert is_replayed(await post(proxy, f"Idempotency-Key: {key}"))
        assert len(upstream.requests) == 1


async def test_the_key_reaches_the_upstream_as_it_was_sent_with_every_attempt() -> None:
    key = 'Idempotency-Key: "a \\"b\\"";v=1'
    async with keyed(route=QUICK, options="honours_key: true") as (upstream, proxy):
        upstream.script(answer(response(503)), answer(response(503)))
        assert (await post(proxy, key)).status == 200
        assert [one.get("Idempotency-Key") for one in upstream.requests] == [key[17:]] * 3
        heads = {one.raw_head for one in upstream.requests}
        assert len(heads) == 1


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        pytest.param(("Idempotency-Key: a", "Idempotency-Key: a"), "Send one", id="repeated"),
        pytest.param(("Idempotency-Key: a,b",), "Send one", id="a list"),
        pytest.param(("Idempotency-Key:",), "Send one", id="empty"),
        pytest.param((f"Idempotency-Key: {'a' * 256}",), "1 to 255", id="too long"),
        pytest.param((f"Idempotency-Key: {'a' * 10_000}",), "1 to 255", id="far too long"),
        pytest.param(("Idempotency-Key: caf\xe9",), "ASCII", id="other letters"),
        pytest.param(('Idempotency-Key: "a',), "visible", id="half a quotation"),
    ],
)
@pytest.mark.parametrize("required", ["true", "false"])
async def test_bad_keys(fields: tuple[str, ...], detail: str, required: str) -> None:
    async with keyed(f"{{required: {required}}}") as (upstream, proxy):
        got = await post(proxy, *fields)
        assert (got.status, got.reason_word) == (400, "key_invalid")
        assert detail in got.problem["detail"]
        assert not upstream.requests
        assert await results(proxy) == {"invalid": 1}


async def test_what_is_required_is_named() -> None:
    async with keyed("{required: true, header: X-Order-Id}") as (upstream, proxy):
        got = await post(proxy)  # with a key of another name
        assert (got.status, got.reason_word) == (400, "key_missing")
        assert "X-Order-Id" in got.problem["detail"]
        await post(proxy, "X-Order-Id: 7")
        assert is_replayed(await post(proxy, "X-Order-Id: 7"))
        assert len(upstream.requests) == 1
        assert await results(proxy) == {"missing": 1, "new": 1, "replayed": 1}


async def test_callers_without_a_name_can_be_turned_away() -> None:
    async with keyed("{scope: ['header:X-Tenant'], scope_required: true}") as (upstream, proxy):
        got = await post(proxy, "Authorization: a")
        assert (got.status, got.reason_word) == (400, "bad_request")
        assert "x-tenant" in got.problem["detail"].lower()
        await post(proxy, "X-Tenant: acme", "Authorization: a")
        assert is_replayed(await post(proxy, "X-Tenant: acme", "Authorization: b"))
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_other_methods_run_each_time(method: str) -> None:
    async with keyed() as (upstream, proxy):
        for _ in range(2):
            await post(proxy, method=method)
        assert len(upstream.requests) == 2


async def test_methods_can_be_named() -> None:
    async with keyed("{methods: [PUT]}") as (upstream, proxy):
        for method in ("PUT", "PUT", "POST", "POST"):
            await post(proxy, new_key() if method == "POST" else KEY, method=method)
        assert [one.method for one in upstream.requests] == ["PUT", "POST", "POST"]


async def test_a_request_without_a_body() -> None:
    async with keyed() as (upstream, proxy), proxy.client() as client:
        for _ in range(2):
            got = await client.request("POST", "/", KEY, "Content-Length: 0")
            assert got.status == 200
        assert len(upstream.requests) == 1
        assert (await client.request("POST", "/", KEY, body=b"x")).status == 422


async def test_a_body_in_pieces_is_the_same_as_one_in_one_piece() -> None:
    async with keyed() as (upstream, proxy), proxy.client() as client:
        await post(proxy, body=b"pay me")
        head = f"POST / HTTP/1.1\r\nHost: a\r\n{KEY}\r\nTransfer-Encoding: chunked\r\n\r\n"
        for piece in (head.encode(), b"3\r\npay\r\n", b"3\r\n me\r\n", b"0\r\n\r\n"):
            await client.send(piece)
            await asyncio.sleep(0.005)
        assert is_replayed(await client.response("POST"))
        assert len(upstream.requests) == 1


async def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    async with keyed() as (upstream, proxy), proxy.client() as client:
        for replayed in (False, True):
            head = request("POST", "/", KEY, "Expect: 100-continue", "Content-Length: 3")
            await client.send(head)
            assert (await client.interim()).status == 100
            await client.send(b"pay")
            assert is_replayed(await client.response("POST")) == replayed
        assert len(upstream.requests) == 1


async def test_a_mismatch_has_the_status_that_was_chosen() -> None:
    async with keyed("{mismatch_status: 409}") as (_, proxy):
        await post(proxy)
        got = await post(proxy, body=b"other")
        assert (got.status, got.reason_word, got.problem["status"]) == (409, "key_mismatch", 409)


async def test_no_room_for_another_body() -> None:
    top = "limits: {replay_memory: 4KiB}"
    gate = Gate()
    async with keyed(route="buffer: 4KiB", top=top) as (upstream, proxy):
        upstream.script(gate.behaviour)
        first = asyncio.create_task(post(proxy, body=b"x" * 3000))
        await gate.reached.wait()
        got = await post(proxy, new_key(), body=b"x" * 3000)
        assert (got.status, got.reason_word) == (503, "overload")
        assert int(got.get("Retry-After") or 0) >= 1
        gate.open()
        await first
        assert (await post(proxy, new_key(), body=b"x" * 3000)).status == 200
        assert len(upstream.requests) == 2


# What is kept, and what a duplicate gets of it.


async def test_a_replay_is_the_same_but_for_its_marks() -> None:
    fields = ("Content-Type: application/json", "X-Colour: red", "X-Colour: blue", "ETag: 7")
    async with keyed(route="headers: {response: {set: {X-Edited: here}}}") as (upstream, proxy):
        upstream.script(answer(response(201, b'{"id":1}', *fields)))
        first, second = [await post(proxy) for _ in range(2)]
        assert (second.status, second.reason, second.body) == (201, "Scripted", first.body)
        ours = {"idempotent-replayed", "x-request-id"}
        assert [pair for pair in first.headers if pair[0].lower() not in ours] == [
            pair for pair in second.headers if pair[0].lower() not in ours
        ]
        assert first.get("X-Request-Id") != second.get("X-Request-Id")
        assert second.get("X-Edited") == "here"


@pytest.mark.parametrize("status", [204, 205])
async def test_a_result_without_a_body(status: int) -> None:
    async with keyed() as (upstream, proxy):
        upstream.script(answer(f"HTTP/1.1 {status} None\r\n\r\n".encode()))
        first, second = [await post(proxy) for _ in range(2)]
        assert (second.status, second.body, is_replayed(second)) == (status, b"", True)
        assert first.framing == second.framing
        assert len(upstream.requests) == 1


async def test_a_response_that_ends_with_its_connection() -> None:
    async with keyed() as (upstream, proxy):
        upstream.script(answer_and_close(b"HTTP/1.1 200 OK\r\n\r\n", b"half", b"whole"))
        first, second = [await post(proxy) for _ in range(2)]
        assert first.body == second.body == b"halfwhole"
        assert len(upstream.requests) == 1


async def test_the_upstreams_own_mark_is_passed_on() -> None:
    async with keyed() as (upstream, proxy):
        upstream.script(answer(ok(b"", "Idempotent-Replayed: false")))
        first, second = [await post(proxy) for _ in range(2)]
        assert (first.get("Idempotent-Replayed"), second.get("Idempotent-Replayed")) == (
            "false",
            "true",
        )


async def test_a_client_of_http_1_0() -> None:
    async with keyed() as (upstream, proxy):
        for _ in range(2):
            async with proxy.client() as client:
                head = f"POST / HTTP/1.0\r\nHost: a\r\n{KEY}\r\nContent-Length: 3\r\n\r\n"
                await client.send(head.encode() + b"pay")
                assert (await client.response("POST")).body == b"ok"
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param((ok(b"x" * 2000),), id="all at once"),
        pytest.param((ok(b"x" * 2000)[:200], ok(b"x" * 2000)[200:]), id="in two"),
        pytest.param((chunked(b"x" * 1000, last=False), chunked(b"x" * 1000)[47:]), id="chunked"),
        pytest.param((ok(b"data: 1\n\n", "Content-Type: text/event-stream"),), id="events"),
    ],
)
async def test_what_is_not_kept_is_delivered_all_the_same(pieces: tuple[bytes, ...]) -> None:
    async with keyed("{max_response: 1500B, on_ambiguous: hold}") as (upstream, proxy):
        upstream.script(answer(*pieces))
        first = await post(proxy)
        assert first.status == 200
        assert first.complete
        second = await post(proxy)
        assert (second.status, second.reason_word) == (409, "result_not_stored")
        assert len(second.problem["record"]) == 32
        assert len(upstream.requests) == 1
        assert await results(proxy) == {"new": 1, "unstored": 1}


async def test_a_response_that_is_too_large_is_told_as_such_while_it_lasts() -> None:
    async with keyed("{max_response: 1500B}") as (upstream, proxy):
        upstream.script(answer_and_hang(chunked(b"x" * 1501, last=False)))
        async with proxy.client() as client:
            await client.send(request("POST", "/", KEY, body=b"pay"))
            await eventually(lambda: b"xx" in client.wire.unread)
            began = now()
            got = await post(proxy)  # nobody waits for the rest
            assert (got.status, got.reason_word) == (409, "result_not_stored")
            assert now() - began < 0.1
        assert len(upstream.requests) == 1


async def test_a_failure_that_is_too_large_is_no_result_and_sets_its_key_free() -> None:
    body = b"x" * 1501
    head = b"HTTP/1.1 429 No\r\nContent-Length: 1501\r\n\r\n"
    async with keyed("{max_response: 1500B, on_ambiguous: hold}") as (upstream, proxy):
        gate = Gate(head + body[:1], body[1:])
        upstream.script(gate.behaviour)
        gate.open()
        assert (await post(proxy)).body == body
        second = await post(proxy)
        assert (second.status, is_replayed(second)) == (200, False)
        assert len(upstream.requests) == 2


async def test_who_waits_for_a_request_that_ends_with_the_fallback_gets_it_too() -> None:
    fallback = "fallback: {status: 202, body: later}"
    async with keyed("{on_ambiguous: hold}", fallback) as (upstream, proxy):
        gate = Gate(response(503, b"not now"))
        upstream.script(gate.behaviour)
        both = [asyncio.create_task(post(proxy)) for _ in range(2)]
        await gate.reached.wait()
        await eventually(lambda: proxy.app._in_flight_keys.waiting == 1)
        gate.open()
        assert [(got.status, got.body) for got in await asyncio.gather(*both)] == [
            (202, b"later"),
            (202, b"later"),
        ]
        assert await results(proxy) == {"new": 1, "joined": 1}
        assert len(upstream.requests) == 1


async def test_a_stream_of_events_is_told_as_such_while_it_lasts() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    async with keyed() as (upstream, proxy):
        upstream.script(answer_and_hang(head, b"data: 1\n\n"))
        async with proxy.client() as client:
            await client.send(request("POST", "/", KEY, body=b"pay"))
            await eventually(lambda: b"data: 1" in client.wire.unread)
            got = await post(proxy)  # nobody waits for an end that may never come
            assert (got.status, got.reason_word) == (409, "result_not_stored")
        assert (await post(proxy)).status == 409
        assert len(upstream.requests) == 1


async def test_a_result_that_broke_off_is_not_run_again() -> None:
    async with keyed() as (upstream, proxy):
        upstream.script(answer_and_reset(ok(b"x" * 500)[:300]))
        async with proxy.client() as client:
            await client.send(request("POST", "/", KEY, body=b"pay"))
            await client.ended()
        second = await post(proxy)
        assert (second.status, second.reason_word) == (409, "result_not_stored")
        assert len(upstream.requests) == 1


async def test_nothing_is_said_to_have_ended_before_the_store_knows() -> None:
    # The end of the response is there, and the store is not: see test_idempotency_stores.
    async with keyed() as (upstream, proxy):
        upstream.script(answer(chunked(b"one", last=False), b"3\r\ntwo\r\n0\r\n\r\n"))
        first, second = [await post(proxy) for _ in range(2)]
        assert first.body == second.body == b"onetwo"


# What becomes of the key.


@pytest.mark.parametrize(
    ("behaviour", "status", "ambiguous"),
    [
        pytest.param(hang_up, 502, True, id="reset"),
        pytest.param(hang, 504, True, id="timeout"),
        pytest.param(answer(b"garbage\r\n\r\n"), 502, True, id="protocol"),
        pytest.param(answer(response(500)), 500, True, id="500"),
        pytest.param(answer(response(503)), 503, True, id="503"),
        pytest.param(answer(response(529)), 529, True, id="529"),
        pytest.param(answer(response(429)), 429, False, id="429"),
        pytest.param(answer(response(501)), 501, False, id="501"),
    ],
)
@pytest.mark.parametrize("policy", ["release", "hold"])
async def test_what_failed(
    behaviour: object,
    status: int,
    ambiguous: bool,  # noqa: FBT001 - pytest's way
    policy: str,
) -> None:
    async with keyed(f"{{on_ambiguous: {policy}}}", "timeout: 300ms") as (upstream, proxy):
        upstream.script(behaviour)  # type: ignore[arg-type]  # a behaviour
        assert (await post(proxy)).status == status
        second = await post(proxy)
        if ambiguous and policy == "hold":
            assert (second.status, second.reason_word) == (409, "outcome_unknown")
            assert len(second.problem["record"]) == 32
            assert second.get("Retry-After") is None
            assert len(upstream.requests) == 1
        else:
            assert (second.status, is_replayed(second)) == (200, False)
            assert len(upstream.requests) == 2


async def test_a_refusal_of_ours_frees_the_key() -> None:
    throttle = "throttle: {rate: 1/h, burst: 1, max_wait: 0s}"
    async with keyed("{on_ambiguous: hold}", throttle) as (upstream, proxy):
        await post(proxy, new_key())
        for _ in range(2):
            assert (await post(proxy)).status == 429
        assert await results(proxy) == {"new": 3}
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("policy", ["release", "hold"])
async def test_a_fallback_is_never_kept(policy: str) -> None:
    fallback = "fallback: {status: 202, body: later}"
    async with keyed(f"{{on_ambiguous: {policy}}}", fallback) as (upstream, proxy):
        upstream.script(answer(response(429, b"", "Retry-After: 0")), hang_up)
        for _ in range(2):
            assert (await post(proxy)).body == b"later"
        assert len(upstream.requests) == 2
        third = await post(proxy)
        assert third.status == (200 if policy == "release" else 409)


async def test_nor_is_what_another_upstream_said() -> None:
    async with ScriptedUpstream() as upstream, ScriptedUpstream() as other:
        config = (
            f"upstreams: {{one: {upstream.url}, two: {other.url}}}\nroutes:\n"
            "  - {match: /**, upstream: one, idempotency: {on_ambiguous: hold}, "
            "retry: true, fallback: {upstream: two}}\n"
        )
        async with running(config) as proxy:
            upstream.script(*[answer(response(429, b"", "Retry-After: 0"))] * 3)
            first = await post(proxy)
            assert (first.status, first.body) == (200, b"ok")
            second = await post(proxy)  # the other one has done it, and that is not kept
            assert (second.status, second.reason_word) == (409, "outcome_unknown")
        assert (len(upstream.requests), len(other.requests)) == (3, 1)


@pytest.mark.parametrize("on_ambiguous", ["release", "hold"])
async def test_a_key_that_the_upstream_does_not_honour_proves_nothing(on_ambiguous: str) -> None:
    """Book the payment and then answer 503, as a gateway in front of a worker does."""
    async with keyed(f"{{on_ambiguous: {on_ambiguous}}}", QUICK) as (upstream, proxy):
        upstream.script(answer(response(503)))
        first = await post(proxy)
        assert (first.status, first.get("Holdfast-Attempts")) == (503, None)
        assert len(upstream.requests) == 1
        second = await post(proxy)
        assert second.status == (409 if on_ambiguous == "hold" else 200)
        assert len(upstream.requests) == (1 if on_ambiguous == "hold" else 2)


@pytest.mark.parametrize("promise", ["honours_key: true", REFUSES_503])
async def test_a_keyed_post_is_retried_after_503_where_the_file_says_that_it_may(
    promise: str,
) -> None:
    async with keyed(route=QUICK, options=promise) as (upstream, proxy):
        upstream.script(answer(response(503)), answer(response(201, b"done")))
        first = await post(proxy)
        assert (first.status, first.get("Holdfast-Attempts")) == (201, "2")
        second = await post(proxy)
        assert (second.status, second.get("Holdfast-Attempts")) == (201, None)
        assert len(upstream.requests) == 2


# What is told of it.


async def test_the_log_tells_what_a_key_meant() -> None:
    async with keyed() as (_, proxy):
        await post(proxy)
        await post(proxy)
        await post(proxy, body=b"other")
        first, second, third = await proxy.logged(3)
        assert (first["idempotency"], second["idempotency"]) == ("new", "replayed")
        assert third["idempotency"] == "mismatch"
        assert first["record"] == second["record"] == third["record"]
        assert (len(first["attempts"]), second["attempts"], second["code"]) == (1, [], 200)
        assert KEY[17:] not in str(proxy.log)


async def test_status_tells_what_goes_on() -> None:
    gate = Gate()
    async with keyed() as (upstream, proxy):
        upstream.script(gate.behaviour)
        tasks = [asyncio.create_task(post(proxy)) for _ in range(3)]
        await eventually(lambda: proxy.waiting_for_keys == 2)
        assert proxy.status()["keys"] == {"in_flight": 1, "waiting": 2}
        gate.open()
        await asyncio.gather(*tasks)
        assert proxy.status()["keys"] == {"in_flight": 0, "waiting": 0}
        assert await results(proxy) == {"new": 1, "joined": 2}


async def test_two_keys_do_not_wait_for_each_other() -> None:
    gate = Gate()
    async with keyed() as (upstream, proxy):
        upstream.script(gate.behaviour)
        first = asyncio.create_task(post(proxy))
        await gate.reached.wait()
        assert (await post(proxy, new_key())).status == 200
        gate.open()
        assert (await first).status == 200
