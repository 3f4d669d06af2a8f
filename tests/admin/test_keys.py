"""``/keys/RECORD`` of a real proxy: what is known of a key, and setting it free."""

import json
import logging
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from proxy.policy.idempotency.record import ClaimAnswer, RecordState, Shown
from proxy.stores.memory import MemoryIdempotencyStore
from tests.support import Response, RunningProxy, one_route, running
from tests.support.clock import FakeClock
from tests.support.redis_server import redis_server
from tests.support.stored_keys import DAY, OWNER, RECORD, claim, claims_of, put_key, settle

CONFIG = one_route("http://127.0.0.1:9")
PATH = f"/keys/{RECORD}"
RESULT = b"card 4242, Authorization: Bearer s3cret"
KEPT = [
    pytest.param(RecordState.DONE, RESULT, id="done"),
    pytest.param(RecordState.UNSTORED, b"", id="unstored"),
    pytest.param(RecordState.HELD, b"", id="held"),
]


def content(response: Response) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(response.body)
    return found


def problem(response: Response, status: int) -> dict[str, Any]:
    """What a problem says, its status checked, without what all have."""
    assert response.status == status
    assert response.get("content-type") == "application/problem+json"
    found = content(response)
    assert found.pop("status") == status
    assert found.pop("title")
    found["type"] = found["type"].removeprefix("urn:holdfast:problem:")
    return found


def seconds(date: str) -> float:
    """An RFC 3339 date in UTC, in seconds since the epoch."""
    return datetime.strptime(date, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


class TestShow:
    @pytest.mark.parametrize(("state", "result"), KEPT)
    async def test_what_has_ended(self, state: RecordState, result: bytes) -> None:
        async with running(CONFIG) as proxy:
            await put_key(proxy, state, result)
            response = await proxy.admin("GET", PATH)
        assert response.status == 200
        assert response.get("content-type") == "application/json"
        shown = content(response)
        assert seconds(shown.pop("created")) == pytest.approx(time.time(), abs=5)
        assert seconds(shown.pop("expires")) == pytest.approx(time.time() + DAY, abs=5)
        # All of it: nothing of the request, the response or their credentials.
        assert shown == {
            "record": RECORD,
            "state": state.value,
            "route": "charges",
            "bytes": len(result),
        }

    async def test_what_is_in_flight_has_a_lease(self) -> None:
        async with running(CONFIG) as proxy:
            await put_key(proxy, RecordState.IN_FLIGHT)
            shown = content(await proxy.admin("GET", PATH))
        assert shown["state"] == "in_flight"
        assert 25 < shown["lease_left_seconds"] <= 30
        assert shown["lease_left_seconds"] == round(shown["lease_left_seconds"], 3)
        assert OWNER not in str(shown), "who knows the token could end it"

    async def test_what_its_owner_has_left_alone_is_held(self) -> None:
        clock = FakeClock()
        async with running(CONFIG, clock=clock) as proxy:
            await put_key(proxy, RecordState.IN_FLIGHT)
            clock.advance(31)
            shown = content(await proxy.admin("GET", PATH))
        assert shown["state"] == "held"
        assert "lease_left_seconds" not in shown

    async def test_looking_changes_nothing(self) -> None:
        async with running(CONFIG) as proxy:
            await put_key(proxy, RecordState.HELD)
            first = await proxy.admin("GET", PATH)
            assert (await proxy.admin("GET", PATH)).body == first.body
            assert await claim(proxy) is ClaimAnswer.HELD


class TestRelease:
    @pytest.mark.parametrize(("state", "result"), KEPT)
    async def test_the_key_is_free_again(
        self, state: RecordState, result: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with running(CONFIG) as proxy:
            await put_key(proxy, state, result)
            with caplog.at_level(logging.INFO, "holdfast"):
                response = await proxy.admin("DELETE", PATH)
            assert response.status == 200
            assert content(response) == {
                "result": "released",
                "record": RECORD,
                "was": state.value,
                "route": "charges",
            }
            assert f"the key {RECORD} was released by hand, it was {state.value}" in caplog.text
            assert problem(await proxy.admin("GET", PATH), 404)["type"] == "no_record"
            assert await claim(proxy) is ClaimAnswer.NEW, "the next request with this key runs"

    async def test_not_while_somebody_alive_has_it(self) -> None:
        async with running(CONFIG) as proxy:
            await put_key(proxy, RecordState.IN_FLIGHT)
            response = await proxy.admin("DELETE", PATH)
            shown = problem(response, 409)
            assert await claim(proxy, owner="another") is ClaimAnswer.BUSY
            assert await settle(proxy, RecordState.DONE, RESULT), "its owner goes on"
        assert shown["type"] == "key_in_flight"
        assert shown["record"] == RECORD
        left = shown["lease_left_seconds"]
        assert 25 < left <= 30
        wait = response.get("retry-after")
        assert wait is not None
        assert left <= int(wait) < left + 1
        assert f"ends in {wait} s" in shown["detail"]

    async def test_but_once_its_lease_has_ended(self) -> None:
        clock = FakeClock()
        async with running(CONFIG, clock=clock) as proxy:
            await put_key(proxy, RecordState.IN_FLIGHT)
            clock.advance(31)
            assert content(await proxy.admin("DELETE", PATH))["was"] == "held"
            assert not await settle(proxy, RecordState.DONE, RESULT), "its owner comes too late"
            assert await claim(proxy) is ClaimAnswer.NEW

    async def test_twice(self) -> None:
        async with running(CONFIG) as proxy:
            await put_key(proxy, RecordState.HELD)
            assert (await proxy.admin("DELETE", PATH)).status == 200
            assert problem(await proxy.admin("DELETE", PATH), 404)["type"] == "no_record"

    @pytest.mark.parametrize(
        ("before", "after", "status"),
        [
            pytest.param(RecordState.HELD, RecordState.IN_FLIGHT, 409, id="somebody took it over"),
            pytest.param(RecordState.HELD, None, 404, id="it expired"),
        ],
    )
    async def test_somebody_is_faster(
        self, before: RecordState, after: RecordState | None, status: int
    ) -> None:
        states = [before, after]

        class Overtaken(MemoryIdempotencyStore):
            """A store in which the key changes between one step and the next."""

            async def show(self, name: str) -> Shown | None:
                del name
                state = states.pop(0)
                return None if state is None else Shown(state, "charges", 0, 0, 1, 0)

        async with running(CONFIG) as proxy:
            claims = claims_of(proxy)
            assert isinstance(claims, MemoryIdempotencyStore)
            proxy.app._in_flight_keys.store = Overtaken(
                claims._settings, claims._clock, claims._meter
            )
            assert (await proxy.admin("DELETE", PATH)).status == status


async def refused(proxy: RunningProxy, path: str, status: int) -> dict[str, Any]:
    """What both methods answer, which must be the same."""
    shown = problem(await proxy.admin("GET", path), status)
    assert problem(await proxy.admin("DELETE", path), status) == shown
    return shown


async def test_nothing_is_known() -> None:
    async with running(CONFIG) as proxy:
        shown = await refused(proxy, PATH, 404)
    assert (shown["type"], shown["record"]) == ("no_record", RECORD)


async def test_what_has_expired_is_not_known_any_more() -> None:
    clock = FakeClock()
    async with running(CONFIG, clock=clock) as proxy:
        await put_key(proxy, RecordState.DONE, RESULT)
        clock.advance(DAY + 1)
        await refused(proxy, PATH, 404)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(RECORD[:-1], id="too short"),
        pytest.param(RECORD + "0", id="too long"),
        pytest.param(RECORD[:-1] + "g", id="no hexadecimal digit"),
        pytest.param(RECORD[:-1] + "%EF%BC%91", id="a digit of another script"),
        pytest.param(RECORD + "%0a", id="a line end behind it"),
        pytest.param("8e03978e-40d5-43e8-bc93-6894a57f9324", id="a key instead of its record"),
    ],
)
async def test_no_record_is_called_so(name: str) -> None:
    async with running(CONFIG) as proxy:
        shown = await refused(proxy, f"/keys/{name}", 400)
    assert shown["type"] == "bad_request"
    assert "32 hexadecimal digits" in shown["detail"]
    assert name not in str(shown), "it may be a key"


async def test_a_record_may_be_written_in_capitals() -> None:
    async with running(CONFIG) as proxy:
        await put_key(proxy, RecordState.HELD)
        assert content(await proxy.admin("GET", PATH.upper().replace("KEYS", "keys"))) == content(
            await proxy.admin("GET", PATH)
        )
        response = await proxy.admin("DELETE", PATH.upper().replace("KEYS", "keys"))
        assert content(response)["record"] == RECORD


async def test_the_store_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    async with redis_server() as redis:
        address = f"127.0.0.1:{redis.port}"
        store = f"store: {{url: 'redis://{address}', timeout: 2s}}"
        async with running(f"{store}\n{CONFIG}") as proxy:
            await put_key(proxy, RecordState.HELD)
            assert content(await proxy.admin("GET", PATH))["state"] == "held"
            await redis.stop()
            shown = await refused(proxy, PATH, 503)
            assert (await proxy.admin("GET", PATH)).get("retry-after") == "1"
    assert (shown["type"], shown["record"]) == ("store", RECORD)
    assert address not in str(shown)
    assert f"the store does not answer about the key {RECORD} (" in caplog.text


async def test_the_same_with_a_store_that_is_shared() -> None:
    async with redis_server() as redis:
        store = f"store: {{url: 'redis://127.0.0.1:{redis.port}', timeout: 2s}}"
        async with running(f"{store}\n{CONFIG}") as proxy:
            await put_key(proxy, RecordState.IN_FLIGHT)
            assert problem(await proxy.admin("DELETE", PATH), 409)["type"] == "key_in_flight"
            assert await settle(proxy, RecordState.UNSTORED)
            assert content(await proxy.admin("DELETE", PATH))["was"] == "unstored"
            assert await claim(proxy) is ClaimAnswer.NEW
