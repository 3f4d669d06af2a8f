"""*A second execution* in ``docs/explanation/promises.md``: each window is tried, none is untried.

A row of the table has a scenario here, found by the words that its first cell begins with, which
shows that the window is there; or the tests that show it elsewhere. A row without either fails, and
so does a scenario without a row.
"""

import re
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support import (
    REFUSES_503,
    ScriptedUpstream,
    answer,
    hang_up,
    one_route,
    response,
    running,
)
from tests.support.clock import FakeClock
from tests.support.dead_letters import replay, replayed
from tests.support.keys import is_replayed, keyed, post
from tests.support.redis_server import redis_server

PROMISES = Path(__file__).parent.parent.parent / "docs" / "explanation" / "promises.md"

QUICK = "retry: {attempts: 2, backoff: {base: 1ms}}"
HOLD = "{on_ambiguous: hold}"
booked = answer(response(503))
"""The request runs, but the client is told of a failure."""


def windows() -> list[str]:
    """The first cell of each row."""
    section = PROMISES.read_text().partition("## A second execution\n")[2].partition("\n## ")[0]
    _, *rows = re.findall(r"^\| (.+?) \|", section, re.MULTILINE)
    return rows


async def released() -> None:
    async with keyed() as (upstream, proxy):
        upstream.script(booked)
        await post(proxy)
        assert (await post(proxy)).status == 200
        assert len(upstream.requests) == 2
    async with keyed(HOLD) as (upstream, proxy):
        upstream.script(booked)
        await post(proxy)
        assert (await post(proxy)).status == 409
        assert len(upstream.requests) == 1


async def another_caller() -> None:
    for scope, runs in (("authorization", 2), ("x-tenant", 1)):
        async with keyed(f"{{scope: [header:{scope}], on_ambiguous: hold}}") as (upstream, proxy):
            for token in ("old", "new"):
                await post(proxy, f"Authorization: Bearer {token}", "X-Tenant: acme")
            assert len(upstream.requests) == runs
    async with keyed(HOLD) as (upstream, proxy):
        for field in ("Authorization: Bearer x", "X-Api-Key: x", "X-Tenant: acme", "X-Tenant: b"):
            await post(proxy, field)
        assert len(upstream.requests) == 3


def route_of(path: str, name: str = "", scope: str = "authorization") -> str:
    """A route whose keys are tried, in one line of YAML."""
    named = f"name: {name}, " if name else ""
    keys = f"idempotency: {{on_ambiguous: hold, scope: [header:{scope}]}}"
    return f"{{{named}match: {{path: {path}}}, upstream: api, {keys}}}"


async def another_route() -> None:
    named = route_of("/**", "pay")
    for before, after, runs in (
        (named, route_of("/**", "payments"), 2),
        (route_of("[/pay, /buy]"), route_of("[/buy, /pay]"), 2),
        (named, f"{route_of('/pay', 'new')}, {named}", 2),
        (named, route_of("/**", "pay", "x-tenant"), 2),
        # What helps, and what changes nothing.
        (route_of("[/pay, /buy]"), route_of("[/pay, /sell]"), 1),
        (named, route_of("[/buy, /pay]", "pay"), 1),
    ):
        for restarts in (False, True):
            assert await runs_over(before, after, restarts=restarts) == runs, (before, after)
    assert await runs_over(named, named, restarts=True, moved=True) == 2


async def runs_over(before: str, after: str, *, restarts: bool, moved: bool = False) -> int:
    """How often a request runs that is sent once before and once after a change of the file."""
    fields = ("Authorization: Bearer x", "X-Tenant: acme")
    with TemporaryDirectory() as folder:
        async with ScriptedUpstream() as upstream:

            def file(routes: str, name: str = "keys.db") -> str:
                return (
                    f"store: {{url: 'sqlite:{folder}/{name}', timeout: 5s}}\n"
                    f"upstreams: {{api: '{upstream.url}'}}\nroutes: [{routes}]\n"
                )

            async with running(file(before)) as proxy:
                await post(proxy, *fields, target="/pay")
                if not restarts:
                    usual = proxy.config.read_text()
                    assert usual.count(before) == 1
                    proxy.config.write_text(usual.replace(before, after))
                    assert (await proxy.admin("POST", "/-/reload")).status == 200
                    await post(proxy, *fields, target="/pay")
            if restarts:
                async with running(file(after, "moved.db" if moved else "keys.db")) as proxy:
                    await post(proxy, *fields, target="/pay")
            return len(upstream.requests)


async def forgotten_by_memory() -> None:
    async with ScriptedUpstream() as upstream:
        for _ in range(2):
            async with running(one_route(upstream, "idempotency: true")) as proxy:
                assert not is_replayed(await post(proxy))
        assert len(upstream.requests) == 2


async def unprotected() -> None:
    for policy, runs in (("open", 2), ("closed", 0)):
        async with redis_server() as server, ScriptedUpstream() as upstream:
            route = f"idempotency: {{on_store_error: {policy}}}"
            top = f"store: redis://127.0.0.1:{server.port}"
            async with running(one_route(upstream, route, top=top)) as proxy:
                await server.stop()
                for _ in range(2):
                    await post(proxy)
            assert len(upstream.requests) == runs


async def too_old() -> None:
    clock = FakeClock()
    async with ScriptedUpstream() as upstream:
        config = one_route(upstream, "idempotency: {ttl: 1h}")
        async with running(config, clock=clock) as proxy:
            for seconds in (3599, 1, 0):
                await post(proxy)
                clock.advance(seconds)
        assert len(upstream.requests) == 2


async def not_kept() -> None:
    async with keyed("{keep: [200]}") as (upstream, proxy):
        upstream.script(answer(response(201)))
        await post(proxy)
        assert not is_replayed(await post(proxy))
        assert len(upstream.requests) == 2


async def told_an_untruth() -> None:
    for promise in ("honours_key: true", REFUSES_503):
        async with keyed(HOLD, QUICK, options=promise) as (upstream, proxy):
            upstream.script(booked)
            assert (await post(proxy)).status == 200
            assert len(upstream.requests) == 2
    async with keyed(HOLD, "retry: {attempts: 2, unsafe: always}") as (upstream, proxy):
        upstream.script(booked)
        assert (await post(proxy)).status == 200
        assert len(upstream.requests) == 2
    async with keyed(HOLD, QUICK) as (upstream, proxy):
        upstream.script(booked)
        assert (await post(proxy)).status == 503
        assert len(upstream.requests) == 1


async def decided_by_a_person() -> None:
    async with keyed(HOLD, "dead_letter: true") as (upstream, proxy):
        upstream.script(hang_up, hang_up)
        first = await post(proxy)
        held = await post(proxy)
        assert (held.status, held.reason_word) == (409, "outcome_unknown")
        dead_letter_id = first.get("Holdfast-Dead-Letter") or ""
        assert (await replay(proxy, dead_letter_id)).status == 409
        await proxy.admin("DELETE", f"/keys/{held.problem['record']}")
        assert (await replayed(proxy, dead_letter_id, force=True))["result"] == "failed"
        assert len(upstream.requests) == 2


Scenario = Callable[[], Awaitable[None]]

SCENARIOS: dict[str, Scenario | tuple[str, ...]] = {
    "`on_ambiguous: release`": released,
    "the same key comes with another credential": another_caller,
    "the same key comes to another route": another_route,
    "`store: memory` and a restart": forgotten_by_memory,
    "the memory store is full": (
        "stores.memory.test_idempotency:test_where_there_are_too_many_the_oldest_go",
        (
            "stores.memory.test_idempotency:"
            "test_results_make_room_for_each_other_and_that_they_ran_is_known"
        ),
    ),
    "Redis loses its data": (
        "stores.redis.test_idempotency:test_a_server_that_forgets",
        "faults.test_idempotency:test_an_owner_whose_store_was_flushed_answers_its_client",
    ),
    "an instance stops for longer than `lease`": (
        (
            "pipeline.idempotency.test_lease:"
            "test_an_instance_that_was_stopped_sends_nothing_after_its_lease"
        ),
        "pipeline.idempotency.test_lease:test_instances_that_are_stopped_at_random_run_nothing_twice",
    ),
    "a send that begins within the lease": (
        "pipeline.idempotency.test_lease:test_instances_that_are_stopped_at_random_run_nothing_twice",
    ),
    "a request takes longer than `ttl`": (
        "pipeline.idempotency.test_lease:test_a_request_longer_than_ttl_is_not_run_beside_itself",
        "admin.test_taking_keys:test_an_attempt_is_under_way",
    ),
    "the store cannot be told": (
        "pipeline.idempotency.test_unreported_ends:test_the_lease_goes_on_while_the_store_cannot_be_told",
        (
            "pipeline.idempotency.test_crash:"
            "test_after_the_lease_it_runs_once_more_or_a_person_decides"
        ),
    ),
    # Nor can one set the server's clock: these show whose clock counts.
    "the clock of the Redis server": (
        "stores.redis.test_idempotency:test_how_long_it_is_kept",
        "stores.sqlite.test_store:test_setting_the_date_moves_no_lease",
    ),
    "`on_store_error: open`": unprotected,
    "`ttl` is over": too_old,
    "`keep` leaves out a status": not_kept,
    "the file says what is not true": told_an_untruth,
    "a person decides": decided_by_a_person,
    # No test can take the power away: this one takes the process.
    "the machine loses power": (
        "stores.sqlite.test_store:test_whatever_was_answered_survives_a_kill",
    ),
}
"""By the words that a row begins with: what tries it, here or elsewhere."""


def test_every_window_is_tried() -> None:
    rows = windows()
    assert len(rows) >= 10
    for row in rows:
        assert [words for words in SCENARIOS if row.startswith(words)], f"nothing tries: {row}"
    for words in SCENARIOS:
        assert [row for row in rows if row.startswith(words)], f"no window any more: {words}"


@pytest.mark.parametrize("words", SCENARIOS)
async def test_a_window(words: str) -> None:
    scenario = SCENARIOS[words]
    if not isinstance(scenario, tuple):
        await scenario()
        return
    for place in scenario:
        module, _, name = place.partition(":")
        assert callable(getattr(import_module(f"tests.{module}"), name)), place
