"""D4: retries and idempotency keys of a bookmark API."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import yaml

from proxy.policy.delivery.schedule import planned_tries
from proxy.policy.settings import DeadLetterSettings, IdempotencySettings, Outcomes
from tests.designs.design import Design, verdicts, waited
from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    answer,
    eventually,
    hang_up,
    response,
    running,
)
from tests.support.clock import FakeClock
from tests.support.dead_letters import listed, obstacle, replay, replayed, shown
from tests.support.handed_off import ASYNC, STATUS, delivery_id, ended, state_of
from tests.support.keys import KEY, Gate, is_replayed, new_key, post
from tests.support.records import last_logged

DESIGN = Design("bookmark-api.yaml")

BOOKMARKS = "/v1/bookmarks"
HOURS = 3600.0
DAY = 24 * HOURS


@asynccontextmanager
async def stage(
    clock: FakeClock | None = None, *, honours_key: bool = True, backoff: str = "1ms"
) -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    """The file, in front of a scripted API and with waits of milliseconds.

    *backoff* is the first wait of a delivery. The routes are those of the file: a list replaces
    another, so the whole one is laid over it.
    """
    async with ScriptedUpstream() as api:
        own = yaml.safe_load(DESIGN.path.read_text())
        create = next(route for route in own["routes"] if route["name"] == "create")
        create["hand_off"]["retry"]["backoff"]["base"] = backoff
        knows = own["upstreams"]["bookmarks"]["honours_key"] if honours_key else False
        upstream = {"urls": [api.url], "honours_key": knows}
        overlay = yaml.safe_dump(
            {
                "state_dir": "./state",
                "upstreams": {"bookmarks": upstream},
                "defaults": {"retry": {"backoff": {"base": "1ms"}}},
                "routes": own["routes"],
            }
        )
        async with running(overlay, upon=[DESIGN.path], clock=clock) as proxy:
            yield api, proxy


def created(number: int) -> bytes:
    return response(201, b'{"id": %d}' % number, "Content-Type: application/json")


# What the file says.


def test_a_bookmark_is_made_once() -> None:
    assert DESIGN.route("create").idempotency == IdempotencySettings(
        required=True, ttl=72 * HOURS, mismatch_status=409
    )


def test_other_requests_need_no_key() -> None:
    assert DESIGN.route("rest").idempotency is None


@pytest.mark.parametrize("route", ["create", "rest"])
def test_what_is_retried(route: str) -> None:
    assert DESIGN.retry(route).on == Outcomes(
        frozenset({"connect", "reset", "timeout"}),
        frozenset({408, 429, *range(500, 600)} - {501, 505}),
    )


@pytest.mark.parametrize("route", ["create", "rest"])
def test_waits_double_from_a_second_and_vary_by_a_tenth(route: str) -> None:
    assert DESIGN.retry(route).attempts == 3
    assert DESIGN.waits(route, 2) == pytest.approx([1.0, 2.0])
    assert DESIGN.wait(route, 1, roll=0) == pytest.approx(0.9)
    assert DESIGN.wait(route, 2, roll=1 - 1e-9) == pytest.approx(2.2)


# Keys.


async def test_the_first_runs_and_is_recorded() -> None:
    async with stage() as (api, proxy):
        api.script(answer(created(1)))
        first = await post(proxy, target=BOOKMARKS)
        second = await post(proxy, target=BOOKMARKS)
        assert (first.status, first.body) == (second.status, second.body) == (201, b'{"id": 1}')
        assert [is_replayed(first), is_replayed(second)] == [False, True]
        assert len(api.requests) == 1


async def test_without_a_key_nothing_runs() -> None:
    async with stage() as (api, proxy), proxy.client() as client:
        got = await client.request("POST", BOOKMARKS, body=b"a")
        assert (got.status, got.reason_word) == (400, "key_missing")
        assert not api.requests


async def test_elsewhere_none_is_needed() -> None:
    async with stage() as (api, proxy):
        assert (await proxy.get("/v1/bookmarks/1")).status == 200
        assert len(api.requests) == 1


async def test_the_same_key_with_another_body_is_a_conflict() -> None:
    async with stage() as (api, proxy):
        await post(proxy, target=BOOKMARKS, body=b"one")
        got = await post(proxy, target=BOOKMARKS, body=b"other")
        assert (got.status, got.reason_word) == (409, "key_mismatch")
        assert len(api.requests) == 1


async def test_after_72_hours_it_is_as_if_it_were_the_first() -> None:
    clock = FakeClock()
    async with stage(clock) as (api, proxy):
        api.script(answer(created(1)), answer(created(2)))
        await post(proxy, target=BOOKMARKS)
        clock.advance(72 * HOURS - 1)
        assert (await post(proxy, target=BOOKMARKS)).body == b'{"id": 1}'
        clock.advance(1)
        assert (await post(proxy, target=BOOKMARKS)).body == b'{"id": 2}'


async def test_a_double_tap_is_one_call_and_two_equal_answers() -> None:
    gate = Gate(created(1))
    async with stage() as (api, proxy):
        api.script(gate.behaviour)
        taps = [asyncio.create_task(post(proxy, target=BOOKMARKS)) for _ in range(2)]
        await eventually(lambda: proxy.waiting_for_keys == 1)
        gate.open()
        one, other = await asyncio.gather(*taps)
        assert (one.status, one.body) == (other.status, other.body) == (201, b'{"id": 1}')
        assert len(api.requests) == 1


async def test_a_client_that_was_offline_sends_again_with_the_same_key() -> None:
    async with stage() as (api, proxy):
        api.script(answer(created(1)))
        async with proxy.client() as client:
            await client.send(
                f"POST {BOOKMARKS} HTTP/1.1\r\nHost: a\r\n{KEY}\r\n".encode()
                + b"Content-Length: 3\r\n\r\npay"
            )
            await eventually(lambda: api.requests)
        got = await post(proxy, target=BOOKMARKS)
        assert (got.status, got.body) == (201, b'{"id": 1}')
        assert len(api.requests) == 1


# Retries.


async def test_what_was_refused_is_retried_with_the_same_key() -> None:
    async with stage() as (api, proxy):
        refused = answer(response(429, b"", "Retry-After: 0"))
        api.script(refused, answer(response(503)), answer(created(1)))
        got = await post(proxy, target=BOOKMARKS)
        assert (got.status, got.get("Holdfast-Attempts")) == (201, "3")
        assert {one.get("Idempotency-Key") for one in api.requests} == {KEY.partition(": ")[2]}
        assert len(waited(await last_logged(proxy))) == 2


@pytest.mark.parametrize("status", [400, 404, 409, 422])
async def test_other_refusals_are_final(status: int) -> None:
    async with stage() as (api, proxy):
        api.script(answer(response(status)))
        assert (await post(proxy, new_key(), target=BOOKMARKS)).status == status
        assert len(api.requests) == 1


@pytest.mark.parametrize("failure", [hang_up, answer(response(502)), answer(response(408))])
async def test_a_read_is_retried_after_every_failure_that_is_listed(failure: object) -> None:
    async with stage() as (api, proxy):
        api.script(failure, failure)  # type: ignore[arg-type]  # behaviours
        assert (await proxy.get("/v1/bookmarks")).status == 200
        assert verdicts(await last_logged(proxy)) == ["retried", "retried", "recovered"]


async def test_what_may_have_run_is_sent_again_under_its_key() -> None:
    async with stage() as (api, proxy):
        api.script(hang_up, answer(created(1)))
        assert (await post(proxy, target=BOOKMARKS)).status == 201
        assert {one.get("Idempotency-Key") for one in api.requests} == {KEY.partition(": ")[2]}


async def test_what_may_have_run_is_not_repeated_where_the_api_knows_no_keys() -> None:
    async with stage(honours_key=False) as (api, proxy):
        api.script(hang_up, answer(created(1)))
        assert (await post(proxy, target=BOOKMARKS)).status == 502
        assert len(api.requests) == 1
        assert (await post(proxy, target=BOOKMARKS)).body == b'{"id": 1}'


# What failed for good.

USER = "Authorization: Bearer ada"
PAYLOAD = b'{"url": "https://example.com"}'


def test_a_bookmark_that_could_not_be_made_is_kept() -> None:
    route = DESIGN.route("create")
    assert route.retry is not None
    assert route.dead_letter == DeadLetterSettings(on=route.retry.on, ttl=30 * DAY)


async def test_a_dead_letter_has_the_error_the_payload_and_whether_it_may_be_sent_again() -> None:
    async with stage() as (api, proxy):
        api.usual = answer(response(503))
        given = await post(proxy, USER, body=PAYLOAD, target=BOOKMARKS)
        assert (given.status, len(api.requests)) == (503, 3), "retried first"
        (letter,) = await listed(proxy)
        assert given.get("Holdfast-Dead-Letter") == letter["id"]
        assert (letter["error"], letter["category"], letter["replayable"]) == (
            "503",
            "transient",
            True,
        )
        assert (letter["attempts_used"], letter["attempts_allowed"]) == (3, 3)
        assert (await shown(proxy, letter["id"]))["body"] == PAYLOAD.decode()


async def test_what_is_not_handed_off_is_not_resent_by_itself() -> None:
    """Its credentials are not stored."""
    async with stage() as (api, proxy):
        api.usual = answer(response(503))
        await post(proxy, USER, target=BOOKMARKS)
        calls = len(api.requests)
        api.usual = answer(created(1))
        await asyncio.sleep(0.2)
        assert len(api.requests) == calls
        assert len(await listed(proxy)) == 1


async def test_a_person_reprocesses_one_and_the_client_finds_its_result() -> None:
    async with stage() as (api, proxy):
        api.usual = answer(response(503))
        first = await post(proxy, USER, body=PAYLOAD, target=BOOKMARKS)
        calls = len(api.requests)
        api.usual = answer(created(7))
        letter = first.get("Holdfast-Dead-Letter") or ""
        done = await replayed(proxy, letter, ("Authorization", "Bearer ada"))
        assert (done["result"], done["status"]) == ("succeeded", 201)
        assert await listed(proxy) == []
        # The client was offline, and sends it later with the same key.
        later = await post(proxy, USER, body=PAYLOAD, target=BOOKMARKS)
        assert (later.status, later.body, is_replayed(later)) == (201, b'{"id": 7}', True)
        assert len(api.requests) == calls + 1
        metrics = await proxy.metrics()
        name = "holdfast_dead_letter_replays_total"
        assert metrics.total(name, route="create", result="succeeded") == 1


async def test_an_offline_client_that_was_faster_is_not_served_twice() -> None:
    async with stage() as (api, proxy):
        api.usual = answer(response(503))
        first = await post(proxy, USER, body=PAYLOAD, target=BOOKMARKS)
        api.usual = answer(created(7))
        assert (await post(proxy, USER, body=PAYLOAD, target=BOOKMARKS)).status == 201
        calls = len(api.requests)
        done = await replayed(proxy, first.get("Holdfast-Dead-Letter") or "")
        assert (done["result"], done["attempts"]) == ("already_done", 0)
        assert len(api.requests) == calls


async def test_what_may_have_run_is_reprocessed_only_if_the_person_insists() -> None:
    async with stage(honours_key=False) as (api, proxy):
        api.usual = hang_up
        given = await post(proxy, target=BOOKMARKS)
        letter = given.get("Holdfast-Dead-Letter") or ""
        api.usual = answer(created(1))
        assert obstacle(await replay(proxy, letter)) == (409, "letter_may_have_run")
        assert (await replayed(proxy, letter, force=True))["result"] == "succeeded"


# What is delivered later: the states that a user interface shows, and its button.


def test_six_tries_two_to_the_n_minutes_apart() -> None:
    settings = DESIGN.route("create").hand_off
    assert settings is not None
    tries = [planned.earliest / 60 for planned in planned_tries(settings)]
    assert tries == pytest.approx([0, 2, 6, 14, 30, 62])
    assert (settings.give_up_after, settings.attempts) == (72 * HOURS, 6)


async def test_processing_and_done() -> None:
    gate = Gate(created(1))
    async with stage() as (api, proxy):
        api.script(gate.behaviour)
        saved = await post(proxy, ASYNC, body=PAYLOAD, target=BOOKMARKS)
        assert (saved.status, saved.get("Preference-Applied")) == (202, "respond-async")
        name = delivery_id(saved)
        await gate.reached.wait()
        assert (await state_of(proxy, name))["state"] == "sending"
        gate.open()
        done = await ended(proxy, name)
        assert (done["state"], done["response"]) == ("delivered", {"status": 201})
        async with proxy.client() as client:
            answered = await client.get(f"{saved.get('Location')}/response")
        assert (answered.status, answered.body) == (201, b'{"id": 1}')
        # The same key again: the same 202, and nothing runs.
        again = await post(proxy, ASYNC, body=PAYLOAD, target=BOOKMARKS)
        assert (delivery_id(again), is_replayed(again)) == (name, True)
        assert len(api.requests) == 1


async def test_a_sender_whose_api_is_away_is_served_when_it_is_back() -> None:
    """The offline queue: the client waited, got 202, and its bookmark is made once."""
    async with stage(backoff="50ms") as (api, proxy):
        api.usual = hang_up
        saved = await post(proxy, body=PAYLOAD, target=BOOKMARKS)
        assert (saved.status, len(api.requests)) == (202, 3), "tried while it waited"
        name = delivery_id(saved)
        shown_now = await state_of(proxy, name)
        assert shown_now["state"] in {"waiting", "retrying", "sending"}
        api.usual = answer(created(7))
        assert (await ended(proxy, name))["state"] == "delivered"
        assert {one.get("Idempotency-Key") for one in api.requests} == {KEY.partition(": ")[2]}
        assert await listed(proxy) == []


def _has_tried(api: ScriptedUpstream, made: int) -> bool:
    return len(api.requests) == made


async def test_retrying_failed_and_the_retry_by_a_person() -> None:
    async with stage(backoff="1h") as (api, proxy):
        api.usual = answer(response(500))
        name = delivery_id(await post(proxy, ASYNC, body=PAYLOAD, target=BOOKMARKS))
        await eventually(lambda: len(api.requests) == 1)
        await eventually(lambda: len(proxy.app._dispatcher) == 0)
        assert (await state_of(proxy, name))["state"] == "retrying"
        # The button, until the tries are used up: each sends it at once.
        for made in range(2, 7):
            async with proxy.client() as client:
                given = await client.request("POST", f"{STATUS}/{name}/retry")
            assert given.status == 202
            await eventually(partial(_has_tried, api, made))
            await eventually(lambda: len(proxy.app._dispatcher) == 0)
        failed = await state_of(proxy, name)
        assert (failed["state"], failed["why"]) == ("failed", "attempts_exhausted")
        (letter,) = await listed(proxy)
        assert (letter["id"], letter["error"], letter["attempts_used"]) == (name, "500", 6)
        # It is repaired, and a person sends it again: under its key, so it may.
        api.usual = answer(created(9))
        async with proxy.client() as client:
            assert (await client.request("POST", f"{STATUS}/{name}/retry")).status == 202
        assert (await ended(proxy, name))["state"] == "delivered"
        assert await listed(proxy) == []
