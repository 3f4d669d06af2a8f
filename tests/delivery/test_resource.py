"""The status resource: who may see what of a delivery, and for how long."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.support import (
    RawClient,
    Response,
    RunningProxy,
    ScriptedUpstream,
    answer,
    hang,
    ok,
    one_route,
    response,
    running,
    virtual_time,
)
from tests.support.delivery_admin import retry
from tests.support.handed_off import (
    ASYNC,
    HONOURED,
    KEY,
    STATUS,
    delivery_id,
    ended,
    hand_off,
    send,
)

pytestmark = [virtual_time, pytest.mark.usefixtures("files_at_once")]

SCOPED = 'idempotency: {scope: ["header:X-Tenant"]}\n'
ROUTE = f"{SCOPED}dead_letter: true\nhand_off: "


async def ask(
    proxy: RunningProxy, target: str, *headers: str, method: str = "GET", body: bytes = b""
) -> Response:
    async with RawClient(proxy.port) as client:
        return await client.request(method, f"{STATUS}/{target}", *headers, body=body)


async def test_the_answer_is_for_its_caller_alone() -> None:
    made = answer(response(201, b'{"id": 7}', "X-Colour: red", "Set-Cookie: secret=1"))
    async with (
        ScriptedUpstream(usual=made) as upstream,
        running(one_route(upstream, f"{ROUTE}true")) as proxy,
    ):
        name = await hand_off(proxy, KEY, "X-Tenant: a")
        await ended(proxy, name)
        given = await ask(proxy, f"{name}/response", "X-Tenant: a")
        assert (given.status, given.body, given.get("X-Colour")) == (201, b'{"id": 7}', "red")
        assert given.get("Set-Cookie") is None
        wrong = [
            await ask(proxy, f"{name}/response", "X-Tenant: b"),
            await ask(proxy, f"{name}/response"),
            await ask(proxy, f"{name[:-1]}x/response", "X-Tenant: a"),
            await ask(proxy, "d_AAAAAAAAAAAAAAAAAAAAAA"),
            await ask(proxy, "nonsense"),
            await ask(proxy, f"{name}/other", "X-Tenant: a"),
            await ask(proxy, f"{name}/retry", "X-Tenant: b", method="POST"),
        ]
        assert {one.status for one in wrong} == {404}
        assert len({one.body for one in wrong}) == 1, "nothing can be learned by trying"
        shown = await ask(proxy, name)
        assert set(json.loads(shown.body)) == {
            *("delivery", "state", "accepted", "attempts", "ended", "response"),
        }
        assert len(upstream.requests) == 1, "the path wins over routes"


async def test_before_its_time_and_after_it() -> None:
    async with (
        ScriptedUpstream(usual=hang) as upstream,
        running(one_route(upstream, f"{ROUTE}{{ttl: 1h}}", options=HONOURED)) as proxy,
    ):
        name = await hand_off(proxy)
        assert (await ask(proxy, f"{name}/response")).status == 404
        shown = await ask(proxy, name)
        assert int(shown.get("Retry-After") or 0) >= 1
        upstream.usual = answer(ok(b"done"))
        await ended(proxy, name, within=200)
        assert (await ask(proxy, name)).get("Retry-After") is None
        assert (await ask(proxy, f"{name}/response")).body == b"done"
        await asyncio.sleep(3700)
        assert (await ask(proxy, name)).status == 410
        assert (await ask(proxy, f"{name}/response")).status == 410


async def test_it_is_as_before_after_a_restart(tmp_path: Path) -> None:
    top = f"state_dir: {tmp_path}/state"
    async with ScriptedUpstream(usual=answer(ok(b"done"))) as upstream:
        config = one_route(upstream, f"{ROUTE}true", top=top)
        async with running(config) as proxy:
            name = await hand_off(proxy)
            before = await ended(proxy, name)
        async with running(config) as proxy:
            assert await ended(proxy, name) == before
            assert (await ask(proxy, f"{name}/response")).body == b"done"


async def test_an_answer_that_is_too_large_leaves_its_status_and_headers() -> None:
    async with (
        ScriptedUpstream(usual=answer(ok(b"x" * 2000, "X-Colour: red"))) as upstream,
        running(one_route(upstream, f"{ROUTE}{{keep_response: 1KiB}}")) as proxy,
    ):
        name = await hand_off(proxy)
        await ended(proxy, name)
        given = await ask(proxy, f"{name}/response")
        assert (given.status, given.body, given.get("X-Colour")) == (200, b"", "red")
        waited = await send(proxy, "Prefer: respond-async, wait=5")
        assert waited.status == 202, "what is not kept cannot be given"


async def test_an_answer_of_a_final_failure_can_be_asked_for() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(422, b"wrong"))) as upstream,
        running(one_route(upstream, f"{ROUTE}true")) as proxy,
    ):
        name = await hand_off(proxy)
        found = await ended(proxy, name)
        assert (found["state"], found["response"]) == ("failed", {"status": 422})
        assert (await ask(proxy, f"{name}/response")).body == b"wrong"


@pytest.mark.parametrize(
    ("behaviour", "options", "status", "forced"),
    [
        pytest.param(answer(response(404)), "", 202, 200, id="it did not run"),
        pytest.param(hang, "", 409, 200, id="it may have run"),
        pytest.param(answer(ok()), "", 409, 409, id="it was delivered"),
    ],
)
async def test_a_retry_by_the_caller(
    behaviour: object, options: str, status: int, forced: int
) -> None:
    async with (
        ScriptedUpstream(usual=behaviour) as upstream,  # type: ignore[arg-type]  # a behaviour
        running(one_route(upstream, f"{ROUTE}{{timeout: 2s}}", options=options)) as proxy,
    ):
        name = await hand_off(proxy, KEY, "X-Tenant: a")
        first = await ended(proxy, name)
        upstream.usual = answer(ok())
        given = await ask(proxy, f"{name}/retry", "X-Tenant: a", method="POST")
        assert given.status == status
        sent = len(upstream.requests)
        if status == 409:
            kind = "may_have_run" if first["state"] == "failed" else "over"
            assert json.loads(given.body)["type"].endswith(f"delivery_{kind}")
            await asyncio.sleep(100)
            assert len(upstream.requests) == sent
            assert (await retry(proxy, name, force=True)).status == forced
        if first["state"] == "failed":
            assert (await ended(proxy, name))["state"] == "delivered"


async def test_methods() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"{ROUTE}true")) as proxy,
    ):
        name = await hand_off(proxy)
        await ended(proxy, name)
        assert (await ask(proxy, name, method="POST")).status == 405
        assert (await ask(proxy, name, method="DELETE")).status == 405
        assert (await ask(proxy, f"{name}/retry")).status == 405
        assert (await ask(proxy, name, method="HEAD")).status == 200


async def test_the_path_can_be_another_or_none() -> None:
    async with ScriptedUpstream() as upstream:
        other = one_route(upstream, f"{ROUTE}true", top="deliveries: {status: /jobs}")
        async with running(other) as proxy:
            given = await send(proxy, ASYNC)
            assert given.get("Location") == f"/jobs/{delivery_id(given)}"
            assert (await proxy.get(given.get("Location") or "")).status == 200
        none = one_route(upstream, f"{ROUTE}true", top="deliveries: {status: false}")
        async with running(none) as proxy:
            given = await send(proxy, ASYNC)
            assert (given.status, given.get("Location")) == (202, None)
            assert delivery_id(given)


async def test_a_thousand_who_poll_do_not_keep_others_out() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"{ROUTE}true")) as proxy,
    ):
        name = await hand_off(proxy)
        await ended(proxy, name)
        answers = await asyncio.gather(*(ask(proxy, name) for _ in range(1000)))
        assert {one.status for one in answers} == {200}
        assert (await send(proxy)).status == 200
