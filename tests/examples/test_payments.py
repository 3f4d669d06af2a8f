"""Payments with keys that the upstream honours, too."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.config import load
from proxy.policy.settings.store import SqliteSettings
from tests.examples.example import Example
from tests.support import (
    Behaviour,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    hang_up,
    response,
)
from tests.support.dead_letters import listed
from tests.support.keys import KEY, is_replayed, post

EXAMPLE = Example("payments.yaml")
CHARGES = "/v1/charges"


class PaymentsApi:
    """Makes each payment once, whatever happens to its answer."""

    def __init__(self, *troubles: Behaviour) -> None:
        self.made: dict[str, int] = {}
        """Payments by key."""
        self._troubles = list(troubles)

    async def __call__(self, visit: Visit) -> None:
        await visit.read_body()
        key = visit.request.get("Idempotency-Key") or ""
        number = self.made.setdefault(key, len(self.made) + 1)
        if self._troubles:
            await self._troubles.pop(0)(visit)
        else:
            await visit.send(response(201, b'{"payment": %d}' % number))


@asynccontextmanager
async def stage(
    *troubles: Behaviour, keys: Path = Path("keys.db")
) -> AsyncIterator[tuple[PaymentsApi, ScriptedUpstream, RunningProxy]]:
    """The file, with its keys and letters in a folder of the test's own."""
    api = PaymentsApi(*troubles)
    async with ScriptedUpstream(api) as upstream:
        overlay = f"""
            store: {{url: "sqlite:{keys}", timeout: 5s}}
            state_dir: letters
            upstreams: {{payments: {{urls: [{upstream.url}]}}}}
        """
        async with EXAMPLE.running(overlay) as proxy:
            yield api, upstream, proxy


@pytest.mark.parametrize("trouble", [hang_up, answer(response(503)), answer(response(502))])
async def test_a_payment_that_may_have_run_is_sent_again_with_its_key(trouble: Behaviour) -> None:
    async with stage(trouble) as (api, upstream, proxy):
        got = await post(proxy, target=CHARGES)
        assert (got.status, got.body, got.get("Holdfast-Attempts")) == (201, b'{"payment": 1}', "2")
        assert {one.get("Idempotency-Key") for one in upstream.requests} == {KEY.partition(": ")[2]}
        assert len(api.made) == 1


async def test_a_duplicate_gets_the_first_answer_from_here() -> None:
    async with stage() as (_, upstream, proxy):
        first, second = [await post(proxy, target=CHARGES) for _ in range(2)]
        assert (second.status, second.body) == (first.status, first.body)
        assert is_replayed(second)
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("path", [CHARGES, "/v1/refunds", "/v1/payouts"])
async def test_a_payment_without_a_key_is_not_made(path: str) -> None:
    async with stage() as (api, _, proxy), proxy.client() as client:
        got = await client.request("POST", path, body=b"pay")
        assert (got.status, got.reason_word) == (400, "key_missing")
        assert api.made == {}


async def test_nobody_pays_for_another_order_with_the_same_key() -> None:
    async with stage() as (api, _, proxy):
        await post(proxy, target=CHARGES, body=b"one")
        assert (await post(proxy, target=CHARGES, body=b"two")).status == 422
        assert len(api.made) == 1


async def test_where_nobody_knows_the_key_is_held_until_somebody_decides() -> None:
    async with stage(*[hang_up] * 4) as (_, upstream, proxy):
        assert (await post(proxy, target=CHARGES)).status == 502
        held = await post(proxy, target=CHARGES)
        assert (held.status, held.reason_word) == (409, "outcome_unknown")
        assert len(upstream.requests) == 4
        record = held.problem["record"]
        assert (await proxy.admin("DELETE", f"/keys/{record}")).status == 200
        assert (await post(proxy, target=CHARGES)).status == 201


@pytest.mark.parametrize(
    "trouble", [hang_up, answer(response(503)), answer(response(500)), answer(response(507))]
)
async def test_a_person_hears_of_a_held_key_before_the_client_asks_again(
    trouble: Behaviour,
) -> None:
    async with stage(*[trouble] * 4) as (_, _, proxy):
        failed = await post(proxy, target=CHARGES)
        [letter] = await listed(proxy)
        assert failed.get("Holdfast-Dead-Letter") == letter["id"]
        assert letter["may_have_run"]
        held = await post(proxy, target=CHARGES)
        assert (held.status, held.reason_word) == (409, "outcome_unknown")


async def test_reading_needs_no_key_and_is_retried() -> None:
    async with stage(hang_up) as (_, upstream, proxy):
        assert (await proxy.get("/v1/charges/7")).status == 201
        assert len(upstream.requests) == 2


async def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    keys = tmp_path / "keys.db"
    async with stage(keys=keys) as (_, _, proxy):
        first = await post(proxy, target=CHARGES)
    async with stage(keys=keys) as (_, upstream, proxy):
        second = await post(proxy, target=CHARGES)
        assert is_replayed(second)
        assert second.body == first.body
        assert not upstream.requests


def test_its_keys_are_in_a_file_beside_it() -> None:
    [path] = EXAMPLE.paths
    assert load([path], {}).settings.store == SqliteSettings(str(path.with_name("keys.db")))
