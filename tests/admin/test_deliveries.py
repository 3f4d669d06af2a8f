"""``/deliveries`` of a real proxy: pages, one delivery, retry, cancel, and who may ask."""

import json
import logging
from typing import Any

import pytest

from proxy.policy.delivery.state import Delivered, DeliveredResponse, FailedForGood
from tests.stores.deliveries.kit import DID_NOT_RUN, RAN, URL, accepted
from tests.support import Response, RunningProxy, eventually, one_route, running
from tests.support.client import RawClient
from tests.support.dead_letters import listed, obstacle
from tests.support.delivery_admin import GONE_ROUTE, delivery_of, delivery_page, retry
from tests.support.upstream import ScriptedUpstream

CONFIG = one_route("http://127.0.0.1:9", "dead_letter: true\nhand_off: true")
UNKNOWN = "d_" + "A" * 22


async def waiting(proxy: RunningProxy, **given: Any) -> str:  # noqa: ANN401 - as new()
    """Keep a delivery for a route that is not there, so that it waits; return its id."""
    stored = await accepted(proxy.app._deliveries, **{"route": GONE_ROUTE, **given})
    return stored.delivery.id


async def ended(proxy: RunningProxy, how: str, **given: Any) -> str:  # noqa: ANN401 - as new()
    """Keep a delivery that has ended: delivered, failed, or failed and may have run."""
    # Not due, so that the proxy itself does not send it first.
    delivery_id = await waiting(proxy, **{"delay": 3600.0, **given})
    store = proxy.app._deliveries
    taken = await store.take_one(delivery_id, [URL])
    assert taken is not None
    if how == "delivered":
        settlement, run = Delivered(DeliveredResponse(201, (), b"ok")), RAN
        await store.settle(taken.delivery, settlement, run)
    else:
        failed = FailedForGood("attempts_exhausted", "timeout")
        await store.settle(taken.delivery, failed, RAN if how == "ran" else DID_NOT_RUN)
    return delivery_id


def page(answer: Response) -> tuple[list[str], str | None]:
    content = json.loads(answer.body)
    return [one["id"] for one in content["deliveries"]], content["next"]


async def test_pages_and_filters() -> None:
    async with running(CONFIG) as proxy:
        first = await waiting(proxy)
        second = await waiting(proxy, route="other")
        third = await ended(proxy, "failed")
        fourth = await ended(proxy, "delivered", route="other")
        ids = [first, second, third, fourth]

        async def get(query: str) -> tuple[list[str], str | None]:
            return page(await proxy.admin("GET", f"/deliveries?{query}"))

        assert await get("") == (ids[::-1], None)
        found, after = await get("order=oldest&limit=2")
        assert found == ids[:2]
        assert await get(f"order=oldest&limit=3&after={after}") == (ids[2:], None)
        assert await get("route=other&order=oldest") == ([second, fourth], None)
        assert await get("state=waiting&order=oldest") == ([first, second], None)
        assert await get("state=failed") == ([third], None)
        assert await get("why=attempts_exhausted") == ([third], None)
        assert await get("why=gave_up") == ([], None)
        assert await get("route=other&state=delivered") == ([fourth], None)


@pytest.mark.parametrize(
    "query",
    [
        *("order=up", "after=x", "after=1.0,d_a%20b", "limit=0", "limit=1001", "limit=x"),
        *("state=done", "why=because", "state=", "limit=" + "1" * 5006),
    ],
    ids=lambda query: query[:20],
)
async def test_a_page_that_makes_no_sense(query: str) -> None:
    async with running(CONFIG) as proxy:
        assert obstacle(await proxy.admin("GET", f"/deliveries?{query}")) == (400, "bad_request")


async def test_what_is_shown_of_one() -> None:
    async with running(CONFIG) as proxy:
        fields = ((b"X-Name", b"\xe9"), (b"Authorization", b"Bearer secret"))
        wiped = frozenset({"authorization"})
        given: dict[str, Any] = {"target": "/o?a=\udcff", "peer": "192.0.2.7", "record": "5f" * 16}
        found_id = await ended(proxy, "ran", headers=fields, wiped=wiped, body=b"order", **given)
        shown = await delivery_of(proxy, found_id)
        (row,) = await delivery_page(proxy)
        assert {name: shown[name] for name in row} == row
        assert (shown["state"], shown["why"], shown["error"]) == (
            "failed",
            "attempts_exhausted",
            "timeout",
        )
        assert (shown["may_have_run"], shown["attempts"], shown["tries"]) == (True, 1, 1)
        assert (shown["target"], shown["client"]) == ("/o?a=\\xff", "192.0.2.7")
        assert (shown["record"], shown["body_bytes"]) == ("5f" * 16, 5)
        assert shown["headers"] == [["X-Name", "é"]]
        assert shown["next_attempt"] is None
        assert shown["gives_up"] is None
        assert shown["ended"] is not None
        (run,) = shown["runs"]
        assert run["attempts"][0]["outcome"] == "timeout"
        # Neither the body nor a credential, not even of one that waits.
        open_id = await waiting(proxy, headers=fields, wiped=wiped, body=b"order")
        assert (await delivery_of(proxy, open_id))["headers"] == [["X-Name", "é"]]
        assert "order 1" not in json.dumps(shown)


@pytest.mark.parametrize("name", [UNKNOWN, "x", "d_x", UNKNOWN + "A"])
@pytest.mark.parametrize(
    ("method", "rest"), [("GET", ""), ("DELETE", ""), ("POST", "/retry")], ids=str
)
async def test_there_is_no_such_delivery(method: str, rest: str, name: str) -> None:
    async with running(CONFIG) as proxy:
        answer = await proxy.admin(method, f"/deliveries/{name}{rest}")
        assert obstacle(answer) == (404, "no_delivery")


async def test_where_no_route_hands_off_there_are_none() -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        assert await delivery_page(proxy) == []
        for method, path in (("GET", UNKNOWN), ("DELETE", UNKNOWN), ("POST", f"{UNKNOWN}/retry")):
            answer = await proxy.admin(method, f"/deliveries/{path}")
            assert obstacle(answer) == (404, "no_delivery")
        assert not (proxy.config.parent / "state").exists()


async def test_cancelling(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    async with running(CONFIG) as proxy:
        delivery_id = await waiting(proxy)
        answer = await proxy.admin("DELETE", f"/deliveries/{delivery_id}")
        assert json.loads(answer.body) == {
            "result": "cancelled",
            "id": delivery_id,
            "route": GONE_ROUTE,
        }
        assert (await delivery_of(proxy, delivery_id))["state"] == "cancelled"
        again = await proxy.admin("DELETE", f"/deliveries/{delivery_id}")
        assert obstacle(again) == (409, "delivery_over")
        assert f"delivery {delivery_id} is cancelled, asked by admin (127.0.0.1)" in caplog.text
        sent = await waiting(proxy)
        taken = await proxy.app._deliveries.take_one(sent, [URL])
        assert taken is not None
        refused = await proxy.admin("DELETE", f"/deliveries/{sent}")
        assert obstacle(refused) == (409, "delivery_under_way")
        assert obstacle(await retry(proxy, sent)) == (409, "delivery_under_way")
        await proxy.app._deliveries.give_back(taken.delivery)


async def test_what_may_have_run_is_sent_with_force_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    async with running(CONFIG) as proxy:
        delivery_id = await ended(proxy, "ran")
        for dry_run in (True, False):
            answer = await retry(proxy, delivery_id, dry_run=dry_run)
            assert obstacle(answer) == (409, "delivery_may_have_run")
        asked = await retry(proxy, delivery_id, force=True, dry_run=True)
        assert json.loads(asked.body) == {"result": "would_be_sent", "id": delivery_id}
        assert (await delivery_of(proxy, delivery_id))["state"] == "failed"
        assert "is sent now" not in caplog.text
        forced = await retry(proxy, delivery_id, force=True)
        assert json.loads(forced.body)["result"] == "due"
        assert (await delivery_of(proxy, delivery_id))["state"] == "retrying"
        text = f"delivery {delivery_id} is sent now, asked by admin (127.0.0.1), with force"
        assert text in caplog.text


async def test_what_did_not_run_starts_anew_and_is_no_letter_any_more() -> None:
    route = "dead_letter: true\nhand_off: true"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        delivery_id = await ended(proxy, "failed", route="all", upstream="scripted")
        assert [letter["id"] for letter in await listed(proxy)] == [delivery_id]
        assert (await retry(proxy, delivery_id)).status == 200
        await eventually(lambda: len(upstream.requests) == 1)
        await eventually(lambda: len(proxy.app._dispatcher) == 0)
        assert (await delivery_of(proxy, delivery_id))["state"] == "delivered"
        assert await listed(proxy) == []
        assert obstacle(await retry(proxy, delivery_id)) == (409, "delivery_over")


@pytest.mark.parametrize("body", [b"x", b"[]", b'{"force": 1}', b'{"headers": []}'])
async def test_a_retry_that_makes_no_sense(body: bytes) -> None:
    async with running(CONFIG) as proxy:
        delivery_id = await waiting(proxy)
        async with RawClient(proxy.admin_port) as client:
            path = f"/deliveries/{delivery_id}/retry"
            answer = await client.request("POST", path, "Host: localhost", body=body)
        assert obstacle(answer) == (400, "bad_request")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/deliveries"),
        ("GET", "/deliveries/ID"),
        ("POST", "/deliveries/ID/retry"),
        ("DELETE", "/deliveries/ID"),
    ],
)
async def test_all_of_it_asks_for_the_token(method: str, path: str) -> None:
    async with running(f"admin_token: ${{TOKEN}}\n{CONFIG}", environ={"TOKEN": "s"}) as proxy:
        delivery_id = await waiting(proxy)
        path = path.replace("ID", delivery_id)
        assert obstacle(await proxy.admin(method, path)) == (401, "token")
        shown = await proxy.app._deliveries.page()
        assert [each.version for each in shown.deliveries] == [0]
        assert (await proxy.admin(method, path, "Authorization: Bearer s")).status == 200


async def test_a_file_that_does_not_answer() -> None:
    async with running(CONFIG) as proxy:
        await proxy.app._deliveries._ask(lambda table: table._run("DROP TABLE deliveries"))
        for path in ("/deliveries", f"/deliveries/{UNKNOWN}"):
            assert obstacle(await proxy.admin("GET", path)) == (503, "deliveries")
