"""kill -9: no letter that a client was told of is lost, and none is sent twice unasked."""

import asyncio
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.support import (
    REFUSES_503,
    ProxyProcess,
    ScriptedUpstream,
    Visit,
    WireEnded,
    answer,
    eventually,
    ok,
    one_route,
    response,
    subprocess_proxy,
)
from tests.support.dead_letters import listed, obstacle, replay, replayed, shown
from tests.support.depth import DEEP

POSTS = 1000 if DEEP else 200
CALLERS = 16

unavailable = answer(response(503))


def config(upstream: ScriptedUpstream, folder: Path) -> str:
    return one_route(
        upstream, "dead_letter: true", top=f"state_dir: {folder}/state", options=REFUSES_503
    )


async def post_until_it_dies(
    proxy: ProxyProcess, numbers: list[int], promised: dict[int, str]
) -> None:
    """One caller: it notes what it was promised, until nobody answers any more."""
    with suppress(WireEnded, OSError):
        async with proxy.client() as client:
            while numbers:
                number = numbers.pop()
                given = await client.request("POST", f"/pay/{number}", body=b"pay %d" % number)
                letter = given.get("Holdfast-Dead-Letter")
                assert given.status == 503
                assert letter
                promised[number] = letter


async def test_every_promised_letter_is_found_and_sent_once(tmp_path: Path) -> None:
    promised: dict[int, str] = {}
    numbers = list(range(POSTS))
    async with ScriptedUpstream(usual=unavailable) as upstream:
        async with subprocess_proxy(config(upstream, tmp_path)) as proxy:
            callers = [
                asyncio.ensure_future(post_until_it_dies(proxy, numbers, promised))
                for _ in range(CALLERS)
            ]
            await eventually(lambda: len(promised) > POSTS // 2, within=60)
            proxy.signal(signal.SIGKILL)
            await asyncio.gather(*callers)
        assert POSTS // 2 < len(promised) < POSTS, "killed in the middle"
        upstream.usual = answer(ok())
        before = Counter(request.target for request in upstream.requests)
        async with subprocess_proxy(config(upstream, tmp_path)) as proxy:
            found = {one["id"]: one for one in await listed(proxy)}
            assert set(promised.values()) <= found.keys()
            # A letter whose client was not told may be there as well: one each at most.
            assert len(found) <= len(promised) + CALLERS
            for number, letter in promised.items():
                assert found[letter]["target"] == f"/pay/{number}"
                assert found[letter]["replayable"]
            for letter in found:
                assert (await replayed(proxy, letter))["result"] == "succeeded"
            assert await listed(proxy) == []
            sent = Counter(request.target for request in upstream.requests) - before
            assert set(sent.values()) == {1}
            assert len(sent) == len(found)
            bodies = {one.target: one.body for one in upstream.requests[-len(found) :]}
            assert all(
                body == b"pay " + t.rpartition("/")[2].encode() for t, body in bodies.items()
            )


async def test_a_replay_of_all_that_dies_half_way_says_which_are_uncertain(tmp_path: Path) -> None:
    letters = 12
    at_work = 3

    async def stop_after_some(visit: Visit) -> None:
        await visit.read_body()
        if len(upstream.requests) - letters > letters // 2:
            hung.append(visit.request.target)
            await asyncio.Event().wait()
        await visit.send(ok())

    hung: list[str] = []
    async with ScriptedUpstream(usual=unavailable) as upstream:
        async with subprocess_proxy(config(upstream, tmp_path)) as proxy:
            numbers, promised = list(range(letters)), dict[int, str]()
            await post_until_it_dies(proxy, numbers, promised)
            upstream.usual = stop_after_some
            asking = [
                asyncio.ensure_future(_replay_some(proxy, [promised[n] for n in part]))
                for part in (range(start, letters, at_work) for start in range(at_work))
            ]
            await eventually(lambda: len(hung) == at_work, within=20)
            proxy.signal(signal.SIGKILL)
            await asyncio.gather(*asking)
        sent = Counter(request.target for request in upstream.requests[letters:])
        assert set(sent.values()) == {1}
        upstream.usual = answer(ok())
        async with subprocess_proxy(config(upstream, tmp_path)) as proxy:
            found = {one["target"]: one for one in await listed(proxy)}
            uncertain = {t for t, one in found.items() if one["state"] == "uncertain"}
            assert uncertain == set(hung), "at once, and by name"
            assert all(found[target]["may_have_run"] for target in uncertain)
            # Those that were answered are gone, but for one whose end was not on disk yet.
            assert found.keys() >= set(hung)
            assert len(found) == letters - len(sent) + at_work
            for one in found.values():
                given = await replay(proxy, one["id"])
                if one["target"] in uncertain:
                    assert obstacle(given) == (409, "letter_uncertain")
                else:
                    assert given.status == 200
            sent = Counter(request.target for request in upstream.requests[letters:])
            assert set(sent.values()) == {1}, "none of them was repeated unasked"
            assert len(sent) == letters
            left = await listed(proxy)
            assert {one["target"] for one in left} == uncertain
            for one in left:
                assert (await shown(proxy, one["id"]))["state"] == "uncertain"
                assert (await replayed(proxy, one["id"], force=True))["result"] == "succeeded"
            assert await listed(proxy) == []


async def _replay_some(proxy: ProxyProcess, letters: list[str]) -> None:
    with suppress(WireEnded, OSError):
        for letter in letters:
            await replay(proxy, letter)


async def test_a_disk_that_is_full_costs_the_promise_and_not_the_answer(tmp_path: Path) -> None:
    async with ScriptedUpstream(usual=unavailable) as upstream:
        # No file may grow beyond 256 KiB (in blocks of 512 bytes): as good as a full disk.
        async with subprocess_proxy(config(upstream, tmp_path), first="ulimit -f 512") as proxy:
            given = []
            async with proxy.client() as client:
                for number in range(12):
                    target = f"/pay/{number}"
                    given.append(await client.request("POST", target, body=b"x" * 30_000))
            assert [one.status for one in given] == [503] * 12
            promised = [one.get("Holdfast-Dead-Letter") for one in given]
            assert promised[0]
            assert promised[-1] is None
            kept = [letter for letter in promised if letter]
            assert [one["id"] for one in await listed(proxy)] == kept
            metrics = await proxy.metrics()
            assert metrics.total("holdfast_dead_letters_total") == len(kept)
            assert metrics.total("holdfast_dead_letters_dropped_total") == 12 - len(kept)
            assert "dead letters cannot be kept in" in proxy.errors
        async with subprocess_proxy(config(upstream, tmp_path)) as proxy:
            assert [one["id"] for one in await listed(proxy)] == kept
            async with proxy.client() as client:
                again = await client.request("POST", "/pay/99", body=b"x" * 30_000)
            assert again.get("Holdfast-Dead-Letter"), "there is room again"
