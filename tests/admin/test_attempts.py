"""``/attempts`` of a real proxy: each attempt of a recent notable request, on its own."""

import json
from typing import Any

import pytest

from tests.support import (
    Response,
    RunningProxy,
    ScriptedUpstream,
    answer,
    hang_up,
    ok,
    one_route,
    response,
    running,
)

FAST = "retry: {backoff: {base: 1ms}}"
RETRIED = "X-Request-Id: order-4711"


async def attempts(proxy: RunningProxy, request_id: str, *fields: str) -> Response:
    return await proxy.admin("GET", f"/attempts?request_id={request_id}", *fields)


async def shown(proxy: RunningProxy, request_id: str) -> list[dict[str, Any]]:
    """What is known of the requests with this id."""
    answered = await attempts(proxy, request_id)
    assert answered.status == 200
    assert answered.get("content-type") == "application/json"
    content = json.loads(answered.body)
    assert content["request_id"] == request_id
    found: list[dict[str, Any]] = content["requests"]
    return found


@pytest.mark.parametrize("mode", ["notable", "all"])
async def test_each_attempt_is_told_as_the_log_tells_it(mode: str) -> None:
    async with (
        ScriptedUpstream(answer(ok(b"done"))) as upstream,
        running(one_route(upstream, FAST, top=f"access_log: {mode}")) as proxy,
    ):
        upstream.script(hang_up, answer(response(503)))
        assert (await proxy.get("/orders?card=4242", RETRIED)).status == 200
        [found] = await shown(proxy, "order-4711")
        [line] = await proxy.logged()
    assert [(each["n"], each["outcome"], each["why"]) for each in found["attempts"]] == [
        (1, "reset", "retried"),
        (2, "5xx", "retried"),
        (3, "2xx", "recovered"),
    ]
    assert [each.get("wait_for") for each in found["attempts"]] == [None, "backoff", "backoff"]
    meanings = [each.pop("meaning") for each in found["attempts"]]
    assert meanings[-1] == "it is an answer for the client, after a retry"
    assert found["attempts"] == line["attempts"]
    assert found["path"] == "/orders"


async def test_an_id_that_came_twice() -> None:
    async with (
        ScriptedUpstream(answer(response(500))) as upstream,
        running(one_route(upstream)) as proxy,
    ):
        for _ in range(2):
            await proxy.get("/", RETRIED)
        assert [each["code"] for each in await shown(proxy, "order-4711")] == [500, 500]


async def test_they_outlive_a_reload() -> None:
    async with (
        ScriptedUpstream(answer(response(500))) as upstream,
        running(one_route(upstream)) as proxy,
    ):
        await proxy.get("/", RETRIED)
        assert (await proxy.admin("POST", "/-/reload")).status == 200
        await proxy.get("/", RETRIED)
        assert len(await shown(proxy, "order-4711")) == 2


@pytest.mark.parametrize(
    ("mode", "status"), [("all", 200), ("notable", 200), ("none", 200), ("none", 500)]
)
async def test_what_is_not_kept_gets_a_hint(mode: str, status: int) -> None:
    """A plain success of any mode; under ``none`` a failure too."""
    async with (
        ScriptedUpstream(answer(response(status))) as upstream,
        running(one_route(upstream, top=f"access_log: {mode}")) as proxy,
    ):
        await proxy.get("/", RETRIED)
        refused = await attempts(proxy, "order-4711")
    assert refused.status == 404
    problem = json.loads(refused.body)
    assert problem["type"] == "urn:holdfast:problem:no_attempts"
    assert problem["request_id"] == "order-4711"
    assert "access_log: notable" in problem["detail"]


@pytest.mark.parametrize(
    "query", ["", "?id=x", "?request_id=", "?request_id=a%0Ab", "?request_id=" + "a" * 129]
)
async def test_no_id(query: str) -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        refused = await proxy.admin("GET", f"/attempts{query}")
    assert refused.status == 400
    assert "/attempts?request_id=ID" in json.loads(refused.body)["detail"]


async def test_it_asks_for_the_token() -> None:
    config = one_route("http://127.0.0.1:9", top="admin_token: s3cret")
    async with running(config) as proxy:
        assert (await attempts(proxy, "x")).status == 401
        assert (await attempts(proxy, "x", "Authorization: Bearer s3cret")).status == 404
