"""Keys of requests that are handed off: one delivery each, whatever the key's own record says."""

import asyncio
from pathlib import Path

import pytest

from tests.support import (
    REFUSES_503,
    ScriptedUpstream,
    Visit,
    answer,
    hang_up,
    ok,
    one_route,
    response,
    running,
)
from tests.support.dead_letters import listed, replayed
from tests.support.delivery_admin import retry
from tests.support.handed_off import (
    ASYNC,
    HONOURED,
    KEY,
    delivery_id,
    ended,
    hand_off,
    send,
    state_of,
)

KEYED = "idempotency: {required: true}\ndead_letter: true\ntimeout: 5s\n"
HELD = "idempotency: {required: true, on_ambiguous: hold}\ndead_letter: true\n"
ROUTE = f"{KEYED}hand_off: true"
STORES = pytest.mark.parametrize("store", ["memory", "sqlite"])
virtual = [pytest.mark.virtual_time, pytest.mark.usefixtures("files_at_once")]


def config(
    upstream: ScriptedUpstream, folder: Path, store: str, route: str = ROUTE, options: str = ""
) -> str:
    url = "memory" if store == "memory" else f"sqlite:{folder}/keys.db"
    return one_route(
        upstream, route, top=f"state_dir: {folder}/state\nstore: '{url}'", options=options
    )


@STORES
async def test_fifty_at_once_are_one_delivery_and_get_the_same_202(
    store: str, tmp_path: Path
) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(config(upstream, tmp_path, store)) as proxy,
    ):
        given = await asyncio.gather(*(send(proxy, ASYNC, KEY) for _ in range(50)))
        assert {one.status for one in given} == {202}
        (name,) = {delivery_id(one) for one in given}
        assert sum(one.get("Idempotent-Replayed") is None for one in given) == 1
        assert (await ended(proxy, name))["state"] == "delivered"
        again = await send(proxy, ASYNC, KEY)
        assert (again.status, delivery_id(again)) == (202, name)
        assert again.get("Idempotent-Replayed") == "true"
        without = await send(proxy, KEY)
        assert (without.status, delivery_id(without)) == (202, name), "the key's result"
        other = await send(proxy, ASYNC, KEY, body=b"another order")
        assert other.status == 422
        assert len(upstream.requests) == 1


@STORES
async def test_after_a_restart_the_key_is_known(store: str, tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        async with running(config(upstream, tmp_path, store)) as proxy:
            name = await hand_off(proxy, KEY)
            assert (await ended(proxy, name))["state"] == "delivered"
        async with running(config(upstream, tmp_path, store)) as proxy:
            for headers in ((ASYNC, KEY), (KEY,)):
                again = await send(proxy, *headers)
                assert (again.status, delivery_id(again)) == (202, name), "it is not run again"
            assert (await send(proxy, KEY, body=b"another")).status == 422
            assert (await send(proxy, ASYNC, KEY, body=b"another")).status == 422
        assert len(upstream.requests) == 1


@STORES
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_failure_that_did_not_run_frees_its_key(
    store: str, tmp_path: Path, *, is_restarted: bool
) -> None:
    async with ScriptedUpstream(usual=answer(response(404))) as upstream:
        async with running(config(upstream, tmp_path, store)) as proxy:
            first = await hand_off(proxy, KEY)
            assert (await ended(proxy, first))["may_have_run"] == "no"
            if not is_restarted:
                upstream.usual = answer(ok())
                second = await hand_off(proxy, KEY, body=b"a corrected order")
                assert second != first
                assert (await ended(proxy, second))["state"] == "delivered"
                return
        upstream.usual = answer(ok())
        async with running(config(upstream, tmp_path, store)) as proxy:
            second = await hand_off(proxy, KEY)
            assert second != first
            assert (await ended(proxy, second))["state"] == "delivered"


@STORES
@pytest.mark.parametrize("headers", [(ASYNC, KEY), (KEY,)], ids=["asked", "plain"])
async def test_what_may_have_run_is_held_or_released(
    store: str, headers: tuple[str, ...], tmp_path: Path
) -> None:
    held = f"{HELD}hand_off: true"
    async with ScriptedUpstream(usual=hang_up) as upstream:
        async with running(config(upstream, tmp_path, store, held)) as proxy:
            name = await hand_off(proxy, KEY)
            assert (await ended(proxy, name))["may_have_run"] == "maybe"
            assert (await send(proxy, *headers)).status == 409
        upstream.usual = answer(ok())
        async with running(config(upstream, tmp_path, store, held)) as proxy:
            assert (await send(proxy, *headers)).status == 409, "the file remembers"
            assert len(upstream.requests) == 1
        async with running(config(upstream, tmp_path, store)) as proxy:
            given = await send(proxy, *headers)
            assert given.status == (202 if ASYNC in headers else 200), "released"
            if ASYNC in headers:
                await ended(proxy, delivery_id(given))
        assert len(upstream.requests) == 2


@STORES
async def test_a_retry_or_replay_finds_that_the_key_has_run_since(
    store: str, tmp_path: Path
) -> None:
    async with (
        ScriptedUpstream(usual=answer(response(404))) as upstream,
        running(config(upstream, tmp_path, store)) as proxy,
    ):
        name = await hand_off(proxy, KEY)
        assert (await ended(proxy, name))["state"] == "failed"
        upstream.usual = answer(ok())
        assert (await send(proxy, KEY)).status == 200, "the key was free"
        before = len(upstream.requests)
        assert (await retry(proxy, name)).status == 409
        (letter,) = await listed(proxy)
        assert (await replayed(proxy, letter["id"]))["result"] == "already_done"
        assert await listed(proxy) == []
        assert len(upstream.requests) == before


@STORES
async def test_a_retry_begins_anew_under_its_key(store: str, tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(usual=answer(response(404))) as upstream,
        running(config(upstream, tmp_path, store)) as proxy,
    ):
        name = await hand_off(proxy, KEY)
        assert (await ended(proxy, name))["state"] == "failed"
        upstream.usual = answer(ok())
        assert (await retry(proxy, name)).status == 200
        assert (await ended(proxy, name))["state"] == "delivered"
        again = await send(proxy, KEY)
        assert (again.status, delivery_id(again)) == (202, name)
        assert len(upstream.requests) == 2


async def test_other_callers_have_keys_of_their_own(tmp_path: Path) -> None:
    keys = 'idempotency: {required: true, scope: ["header:X-Tenant"]}\n'
    async with (
        ScriptedUpstream() as upstream,
        running(config(upstream, tmp_path, "memory", f"{keys}hand_off: true")) as proxy,
    ):
        one = await hand_off(proxy, KEY, "X-Tenant: a")
        other = await hand_off(proxy, KEY, "X-Tenant: b")
        assert one != other
        await ended(proxy, one)
        await ended(proxy, other)
        assert len(upstream.requests) == 2


class TestInTime:
    """What takes long, in virtual time."""

    pytestmark = virtual

    async def test_a_duplicate_of_one_that_is_retried_gets_its_202(self) -> None:
        options = f"{HONOURED}\n{REFUSES_503}"
        async with (
            ScriptedUpstream(usual=answer(response(503))) as upstream,
            running(one_route(upstream, ROUTE, options=options)) as proxy,
        ):
            name = await hand_off(proxy, KEY)
            await asyncio.sleep(10)
            again = await send(proxy, ASYNC, KEY)
            assert (again.status, delivery_id(again)) == (202, name)
            assert (await state_of(proxy, name))["state"] == "retrying"
            upstream.usual = answer(ok())
            found = await ended(proxy, name, within=600)
            assert found["state"] == "delivered"

    async def test_an_async_duplicate_joins_a_synchronous_first_one(self) -> None:
        async with (
            ScriptedUpstream() as upstream,
            running(one_route(upstream, ROUTE)) as proxy,
        ):
            upstream.script(_slow)
            first = asyncio.ensure_future(send(proxy, KEY))
            await asyncio.sleep(1)
            second = await send(proxy, ASYNC, KEY)
            assert ((await first).status, second.status) == (200, 200)
            assert len(upstream.requests) == 1


async def _slow(visit: Visit) -> None:
    await visit.read_body()
    await asyncio.sleep(3)
    await visit.send(ok())
