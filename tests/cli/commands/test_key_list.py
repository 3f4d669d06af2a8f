"""``holdfast keys list`` against a real proxy."""

import asyncio
import json

from click.testing import CliRunner

from proxy.cli import main
from proxy.policy.idempotency.record import PAGE, Claim, Ending, RecordState
from tests.support import ScriptedUpstream, answer, one_route, response, running, running_together
from tests.support.redis_server import redis_server
from tests.support.stored_keys import DAY, RECORD, claims_of, put_key

CONFIG = one_route("http://127.0.0.1:9")


async def keys_list(url: str, *arguments: str) -> tuple[int, str, str]:
    environ = {"HOLDFAST_ADMIN": url, "HOLDFAST_ADMIN_TOKEN": None, "COLUMNS": "80"}
    result = await asyncio.to_thread(
        CliRunner().invoke, main, ["keys", "list", *arguments], env=environ
    )
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


async def test_a_table_the_oldest_first() -> None:
    async with running(CONFIG) as proxy:
        url = f"http://127.0.0.1:{proxy.admin_port}"
        assert await keys_list(url) == (0, "no keys are held\n", "")
        assert (await keys_list(url, "--state", "all"))[1] == "no keys are known\n"
        said = await keys_list(url, "--route", "all", "--state", "held", "--state", "unstored")
        assert said == (0, "no keys are held or unstored of route all\n", "")
        said = await keys_list(url, "--route", "al\x1b")
        assert said == (1, "", 'Error: no route is called "al?", did you mean "all"?\n')
        assert (await keys_list(url, "--route", "al", "--json"))[0] == 0
        await put_key(proxy, RecordState.HELD)
        status, out, err = await keys_list(url)
        assert (status, err) == (0, "")
        title, headings, row = out.splitlines()
        assert title == "1 key, the oldest first"
        assert headings.split() == ["record", "state", "route", "age", "expires", "in"]
        record, state, route, _age, *expires = row.split()
        assert (record, state, route) == (RECORD, "held", "charges")
        assert expires in (["23h", "59m"], ["1d"])
        content = json.loads((await keys_list(url, "--json"))[1])
        assert [key["record"] for key in content["keys"]] == [RECORD]
        assert content["more"] is False


async def test_more_than_the_limit_and_more_than_a_page() -> None:
    async with running(CONFIG) as proxy:
        url = f"http://127.0.0.1:{proxy.admin_port}"
        store = claims_of(proxy)
        for number in range(PAGE + 5):
            name = f"{number:032x}"
            await store.claim(Claim(name, "one", b"f" * 32, "pay", 30.0, DAY, takes_over=False))
            await store.settle(name, "one", Ending(RecordState.HELD, DAY))
        _, out, _ = await keys_list(url, "--limit", "3")
        title = out.splitlines()[0]
        assert title == "Some 3 keys of more; for others use --route, or --limit"
        assert len(out.splitlines()) == 5
        _, out, _ = await keys_list(url, "--limit", "10000")
        assert out.splitlines()[0] == f"{PAGE + 5} keys, the oldest first"


async def test_the_keys_of_all_instances() -> None:
    async with redis_server() as redis:
        store = f"store: {{url: 'redis://127.0.0.1:{redis.port}', timeout: 2s}}"
        config = f"{store}\n{CONFIG}"
        async with running_together(config, config) as (proxy, other):
            await put_key(other, RecordState.HELD)
            _, out, _ = await keys_list(f"http://127.0.0.1:{proxy.admin_port}")
            assert RECORD in out


async def test_what_an_untrusted_listener_says_does_not_control_the_terminal() -> None:
    evil = "\x1b[31m\n"
    key = dict.fromkeys(("record", "state", "route", "created", "expires"), evil)
    content = json.dumps({"keys": [key, 5, {"record": 1}], "next": "a"}).encode()
    async with ScriptedUpstream(answer(response(200, content))) as listener:
        _, out, _ = await keys_list(listener.url, "--limit", "1")
        assert "\x1b" not in out
        listener.usual = answer(response(200, b'{"keys": 5}'))
        status, _, err = await keys_list(listener.url)
        assert (status, "no admin listener of Holdfast" in err) == (1, True)


async def test_a_listener_that_never_ends_is_not_asked_for_ever() -> None:
    """Each page is a new one, until there are more keys than were asked for."""
    content = json.dumps({"keys": [{"record": RECORD}], "next": "a"}).encode()
    async with ScriptedUpstream(answer(response(200, content))) as listener:
        status, _, err = await keys_list(listener.url)
        assert status == 1
        assert "says twice where the next page begins" in err
