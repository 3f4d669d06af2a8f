"""Which requests get 202, what the answer says, and what the upstream gets of them."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.support import (
    REFUSES_503,
    ScriptedUpstream,
    Visit,
    answer,
    hang,
    hang_up,
    now,
    ok,
    one_route,
    response,
    running,
    virtual_time,
)
from tests.support.dead_letters import listed
from tests.support.handed_off import (
    ASYNC,
    HONOURED,
    KEY,
    STATUS,
    delivery_id,
    ended,
    hand_off,
    send,
    state_of,
)

pytestmark = [virtual_time, pytest.mark.usefixtures("files_at_once")]

KEYED = "idempotency: {required: true}\ndead_letter: true\ntimeout: 5s\n"
OFTEN = "hand_off: {timeout: 5s}"


async def test_who_asks_gets_202_and_the_upstream_gets_the_same_request() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "hand_off: true")) as proxy,
    ):
        given = await send(proxy, ASYNC, "X-Colour: red", target="/orders?n=1")
        name = delivery_id(given)
        assert given.status == 202
        assert given.get("Location") == f"{STATUS}/{name}"
        assert given.get("Preference-Applied") == "respond-async"
        assert given.get("Vary") == "Prefer"
        assert given.get("Cache-Control") == "no-store"
        assert int(given.get("Retry-After") or 0) >= 1
        told = json.loads(given.body)
        assert (told["delivery"], told["state"], told["status"]) == (
            name,
            "waiting",
            f"{STATUS}/{name}",
        )
        assert told["gives_up"] > told["accepted"]
        found = await ended(proxy, name)
        assert (found["state"], found["attempts"], found["response"]) == (
            "delivered",
            1,
            {"status": 200},
        )
        (sent,) = upstream.requests
        assert (sent.method, sent.target, sent.body) == ("POST", "/orders?n=1", b"an order")
        assert sent.get("X-Colour") == "red"
        assert sent.get("Prefer") is None
        assert sent.get("X-Request-Id") == given.get("X-Request-Id")
        record = [line for line in proxy.log if line.get("delivery") == name]
        assert len(record) == 2  # the request, and the try


@pytest.mark.parametrize(
    ("prefer", "reaches", "applied"),
    [
        pytest.param((), (), None, id="none"),
        pytest.param(("Prefer: wait=5",), ("wait=5",), None, id="wait alone asks for nothing"),
        pytest.param(("Prefer: return=minimal",), ("return=minimal",), None, id="another one"),
        pytest.param(("Prefer: respond-async=maybe",), ("respond-async=maybe",), None, id="odd"),
    ],
)
async def test_without_respond_async_all_is_as_ever(
    prefer: tuple[str, ...], reaches: tuple[str, ...], applied: str | None
) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "hand_off: true")) as proxy,
    ):
        given = await send(proxy, *prefer)
        assert given.status == 200
        assert given.get("Preference-Applied") is applied
        assert tuple(upstream.requests[0].all("Prefer")) == reaches


async def test_what_we_honour_is_taken_off_and_the_rest_reaches_the_upstream() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "hand_off: true")) as proxy,
    ):
        prefer = ("Prefer: return=minimal, respond-async", "Prefer: handling=strict, wait=3")
        given = await send(proxy, *prefer)
        assert given.get("Preference-Applied") == "respond-async, wait=3"
        assert given.status == 200  # it came while the client waited
        assert ", ".join(upstream.requests[0].all("Prefer")) == "return=minimal, handling=strict"


@pytest.mark.parametrize(
    ("behaviour", "status", "state"),
    [
        pytest.param(answer(ok(b"done", "X-Colour: red")), 200, "delivered", id="fast"),
        pytest.param(answer(response(503)), 202, "retrying", id="a failure that is retried"),
        pytest.param(hang, 202, "sending", id="slow"),
        pytest.param(answer(response(404, b"no")), 404, "failed", id="a final failure"),
    ],
)
async def test_a_client_that_waits(behaviour: object, status: int, state: str) -> None:
    async with (
        ScriptedUpstream(usual=behaviour) as upstream,  # type: ignore[arg-type]  # a behaviour
        running(
            one_route(upstream, f"{KEYED}{OFTEN}", options=f"{HONOURED}\n{REFUSES_503}")
        ) as proxy,
    ):
        began = now()
        given = await send(proxy, "Prefer: respond-async, wait=2", KEY)
        assert given.status == status
        assert now() - began <= 2.1
        assert given.get("Preference-Applied") == "respond-async, wait=2"
        assert given.get("Vary") == "Prefer"
        if status == 202:
            assert (await state_of(proxy, delivery_id(given)))["state"] == state
        again = await send(proxy, "Prefer: respond-async, wait=2", KEY)
        if status in {200, 202}:
            assert again.status == status, "the key's result"
            assert again.get("Idempotent-Replayed") == "true"
        assert await listed(proxy) == [], "a client that was told has no need of a letter"
        upstream.usual = answer(ok())


async def test_nobody_waits_longer_than_one_attempt_may_take() -> None:
    async with (
        ScriptedUpstream(usual=hang) as upstream,
        running(one_route(upstream, "hand_off: {timeout: 5s}")) as proxy,
    ):
        began = now()
        given = await send(proxy, "Prefer: respond-async, wait=999999")
        assert (given.status, given.get("Preference-Applied")) == (202, "respond-async, wait=5")
        assert now() - began == pytest.approx(5, abs=0.2)
        upstream.usual = answer(ok())


@pytest.mark.parametrize("kind", ["a key of the client", "none"])
async def test_a_key_is_added_before_the_first_byte_where_the_upstream_honours_it(
    kind: str,
) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "hand_off: true", options=HONOURED)) as proxy,
    ):
        upstream.script(answer(response(500)), answer(ok()))
        name = await hand_off(proxy, *([KEY] if kind != "none" else []))
        assert (await ended(proxy, name))["state"] == "delivered"
        first, second = (one.all("Idempotency-Key") for one in upstream.requests)
        assert first == second == [name if kind == "none" else "k-1"]


@pytest.mark.parametrize(
    ("field", "credentials", "asked", "always", "reaches"),
    [
        pytest.param("Authorization: Bearer x", "refuse", 200, 400, "Bearer x", id="refuse"),
        pytest.param("Cookie: a=b", "refuse", 200, 400, "a=b", id="a cookie"),
        pytest.param("X-Api-Key: x", "refuse", 200, 400, "x", id="an API key"),
        pytest.param("Authorization: Bearer x", "store", 202, 202, "Bearer x", id="store"),
        pytest.param("Authorization: Bearer x", "drop", 202, 202, None, id="drop"),
    ],
)
@pytest.mark.parametrize("when", ["asked", "always"])
async def test_credentials(  # noqa: PLR0917 - a table
    when: str, field: str, credentials: str, asked: int, always: int, reaches: str | None
) -> None:
    keys = 'idempotency: {required: true, scope: ["header:X-Tenant"]}'
    route = f"{keys}\nhand_off: {{when: {when}, credentials: {credentials}}}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        given = await send(proxy, ASYNC, KEY, field)
        assert given.status == (asked if when == "asked" else always)
        if given.status == 400:
            assert b"credentials: store" in given.body
            assert upstream.requests == []
            return
        if given.status == 202:
            await ended(proxy, delivery_id(given))
        assert upstream.requests[0].get(field.partition(":")[0]) == reaches


async def test_bodies_that_are_too_large() -> None:
    route = f"{KEYED}hand_off: {{max_body: 1KiB}}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        given = await send(proxy, ASYNC, KEY, body=b"x" * 2000)
        assert (given.status, given.get("Preference-Applied")) == (200, None)
    always = f"{KEYED}hand_off: {{when: always, max_body: 1KiB}}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, always)) as proxy:
        assert (await send(proxy, KEY, body=b"x" * 2000)).status == 413
        assert (await send(proxy, KEY, body=b"x" * 1000)).status == 202
        assert (await send(proxy, method="GET", body=b"")).status == 200, "is served as ever"


FAILED = f"{KEYED}hand_off: {{when: failed}}"
_refused_503 = answer(response(503, b"not now"))


@pytest.mark.parametrize(
    ("behaviour", "options", "headers", "status", "letters"),
    [
        pytest.param(hang_up, HONOURED, (), 202, 0, id="hung up, and the key is honoured"),
        pytest.param(hang, "", (), 504, 1, id="a timeout of a plain POST"),
        pytest.param(_refused_503, "", (), 503, 1, id="a 503 that proves nothing"),
        pytest.param(_refused_503, HONOURED, (), 202, 0, id="a 503, and the key is honoured"),
        pytest.param(_refused_503, REFUSES_503, (), 202, 0, id="a 503 that refuses"),
        pytest.param(answer(response(400, b"no")), HONOURED, (), 400, 0, id="a 400"),
    ],
)
async def test_failures_that_are_handed_off(
    behaviour: object, options: str, headers: tuple[str, ...], status: int, letters: int
) -> None:
    async with (
        ScriptedUpstream(usual=behaviour) as upstream,  # type: ignore[arg-type]  # a behaviour
        running(one_route(upstream, FAILED, options=options)) as proxy,
    ):
        given = await send(proxy, KEY, *headers)
        assert given.status == status
        assert len(await listed(proxy)) == letters
        sent = len(upstream.requests)
        upstream.usual = answer(ok())
        if status == 202:
            assert given.get("Preference-Applied") is None
            found = await ended(proxy, delivery_id(given))
            assert found["state"] == "delivered"
            assert len(upstream.requests) == sent + 1
            assert upstream.requests[-1].body == b"an order"
            again = await send(proxy, KEY)
            assert (again.status, delivery_id(again)) == (202, delivery_id(given))
            assert len(upstream.requests) == sent + 1


async def test_an_upstream_that_refuses_connections_is_a_failure_to_hand_off() -> None:
    async with ScriptedUpstream() as upstream:
        url = upstream.url
    async with running(one_route(url, FAILED)) as proxy:
        given = await send(proxy, KEY)
        assert given.status == 202
        await asyncio.sleep(60)
        found = await state_of(proxy, delivery_id(given))
        assert found["state"] in {"waiting", "retrying"}
        assert found["attempts"] == 0, "an upstream that is down uses up none"
        assert found.get("deferred") in {None, "upstream_down"}


async def test_an_open_breaker_is_handed_off_and_a_throttle_is_not() -> None:
    options = f"{HONOURED}\nbreaker: {{failure_ratio: 0.1, min_requests: 1, open_for: 10s}}"
    async with (
        ScriptedUpstream(usual=hang_up) as upstream,
        running(one_route(upstream, FAILED, options=options)) as proxy,
    ):
        assert (await send(proxy, KEY)).status == 202
        before = len(upstream.requests)
        given = await send(proxy, "Idempotency-Key: k-2")
        assert given.status == 202
        assert len(upstream.requests) == before
        upstream.usual = answer(ok())
        assert (await ended(proxy, delivery_id(given)))["state"] == "delivered"
    throttled = f"{FAILED}\nthrottle: {{rate: 1/m, burst: 1, max_wait: 1s}}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, throttled)) as proxy:
        assert (await send(proxy, KEY)).status == 200
        assert (await send(proxy, "Idempotency-Key: k-2")).status == 429


async def test_a_client_that_left_gets_no_delivery_after_the_failure() -> None:
    async def fail_late(visit: Visit) -> None:
        await visit.read_body()
        await asyncio.sleep(2)
        await visit.send(response(503))

    options = f"{HONOURED}"
    async with (
        ScriptedUpstream(usual=fail_late) as upstream,
        running(one_route(upstream, FAILED, options=options)) as proxy,
    ):
        async with proxy.client() as client:
            asking = asyncio.ensure_future(client.request("POST", "/orders", KEY, body=b"x"))
            await asyncio.sleep(1)
            asking.cancel()
        await asyncio.sleep(30)
        assert (await proxy.metrics()).total("holdfast_deliveries_accepted_total") == 0


async def test_a_drain_hands_off_what_waits_for_its_next_attempt(tmp_path: Path) -> None:
    route = (
        "idempotency: {required: true}\nretry: {attempts: 3, backoff: {base: 60s, max: 60s}}\n"
        "timeout: 5m\nhand_off: {when: failed}"
    )
    async with ScriptedUpstream(usual=answer(response(503))) as upstream:
        config = one_route(upstream, route, top=f"state_dir: {tmp_path}/state", options=HONOURED)
        async with running(config) as proxy:
            asking = asyncio.ensure_future(send(proxy, KEY))
            await asyncio.sleep(1)
        given = await asking
        assert given.status == 202, "not 503: it is sent by the next process"
        upstream.usual = answer(ok())
        async with running(config) as proxy:
            assert (await ended(proxy, delivery_id(given)))["state"] == "delivered"
        assert len(upstream.requests) == 2
