"""``/dead-letters`` of a real proxy: pages, one letter, dropping, exporting, and who may ask."""

import json
import logging

import pytest

from proxy.policy.dead_letter import Missing
from tests.support import Response, RunningProxy, one_route, request, running
from tests.support.client import RawClient
from tests.support.dead_letters import listed, obstacle, shown
from tests.support.letters import letter

CONFIG = one_route("http://127.0.0.1:9", "dead_letter: true")
FIRST = letter(1).id


async def filled(proxy: RunningProxy, *routes: str) -> list[str]:
    """Put a letter for each of *routes*; their ids."""
    letters = [letter(n, route=route) for n, route in enumerate(routes, 1)]
    for one in letters:
        assert await proxy.app._dead_letters.keep(one)
    return [one.id for one in letters]


def page(answer: Response) -> tuple[list[str], str | None]:
    content = json.loads(answer.body)
    return [one["id"] for one in content["letters"]], content["next"]


async def test_pages() -> None:
    async with running(CONFIG) as proxy:
        ids = await filled(proxy, "a", "b", "a", "a", "b")

        async def get(query: str) -> tuple[list[str], str | None]:
            return page(await proxy.admin("GET", f"/dead-letters?{query}"))

        assert await get("") == (ids[::-1], None)
        assert await get("order=oldest&limit=2") == (ids[:2], ids[1])
        assert await get(f"order=oldest&limit=2&after={ids[1]}") == (ids[2:4], ids[3])
        assert await get(f"order=oldest&limit=2&after={ids[3]}") == (ids[4:], None)
        assert await get(f"limit=2&after={ids[3].upper()}") == (ids[2:0:-1], ids[1])
        assert await get("route=b") == ([ids[4], ids[1]], None)
        assert await get("route=c") == ([], None)
        assert await get("order=oldest&limit=0002") == (ids[:2], ids[1])
        assert (await listed(proxy))[0] == {
            "id": ids[0],
            "time": "2096-10-02T07:06:41.000Z",
            "expires": "2096-10-03T07:06:41.000Z",
            "route": "a",
            "method": "POST",
            "target": "/charges?a=b",
            "request_id": "request-1",
            "error": "503",
            "category": "transient",
            "why": "attempts_exhausted",
            "meaning": "it was the last attempt",
            "attempts_used": 1,
            "attempts_allowed": 3,
            "may_have_run": False,
            "state": "waiting",
            "replays": 0,
            "body_bytes": 3,
            "body_missing": None,
            "replayable": True,
            "caller": None,
            "credentials": [],
        }


@pytest.mark.parametrize(
    "query",
    [
        *("order=up", "after=x", "limit=0", "limit=1001", "limit=x", "limit=-1", "limit=²"),
        *("limit=", "limit=00001", "limit=0000019999999", "limit=000001" + "9" * 30),
        "limit=" + "1" * 5006,
    ],
    ids=lambda query: query[:20],
)
async def test_a_page_that_makes_no_sense(query: str) -> None:
    async with running(CONFIG) as proxy:
        answer = await proxy.admin("GET", f"/dead-letters?{query.replace('²', '%C2%B2')}")
        assert obstacle(answer) == (400, "bad_request")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"pay \xc3\xa9", {"body": "pay é"}),
        (b"\xff\x00", {"body_base64": "/wA="}),
        (b"", {"body": ""}),
    ],
)
async def test_all_of_one(body: bytes, expected: dict[str, str]) -> None:
    async with running(CONFIG) as proxy:
        await proxy.app._dead_letters.keep(letter(body=body, record="5f" * 16))
        found = await shown(proxy, FIRST)
        assert {key: found[key] for key in found if key.startswith("body")} == {
            "body_bytes": len(body),
            "body_missing": None,
            **expected,
        }
        assert found["headers"] == [["Content-Type", "text/plain"], ["X-Name", "é"]]
        assert found["headers_dropped"] == ["Authorization"]
        assert (found["client"], found["record"]) == ("192.0.2.7", "5f" * 16)
        (run,) = found["runs"]
        assert (run["result"], run["attempts"][0]["status"]) == ("failed", 503)


async def test_a_letter_without_its_body_shows_none() -> None:
    async with running(CONFIG) as proxy:
        await proxy.app._dead_letters.keep(letter(body=b"", missing=Missing.TOO_LARGE))
        found = await shown(proxy, FIRST)
        assert "body" not in found
        assert (found["body_missing"], found["replayable"]) == ("body_too_large", False)


@pytest.mark.parametrize("name", [FIRST, "x", "0" * 19])
@pytest.mark.parametrize(
    ("method", "rest"), [("GET", ""), ("DELETE", ""), ("POST", "/replay")], ids=str
)
async def test_there_is_no_such_letter(method: str, rest: str, name: str) -> None:
    async with running(CONFIG) as proxy:
        answer = await proxy.admin(method, f"/dead-letters/{name}{rest}")
        assert obstacle(answer) == (404, "no_letter")


async def test_where_no_route_keeps_any_there_are_none() -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        assert await listed(proxy) == []
        assert obstacle(await proxy.admin("GET", f"/dead-letters/{FIRST}")) == (404, "no_letter")
        export = await proxy.admin("GET", "/dead-letters/export")
        assert (export.status, export.body) == (200, b"")
        assert not (proxy.config.parent / "state").exists()


async def test_dropping(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    async with running(CONFIG) as proxy:
        ids = await filled(proxy, "a", "b", "a", "b", "b")
        answer = await proxy.admin("DELETE", f"/dead-letters/{ids[0]}")
        assert json.loads(answer.body) == {"result": "dropped", "id": ids[0]}
        assert (await proxy.admin("DELETE", f"/dead-letters/{ids[0]}")).status == 404
        for query in ("", "?route=a&all=true", "?all=no", "?all=true&until=x"):
            refused = await proxy.admin("DELETE", f"/dead-letters{query}")
            assert obstacle(refused) == (400, "bad_request")
        assert len(await listed(proxy)) == 4
        nothing = await proxy.admin("DELETE", f"/dead-letters?all=true&until={ids[0]}")
        assert json.loads(nothing.body) == {"result": "dropped", "letters": 0}
        answer = await proxy.admin("DELETE", "/dead-letters?route=b")
        assert json.loads(answer.body) == {"result": "dropped", "letters": 3}
        assert [one["id"] for one in await listed(proxy)] == [ids[2]]
        await proxy.admin("DELETE", "/dead-letters?all=true")
        assert await listed(proxy) == []
        # Somebody may ask for one of them later.
        assert f"dead letter {ids[0]} was dropped by hand" in caplog.text
        assert f"dead letters dropped by hand: {ids[1]} {ids[3]} {ids[4]}" in caplog.text
        assert f"dead letters dropped by hand: {ids[2]}" in caplog.text
        # A person's doing is no loss.
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_dead_letters_dropped_total") == 0


async def test_an_export_has_all_of_all() -> None:
    async with running(CONFIG) as proxy:
        ids = await filled(proxy, *("ab" * 60))
        answer = await proxy.admin("GET", "/dead-letters/export")
        lines = [json.loads(line) for line in answer.body.splitlines()]
        assert [line["id"] for line in lines] == ids
        assert lines[0] == await shown(proxy, ids[0])
        answer = await proxy.admin("GET", "/dead-letters/export?route=b")
        assert [json.loads(line)["id"] for line in answer.body.splitlines()] == ids[1::2]


@pytest.mark.parametrize(
    "body",
    [
        b"x",
        b"[]",
        b'{"force": 1}',
        b'{"header": []}',
        b'{"headers": [["a"]]}',
        b'{"headers": [["a b", "c"]]}',
        b'{"headers": [["A", "b\\r\\nC: d"]]}',
        b'{"headers": [["Content-Length", "7"]]}',
        b'{"headers": [["Host", "elsewhere"]]}',
        '{"headers": [["A", "Ā"]]}'.encode(),
    ],
)
async def test_a_replay_that_makes_no_sense(body: bytes) -> None:
    async with running(CONFIG) as proxy:
        await filled(proxy, "all")
        async with RawClient(proxy.admin_port) as client:
            answer = await client.request(
                "POST", f"/dead-letters/{FIRST}/replay", "Host: localhost", body=body
            )
        assert obstacle(answer) == (400, "bad_request")
        assert (await shown(proxy, FIRST))["state"] == "waiting"


async def test_a_body_in_chunks_that_is_too_large() -> None:
    async with running(CONFIG) as proxy, RawClient(proxy.admin_port) as client:
        fields = ("Host: localhost", "Transfer-Encoding: chunked")
        await client.send(request("POST", f"/dead-letters/{FIRST}/replay", *fields))
        await client.send(b"%x\r\n%b\r\n0\r\n\r\n" % (70_000, b"x" * 70_000))
        assert obstacle(await client.response("POST")) == (413, "body_too_large")


async def test_a_body_that_trickles_does_not_hold_the_listener(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.admin.request_body.BODY_WITHIN", 0.2)
    async with running(CONFIG) as proxy, RawClient(proxy.admin_port) as client:
        fields = ("Host: localhost", "Content-Length: 100")
        await client.send(request("POST", f"/dead-letters/{FIRST}/replay", *fields), b"{")
        answer = await client.response("POST")
        assert obstacle(answer) == (408, "slow_client")


async def test_fields_that_make_no_request() -> None:
    async with running(CONFIG) as proxy:
        await filled(proxy, "all")
        fields = [["Authorization", "a"], ["Authorization", "b"]]
        async with RawClient(proxy.admin_port) as client:
            answer = await client.request(
                "POST",
                f"/dead-letters/{FIRST}/replay",
                "Host: localhost",
                body=json.dumps({"headers": fields}).encode(),
            )
        assert obstacle(answer) == (400, "bad_request")
        assert (await shown(proxy, FIRST))["state"] == "waiting"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/dead-letters"),
        ("DELETE", "/dead-letters?all=true"),
        ("GET", "/dead-letters/export"),
        ("GET", f"/dead-letters/{FIRST}"),
        ("DELETE", f"/dead-letters/{FIRST}"),
        ("POST", f"/dead-letters/{FIRST}/replay"),
    ],
)
async def test_all_of_it_asks_for_the_token(method: str, path: str) -> None:
    async with running(f"admin_token: ${{TOKEN}}\n{CONFIG}", environ={"TOKEN": "s"}) as proxy:
        await filled(proxy, "all")
        refused = await proxy.admin(method, path)
        assert obstacle(refused) == (401, "token")
        assert len(await proxy.app._dead_letters.page()) == 1
        assert (await proxy.admin(method, path, "Authorization: Bearer s")).status == 200


async def test_a_file_that_does_not_answer() -> None:
    async with running(CONFIG) as proxy:
        await proxy.app._dead_letters._ask(lambda table: table._run("DROP TABLE deliveries"))
        for path in ("/dead-letters", f"/dead-letters/{FIRST}", "/dead-letters/export"):
            assert obstacle(await proxy.admin("GET", path)) == (503, "letters")
