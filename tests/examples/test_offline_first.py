"""A site whose link to the API fails: what comes meanwhile is kept, and delivered later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.examples.example import Example
from tests.support import (
    Behaviour,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    hang_up,
    reset,
    response,
)
from tests.support.dead_letters import listed
from tests.support.handed_off import ASYNC, delivery_id, ended, send, state_of
from tests.support.keys import is_replayed

EXAMPLE = Example("offline-first.yaml")
READINGS, SETTINGS = "/v1/readings", "/v1/settings/7"
DEVICE = "X-Device: pump-7"
KEY = "Idempotency-Key: reading-1"


class Cloud:
    """Takes each reading once by its key; while the link is down it takes nothing."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}
        self.trouble: Behaviour | None = None

    async def __call__(self, visit: Visit) -> None:
        if self.trouble is not None:
            await self.trouble(visit)
            return
        await visit.read_body()
        key = visit.request.get("Idempotency-Key") or visit.request.target
        number = self.taken.setdefault(key, len(self.taken) + 1)
        await visit.send(response(201, b'{"reading": %d}' % number))


@asynccontextmanager
async def site() -> AsyncIterator[tuple[Cloud, ScriptedUpstream, RunningProxy]]:
    """The file, with waits of milliseconds."""
    cloud = Cloud()
    async with ScriptedUpstream(cloud) as upstream:
        overlay = f"""
            state_dir: kept
            store: {{url: "sqlite:keys.db", timeout: 5s}}
            upstreams: {{cloud: {{urls: [{upstream.url}]}}}}
            defaults: {{retry: {{backoff: {{base: 1ms}}}},
                        hand_off: {{retry: {{backoff: {{base: 20ms}}}}}}}}
        """
        async with EXAMPLE.running(overlay) as proxy:
            yield cloud, upstream, proxy


async def test_with_a_link_all_is_as_ever() -> None:
    async with site() as (cloud, _, proxy):
        got = await send(proxy, DEVICE, KEY, target=READINGS, body=b"21 C")
        assert (got.status, got.body) == (201, b'{"reading": 1}')
        assert len(cloud.taken) == 1


@pytest.mark.parametrize("trouble", [hang_up, answer(response(503)), answer(response(502))])
async def test_a_client_that_waits_in_vain_gets_202_and_its_reading_arrives_later(
    trouble: Behaviour,
) -> None:
    async with site() as (cloud, _, proxy):
        cloud.trouble = trouble
        got = await send(proxy, DEVICE, KEY, target=READINGS, body=b"21 C")
        assert (got.status, got.get("Preference-Applied")) == (202, None)
        name = delivery_id(got)
        assert got.get("Location") == f"/.holdfast/deliveries/{name}"
        again = await send(proxy, DEVICE, KEY, target=READINGS, body=b"21 C")
        assert (delivery_id(again), is_replayed(again)) == (name, True)
        cloud.trouble = None
        assert (await ended(proxy, name))["state"] == "delivered"
        assert len(cloud.taken) == 1
        assert await listed(proxy) == []


async def test_a_client_that_asks_does_not_wait() -> None:
    async with site() as (cloud, _, proxy):
        cloud.trouble = reset
        got = await send(proxy, DEVICE, KEY, ASYNC, target=READINGS, body=b"21 C")
        assert (got.status, got.get("Preference-Applied")) == (202, "respond-async")
        name = delivery_id(got)
        assert (await state_of(proxy, name))["state"] in {"waiting", "sending", "retrying"}
        cloud.trouble = None
        assert (await ended(proxy, name))["state"] == "delivered"
        async with proxy.client() as client:
            path = f"/.holdfast/deliveries/{name}/response"
            assert (await client.get(path, DEVICE)).body == b'{"reading": 1}'
            assert (await client.get(path, "X-Device: other")).status == 404


async def test_settings_need_no_key() -> None:
    async with site() as (cloud, upstream, proxy):
        cloud.trouble = hang_up
        got = await send(proxy, method="PUT", target=SETTINGS, body=b"on")
        name = delivery_id(got)
        cloud.trouble = None
        assert (await ended(proxy, name))["state"] == "delivered"
        assert upstream.requests[-1].target == SETTINGS


async def test_a_reading_without_a_key_and_one_that_is_refused_are_not_kept() -> None:
    async with site() as (cloud, _, proxy):
        got = await send(proxy, DEVICE, target=READINGS)
        assert (got.status, got.reason_word) == (400, "key_missing")
        cloud.trouble = answer(response(422))
        assert (await send(proxy, DEVICE, KEY, target=READINGS)).status == 422


async def test_credentials_of_a_client_are_not_stored() -> None:
    async with site() as (cloud, _, proxy):
        cloud.trouble = hang_up
        fields = (DEVICE, KEY, ASYNC, "Authorization: Bearer own")
        got = await send(proxy, *fields, target=READINGS)
        assert got.status == 502
        assert got.get("Holdfast-Delivery") is None


async def test_reading_is_as_ever() -> None:
    async with site() as (cloud, _, proxy):
        cloud.trouble = answer(response(503))
        async with proxy.client() as client:
            assert (await client.get(READINGS, ASYNC)).status == 503
