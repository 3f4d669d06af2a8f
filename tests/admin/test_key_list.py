"""``GET /keys`` of a real proxy: the records that are held, or in another state."""

import json
from typing import Any

import pytest

from proxy.policy.idempotency.record import PAGE, Claim, Ending, RecordState
from proxy.stores import StoreError
from proxy.stores.memory import MemoryIdempotencyStore
from tests.support import RunningProxy, one_route, running
from tests.support.stored_keys import DAY, RECORD, claims_of, put_key

CONFIG = one_route("http://127.0.0.1:9")


async def listed(proxy: RunningProxy, query: str = "") -> dict[str, Any]:
    response = await proxy.admin("GET", f"/keys{query}")
    assert response.status == 200, response.body
    found: dict[str, Any] = json.loads(response.body)
    return found


async def put(proxy: RunningProxy, name: str, route: str, state: RecordState) -> None:
    store = claims_of(proxy)
    await store.claim(Claim(name, "owner", b"f" * 32, route, 30.0, DAY, takes_over=False))
    if state is not RecordState.IN_FLIGHT:
        await store.settle(name, "owner", Ending(state, DAY, b""))


async def test_those_that_are_held() -> None:
    async with running(CONFIG) as proxy:
        assert await listed(proxy) == {"keys": []}
        await put_key(proxy, RecordState.HELD)
        await put(proxy, "0" * 32, "charges", RecordState.DONE)
        alone = json.loads((await proxy.admin("GET", f"/keys/{RECORD}")).body)
        assert await listed(proxy) == {"keys": [alone]}
        assert alone["state"] == "held"


async def test_those_of_a_state_and_a_route() -> None:
    async with running(CONFIG) as proxy:
        for number, state in enumerate(RecordState):
            await put(proxy, f"{number:032x}", f"route-{number}", state)

        async def states(query: str) -> list[str]:
            return [key["state"] for key in (await listed(proxy, query))["keys"]]

        assert await states("?state=all") == [state.value for state in RecordState]
        assert await states("?state=done,unstored") == ["done", "unstored"]
        assert await states("?state=all&route=route-0") == ["in_flight"]
        assert await states("?state=all&route=nope") == []


async def test_pages() -> None:
    async with running(CONFIG) as proxy:
        names = [f"{number:032x}" for number in range(PAGE + 10)]
        for name in reversed(names):
            await put(proxy, name, "charges", RecordState.HELD)
        first = await listed(proxy)
        assert [key["record"] for key in first["keys"]] == names[:PAGE]
        last = await listed(proxy, f"?after={first['next']}")
        assert [key["record"] for key in last["keys"]] == names[PAGE:]
        assert "next" not in last


async def test_what_others_wrote_into_the_store_is_not_shown() -> None:
    async with running(CONFIG) as proxy:
        await put(proxy, "\x1b[31m", "charges", RecordState.HELD)
        assert await listed(proxy) == {"keys": []}


@pytest.mark.parametrize(
    "query",
    ["?state=", "?state=lost", "?state=held,", "?after=%1b", "?limit=5", "?after=" + "a" * 65],
)
async def test_wrong_questions(query: str) -> None:
    async with running(CONFIG) as proxy:
        response = await proxy.admin("GET", f"/keys{query}")
        assert response.status == 400
        assert "Write ?state=held" in json.loads(response.body)["detail"]


async def test_the_store_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*_: object) -> None:
        raise StoreError("no answer within 200 ms")

    monkeypatch.setattr(MemoryIdempotencyStore, "page", silent)
    async with running(CONFIG) as proxy:
        response = await proxy.admin("GET", "/keys")
        assert (response.status, response.get("Retry-After")) == (503, "1")
        assert json.loads(response.body)["type"] == "urn:holdfast:problem:store"
