"""A letter is sent again when a person says so: once, as it was, and under its own key."""

import asyncio
import json
import logging

import pytest

from tests.support import (
    REFUSES_503,
    Behaviour,
    RunningProxy,
    ScriptedUpstream,
    answer,
    answer_and_reset,
    eventually,
    hang,
    hang_up,
    ok,
    one_route,
    response,
    running,
)
from tests.support.dead_letters import listed, obstacle, replay, replayed, shown
from tests.support.keys import KEY, Gate
from tests.support.leftovers import nothing_left

KEEPS = "dead_letter: true"
GONE = (404, "no_letter")

unavailable = answer(response(503))


def declining(upstream: ScriptedUpstream, route: str, top: str = "") -> str:
    """A file with one route to an upstream that did not do what it answers with 503."""
    return one_route(upstream, route, options=REFUSES_503, top=top)


async def dead(
    proxy: RunningProxy, *fields: str, body: bytes = b"pay", method: str = "POST"
) -> str:
    """A request that fails, and the id of its letter."""
    async with proxy.client() as client:
        given = await client.request(method, "/pay?now=1", *fields, body=body)
    letter = given.get("Holdfast-Dead-Letter")
    assert letter, given
    return letter


async def test_it_is_the_same_request_but_for_what_was_dropped() -> None:
    fields = (
        "Content-Type: application/json",
        "X-Tenant: acme",
        "Authorization: Bearer a",
        "X-Request-Id: my-own-id",
        "Via: 1.0 elsewhere",
    )
    route = f"{KEEPS}\nheaders: {{request: {{set: {{X-Source: holdfast}}}}}}\nstrip_prefix: /pay"
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, route.replace("strip_prefix: /pay", ""))) as proxy,
    ):
        letter = await dead(proxy, *fields, body=bytes(range(256)))
        upstream.usual = answer(ok())
        found = await replayed(proxy, letter, ("Authorization", "Bearer a"))
        assert found == {
            "result": "succeeded",
            "id": letter,
            "route": "all",
            "status": 200,
            "attempts": 1,
        }
        first, second = upstream.requests
        assert (second.method, second.target, second.body) == (
            first.method,
            first.target,
            first.body,
        )
        assert sorted(second.headers) == sorted(first.headers)
        assert await listed(proxy) == []
        await nothing_left(proxy)


async def test_without_the_credentials_it_stays() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, KEEPS)) as proxy,
    ):
        letter = await dead(proxy, "Authorization: Bearer a")
        upstream.usual = answer(response(401))
        found = await replayed(proxy, letter)
        assert (found["result"], found["error"], found["status"]) == ("failed", "401", 401)
        assert upstream.requests[1].get("Authorization") is None
        assert [one["id"] for one in await listed(proxy)] == [letter]


async def test_it_is_refused_if_its_route_has_come_to_go_by_a_field_that_it_repeats() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, KEEPS)) as proxy,
    ):
        letter = await dead(proxy, "X-Tenant: a", "X-Tenant: b")
        throttled = f"{KEEPS}\n    throttle: {{concurrency: 5, key: 'header:X-Tenant'}}"
        proxy.config.write_text(proxy.config.read_text().replace(KEEPS, throttled))
        assert (await proxy.admin("POST", "/-/reload")).status == 200
        upstream.usual = answer(ok())
        assert obstacle(await replay(proxy, letter)) == (400, "bad_request")
        assert len(upstream.requests) == 1
        # Who sends it again can say which of them it is.
        assert (await replayed(proxy, letter, ("X-Tenant", "a")))["result"] == "succeeded"


@pytest.mark.parametrize(
    ("behaviour", "error", "ran"),
    [
        pytest.param(unavailable, "503", False, id="a status that is listed"),
        pytest.param(answer(response(422)), "422", False, id="an answer that is no success"),
        pytest.param(hang_up, "reset", True, id="no answer"),
        pytest.param(
            answer_and_reset(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"),
            "truncated",
            True,
            id="half an answer",
        ),
    ],
)
async def test_a_replay_that_fails_leaves_the_letter_with_its_attempts(
    behaviour: Behaviour, error: str, *, ran: bool
) -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, KEEPS)) as proxy,
    ):
        letter = await dead(proxy)
        upstream.usual = behaviour
        found = await replayed(proxy, letter)
        assert (found["result"], found["error"], found["may_have_run"]) == ("failed", error, ran)
        found = await shown(proxy, letter)
        assert [run["result"] for run in found["runs"]] == ["failed", "failed"]
        assert [len(run["attempts"]) for run in found["runs"]] == [1, 1]
        assert (found["state"], found["replays"], found["may_have_run"]) == ("waiting", 1, ran)
        if ran:
            assert obstacle(await replay(proxy, letter)) == (409, "letter_may_have_run")
            assert len(upstream.requests) == 2
        upstream.usual = answer(ok())
        assert (await replayed(proxy, letter, force=ran))["result"] == "succeeded"
        assert obstacle(await replay(proxy, letter)) == GONE
        metrics = await proxy.metrics()
        name = "holdfast_dead_letter_replays_total"
        assert metrics.total(name, route="all", result="failed") == 1
        assert metrics.total(name, route="all", result="succeeded") == 1


async def test_what_may_have_run_wants_force() -> None:
    async with (
        ScriptedUpstream(usual=hang_up) as upstream,
        running(declining(upstream, KEEPS)) as proxy,
    ):
        letter = await dead(proxy)
        assert obstacle(await replay(proxy, letter)) == (409, "letter_may_have_run")
        assert len(upstream.requests) == 1
        upstream.usual = answer(ok())
        assert (await replayed(proxy, letter, force=True))["result"] == "succeeded"


async def test_without_its_body_it_cannot_be_sent() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, "dead_letter: {max_body: 1B}")) as proxy,
    ):
        letter = await dead(proxy)
        for force in (False, True):
            answered = await replay(proxy, letter, force=force)
            assert obstacle(answered) == (409, "letter_without_body")
        found = await shown(proxy, letter)
        assert (found["body_missing"], found["replayable"]) == ("body_too_large", False)
        assert "body" not in found


async def test_it_runs_under_the_policies_of_its_route() -> None:
    policy = "retry: {unsafe: always, attempts: 2, backoff: {strategy: constant, base: 1ms}}"
    throttle = "throttle: {rate: 3/h, burst: 3, max_wait: 0s}"
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, f"{KEEPS}\n{policy}\n{throttle}")) as proxy,
    ):
        letter = await dead(proxy)
        assert len(upstream.requests) == 2
        found = await replayed(proxy, letter)
        assert (found["result"], found["attempts"]) == ("failed", 1), "no permit for a second one"
        found = await replayed(proxy, letter)
        assert (found["result"], found["error"]) == ("refused", "throttled")
        found = await shown(proxy, letter)
        assert [len(run["attempts"]) for run in found["runs"]] == [2, 1], "nothing was sent"
        assert found["state"] == "waiting"
        assert len(upstream.requests) == 3


async def test_its_own_timeout_holds_and_not_the_clients_patience() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, f"{KEEPS}\ntimeout: 300ms")) as proxy,
    ):
        letter = await dead(proxy, "Holdfast-Timeout: 250ms")
        upstream.usual = hang
        found = await replayed(proxy, letter)
        assert (found["error"], found["status"]) == ("timeout", 504)
        assert upstream.requests[1].get("Holdfast-Timeout") is None


# Keys.


async def test_a_replay_goes_under_its_own_key_whoever_sends_it() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, f"{KEEPS}\nidempotency: {{scope_required: true}}")) as proxy,
    ):
        letter = await dead(proxy, KEY, "Authorization: Bearer first")
        upstream.usual = answer(ok(b"done"))
        # A token that was issued since then.
        found = await replayed(proxy, letter, ("Authorization", "Bearer second"))
        assert found["result"] == "succeeded"
        assert upstream.requests[1].get("Authorization") == "Bearer second"
        # The client that tries again gets what the replay got.
        async with proxy.client() as client:
            given = await client.request(
                "POST", "/pay?now=1", KEY, "Authorization: Bearer first", body=b"pay"
            )
        assert (given.body, given.get("Idempotent-Replayed")) == (b"done", "true")
        assert len(upstream.requests) == 2


async def test_nor_does_it_need_any_to_have_a_key() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, f"{KEEPS}\nidempotency: {{scope_required: true}}")) as proxy,
    ):
        letter = await dead(proxy, KEY, "Authorization: Bearer first")
        upstream.usual = answer(ok())
        assert (await replayed(proxy, letter))["result"] == "succeeded"


async def test_what_its_client_sent_again_meanwhile_does_not_run_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, f"{KEEPS}\nidempotency: true")) as proxy,
    ):
        letter = await dead(proxy, KEY, "Authorization: Bearer a")
        upstream.usual = answer(ok(b"done"))
        async with proxy.client() as client:
            await client.request("POST", "/pay?now=1", KEY, "Authorization: Bearer a", body=b"pay")
        dry = json.loads((await replay(proxy, letter, dry_run=True)).body)
        assert dry == {"result": "would_not_be_sent", "id": letter, "key": "done"}
        with caplog.at_level(logging.INFO, "holdfast"):
            found = await replayed(proxy, letter)
        assert (found["result"], found["attempts"], found["status"]) == ("already_done", 0, 200)
        assert len(upstream.requests) == 2
        assert await listed(proxy) == []
        metrics = await proxy.metrics()
        name = "holdfast_dead_letter_replays_total"
        assert metrics.total(name, route="all", result="already_done") == 1
        assert metrics.total(name, route="all", result="succeeded") == 0
    said = f"dead letter {letter} was not sent: its key has a result already (200), and it is gone"
    assert said in caplog.messages


async def test_a_result_that_is_not_good_leaves_the_letter() -> None:
    """Nothing was sent, so it is not said that the upstream answered."""
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, f"{KEEPS}\nidempotency: true")) as proxy,
    ):
        letter = await dead(proxy, KEY)
        upstream.usual = answer(response(422))
        async with proxy.client() as client:
            await client.request("POST", "/pay?now=1", KEY, body=b"pay")
        found = await replayed(proxy, letter)
        assert (found["result"], found["error"], found["attempts"]) == ("refused", "422", 0)
        assert found["detail"].startswith("Its key has a result already (422), so nothing was sent")
        assert found["may_have_run"] is False
        assert len(upstream.requests) == 2
        assert [one["id"] for one in await listed(proxy)] == [letter]


async def test_a_key_that_is_held_is_for_a_person_to_release() -> None:
    route = f"{KEEPS}\nidempotency: {{on_ambiguous: hold}}"
    async with (
        ScriptedUpstream(usual=hang_up) as upstream,
        running(declining(upstream, route)) as proxy,
    ):
        letter = await dead(proxy, KEY)
        found = await replayed(proxy, letter, force=True)
        assert (found["result"], found["error"]) == ("refused", "outcome_unknown")
        assert found["record"] == (await shown(proxy, letter))["record"]
        assert len(upstream.requests) == 1
        assert (await proxy.admin("DELETE", f"/keys/{found['record']}")).status == 200
        upstream.usual = answer(ok())
        assert (await replayed(proxy, letter, force=True))["result"] == "succeeded"


async def test_with_a_key_of_ones_own_it_is_a_request_of_its_own() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, f"{KEEPS}\nidempotency: true")) as proxy,
    ):
        letter = await dead(proxy, KEY)
        upstream.usual = answer(ok())
        await replayed(proxy, letter, ("Idempotency-Key", "another"))
        assert upstream.requests[1].all("Idempotency-Key") == ["another"]
        async with proxy.client() as client:
            await client.request("POST", "/pay?now=1", KEY, body=b"pay")
        assert len(upstream.requests) == 3, "the first key is as free as it was"


# Fallbacks.


@pytest.mark.parametrize("fixed", [True, False])
async def test_a_fallback_is_no_success(*, fixed: bool) -> None:
    usual = answer(response(429))
    async with ScriptedUpstream(usual=usual) as upstream, ScriptedUpstream() as other:
        fallback = "{status: 202}" if fixed else "{upstream: other}"
        config = declining(upstream, f"{KEEPS}\nfallback: {fallback}").replace(
            "routes:", f"  other: {other.url}\nroutes:"
        )
        async with running(config) as proxy:
            letter = await dead(proxy)
            found = await replayed(proxy, letter, force=True)
            assert (found["result"], found["error"]) == ("failed", "fallback")
            assert found["may_have_run"] == (not fixed)
            assert [one["id"] for one in await listed(proxy)] == [letter]


# Several at once, and the end.


async def test_a_second_replay_of_the_same_letter_is_refused() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, KEEPS)) as proxy,
    ):
        letter = await dead(proxy)
        gate = Gate()
        upstream.usual = gate.behaviour
        first = asyncio.ensure_future(replayed(proxy, letter))
        await gate.reached.wait()
        assert (await shown(proxy, letter))["state"] == "replaying"
        for force in (False, True):
            assert obstacle(await replay(proxy, letter, force=force)) == (409, "letter_replaying")
        assert (await proxy.admin("DELETE", f"/dead-letters/{letter}")).status == 409
        gate.open()
        assert (await first)["result"] == "succeeded"
        assert len(upstream.requests) == 2


async def test_it_goes_on_without_whoever_asked_for_it() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, KEEPS)) as proxy,
    ):
        letter = await dead(proxy)
        gate = Gate()
        upstream.usual = gate.behaviour
        asking = asyncio.ensure_future(replay(proxy, letter))
        await gate.reached.wait()
        asking.cancel()
        await asyncio.sleep(0.05)
        gate.open()
        await eventually(lambda: not len(proxy.app._replays))
        assert await listed(proxy) == []


async def test_a_drain_lets_it_end() -> None:
    async with ScriptedUpstream(usual=unavailable) as upstream:
        async with running(declining(upstream, KEEPS)) as proxy:
            letter = await dead(proxy)
            gate = Gate()
            upstream.usual = gate.behaviour
            asking = asyncio.ensure_future(replayed(proxy, letter))
            await gate.reached.wait()
            asyncio.get_running_loop().call_later(0.1, gate.open)
        assert (await asking)["result"] == "succeeded"


async def test_a_drain_without_patience_interrupts_it_and_says_so(tmp_path: object) -> None:
    top = f"drain_timeout: 50ms\nstate_dir: {tmp_path}/state"
    route = f"{KEEPS}\nidempotency: true"
    async with ScriptedUpstream(usual=unavailable) as upstream:
        async with running(declining(upstream, route, top=top)) as proxy:
            letter = await dead(proxy, KEY)
            upstream.usual = hang
            asking = asyncio.ensure_future(replayed(proxy, letter))
            await eventually(lambda: len(upstream.requests) == 2)
        found = await asking
        assert (found["result"], found["may_have_run"]) == ("interrupted", True)
        async with running(declining(upstream, route, top=top)) as proxy:
            found = await shown(proxy, letter)
            assert (found["state"], found["may_have_run"]) == ("waiting", True)
            assert found["runs"][1]["attempts"][0]["outcome"] == "cancelled"
            assert [one["id"] for one in await listed(proxy)] == [letter], "there is no second one"
            assert obstacle(await replay(proxy, letter)) == (409, "letter_may_have_run")
            assert len(upstream.requests) == 2


async def test_a_letter_whose_route_is_gone_waits_for_it() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, KEEPS)) as proxy,
    ):
        letter = await dead(proxy)
        text = proxy.config.read_text()
        proxy.config.write_text(text.replace("name: all", "name: other"))
        assert (await proxy.admin("POST", "/-/reload")).status == 200
        assert obstacle(await replay(proxy, letter)) == (409, "letter_without_route")
        assert (await shown(proxy, letter))["state"] == "waiting"
        proxy.config.write_text(text)
        assert (await proxy.admin("POST", "/-/reload")).status == 200
        upstream.usual = answer(ok())
        assert (await replayed(proxy, letter))["result"] == "succeeded"


async def test_a_replay_is_in_the_access_log() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as upstream,
        running(declining(upstream, KEEPS)) as proxy,
    ):
        letter = await dead(proxy)
        upstream.usual = answer(ok())
        await replayed(proxy, letter)
        first, second = await proxy.logged(2)
        assert (first["dead_letter"], first.get("replay")) == (letter, None)
        assert (second["dead_letter"], second["replay"], second["code"]) == (letter, True, 200)
        assert second["request_id"] == first["request_id"]
        assert json.dumps(second)
