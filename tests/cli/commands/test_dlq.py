"""``holdfast dlq`` against a real proxy: output, colours and exit codes."""

import asyncio
import json
import shlex

import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.policy.dead_letter import Missing
from tests.cli.dlq import (
    CONFIG,
    FIRST,
    SECOND,
    UNSET,
    dlq,
    failing_posts,
    on_a_terminal,
    put,
)
from tests.cli.terminal import ESCAPE, WITHOUT_RICH
from tests.support import (
    ScriptedUpstream,
    answer,
    hang_up,
    ok,
    one_route,
    response,
    running,
)
from tests.support.letters import letter
from tests.support.ports import refusing_port

# Looking.


EMPTY = [("list",), ("replay", "--all"), ("drop", "--all")]


@pytest.mark.parametrize("command", EMPTY)
async def test_an_empty_list_says_so(command: tuple[str, ...]) -> None:
    async with running(CONFIG) as proxy:
        assert await dlq(proxy, *command) == (0, "no dead letters\n", "")
        of_route = (0, "no dead letters of route all\n", "")
        assert await dlq(proxy, *command, "--route", "all") == of_route
        unknown = (1, "", 'Error: no route is called "al", did you mean "all"?\n')
        assert await dlq(proxy, *command, "--route", "al") == unknown
        _, _, err = await dlq(proxy, *command, "--route", "qqq\x1b")
        assert err == 'Error: no route is called "qqq?", there are: all\n'
        assert await dlq(proxy, "export") == (0, "", "no dead letters\n")
        assert (await dlq(proxy, "export", "--route", "al"))[0] == 1
        status, out, _ = await dlq(proxy, "list", "--route", "al", "--json")
        assert (status, json.loads(out)) == (0, {"letters": [], "next": None})


@pytest.mark.parametrize("command", EMPTY)
async def test_where_no_route_keeps_letters_it_says_so(command: tuple[str, ...]) -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        _, out, _ = await dlq(proxy, *command)
        assert out == (
            "no dead letters: no route keeps any, write dead_letter: true in a route to change "
            "that\n"
        )
        _, out, _ = await dlq(proxy, *command, "--route", "all")
        assert out == (
            "no dead letters of route all: it keeps none, write dead_letter: true in it\n"
        )


async def test_list() -> None:
    async with running(CONFIG) as proxy:
        await put(proxy)
        status, out, _ = await dlq(proxy, "list")
        assert (status, out.splitlines()) == (
            0,
            [
                "Dead letters, the newest first",
                "id                    time (UTC)   route    error  category   tries  ran?",
                f"{letter(3).id}  10-02 07:06  all      503    transient    1/3  no",
                f"{SECOND}  10-02 07:06  charges  503    transient    1/3  maybe",
                f"{FIRST}  10-02 07:06  all      503    transient    1/3  no",
            ],
        )
        _, out, _ = await dlq(proxy, "list", "--oldest", "--limit", "2")
        title, _, *rows = out.splitlines()
        assert title == "The oldest 2 dead letters; for more use --limit, or export"
        assert [row.split()[0] for row in rows] == [FIRST, SECOND]
        _, out, _ = await dlq(proxy, "list", "--route", "charges", "--json")
        assert [one["id"] for one in json.loads(out)["letters"]] == [SECOND]


async def test_a_terminal_gets_colours_and_eighty_columns() -> None:
    async with running(CONFIG) as proxy:
        await put(proxy)
        await proxy.app._dead_letters.keep(
            letter(4, route="a-route-with-a-name-that-is-rather-long")
        )
        said = await on_a_terminal(proxy, "list")
        assert "\x1b[31m503" in said.text
        assert "\x1b[33mtransient" in said.text
        assert "\x1b[32mno" in said.text
        _, _, *rows = lines = said.uncoloured.splitlines()
        assert max(map(len, lines)) <= 80
        ids = [letter(number).id for number in (4, 3, 2, 1)]
        assert [row.split()[0] for row in rows] == ids
        for plain in (
            await on_a_terminal(proxy, "list", "--plain"),
            await on_a_terminal(proxy, "list", NO_COLOR="1"),
        ):
            assert ESCAPE not in plain.text
            assert max(map(len, plain.text.splitlines())) <= 80
            assert all(one in plain.text for one in ids)


async def test_it_works_without_rich() -> None:
    async with running(CONFIG) as proxy:
        await put(proxy)
        said = await on_a_terminal(proxy, "list", program=WITHOUT_RICH)
        assert FIRST in said.text
        assert ESCAPE not in said.text


async def test_a_terminal_gets_long_lines_whole() -> None:
    long = "{'name': 'Zoë', " + "'amount': 100, " * 20 + "}"
    async with running(CONFIG) as proxy:
        await proxy.app._dead_letters.keep(letter(body=long.encode(), may_have_run=True))
        said = await on_a_terminal(proxy, "show", FIRST)
        assert "may have run: \x1b[33mmaybe" in said.text
        assert long in said.uncoloured.splitlines()


async def test_show() -> None:
    async with running(CONFIG) as proxy:
        await proxy.app._dead_letters.keep(
            letter(body=b"line\x1b[31m one\n\ttwo", may_have_run=True, record="5f" * 16)
        )
        status, out, _ = await dlq(proxy, "show", FIRST.upper())
        assert status == 0
        for line in (
            f"id: {FIRST}",
            "state: waiting",
            "error: 503 (transient, attempts_exhausted)",
            "attempts_exhausted: it was the last attempt",
            "may have run: maybe, find out before you send it again",
            f"key: holdfast keys show {'5f' * 16}",
            "POST /charges?a=b",
            "Content-Type: text/plain",
            "Authorization: (not kept, give it with -H)",
            "line?[31m one",
            "    two",
        ):
            assert line in out.splitlines()
        assert "first sent: 2096-10-02T07:06:41.000Z, failed" in out
        assert "\x1b" not in out
        _, out, _ = await dlq(proxy, "show", FIRST, "--json")
        assert json.loads(out)["id"] == FIRST


async def test_show_has_the_command_that_explains_it() -> None:
    async with (
        ScriptedUpstream(usual=hang_up) as upstream,
        running(one_route(upstream, "dead_letter: true\nretry: true")) as proxy,
    ):
        key = ("Idempotency-Key: s3cret", "Authorization: Bearer s3cret")
        (one,) = await failing_posts(proxy, 1, *key)
        _, out, _ = await dlq(proxy, "show", one)
        above = out.partition("\nPOST /pay\n")[0]
        assert "not_repeatable: it may have run, and may not run twice" in above
        (command,) = [line for line in above.splitlines() if line.startswith("explain: ")]
        _, program, *arguments = shlex.split(command)
        assert arguments[0] == "explain"
        assert arguments[3:] == ["POST", "/pay", "-H", "Idempotency-Key: KEY", "--outcome", "reset"]
        explained = await asyncio.to_thread(CliRunner().invoke, main, arguments)
        assert program == "holdfast"
    assert "  1. reset: not_repeatable (it may have run, and may not run twice)" in explained.output
    assert "To have it sent again, one of:" in explained.output


async def test_show_of_a_body_that_is_no_text() -> None:
    async with running(CONFIG) as proxy:
        await proxy.app._dead_letters.keep(letter(body=b"\xff" + bytes(range(48, 68))))
        _, out, _ = await dlq(proxy, "show", FIRST)
        assert "00000000  ff 30 31 32 33 34 35 36 37 38 39 3a 3b 3c 3d 3e  .0123456789:;<=>" in out
        await proxy.app._dead_letters.keep(letter(2, body=b"", missing=Missing.BUFFER_FULL))
        _, out, _ = await dlq(proxy, "show", SECOND)
        assert "body: not kept (buffer_full), so it cannot be sent again" in out


# Acting.


async def test_drop() -> None:
    async with running(CONFIG) as proxy:
        await put(proxy)
        assert await dlq(proxy, "drop", FIRST) == (0, f"dropped {FIRST}\n", "")
        status, _, err = await dlq(proxy, "drop", FIRST)
        assert (status, err.startswith("Error: there is no such letter")) == (1, True)
        drop_all = ("drop", "--all", "--yes")
        assert await dlq(proxy, *drop_all, "--route", "charges") == (0, "dropped 1\n", "")
        assert await dlq(proxy, *drop_all) == (0, "dropped 1\n", "")
        assert await dlq(proxy, *drop_all) == (0, "no dead letters\n", "")


async def test_export() -> None:
    async with running(CONFIG) as proxy:
        await put(proxy)
        status, out, _ = await dlq(proxy, "export", "--route", "all")
        assert status == 0
        assert [json.loads(line)["id"] for line in out.splitlines()] == [FIRST, letter(3).id]


async def test_replay_of_one() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(429))) as upstream,
        running(one_route(upstream, "dead_letter: true")) as proxy,
    ):
        (one,) = await failing_posts(proxy, 1, "Authorization: Bearer a")
        upstream.usual = answer(response(401))
        status, out, err = await dlq(proxy, "replay", one)
        assert (status, out) == (1, "")
        assert err == (
            "failed: 401: The upstream answered 401: the letter stays. Drop it if that is its "
            "answer.\n"
        )
        upstream.usual = answer(ok())
        status, out, _ = await dlq(proxy, "replay", one, "-H", "Authorization: Bearer a:b")
        assert (status, out) == (0, "sent, the upstream answered 200\n")
        assert upstream.requests[-1].get("Authorization") == "Bearer a:b"
        status, _, err = await dlq(proxy, "replay", one)
        assert (status, "not sent: there is no such letter" in err) == (1, True)


async def test_what_may_have_run_is_not_sent_without_force() -> None:
    async with (
        ScriptedUpstream(usual=hang_up) as upstream,
        running(one_route(upstream, "dead_letter: true")) as proxy,
    ):
        (one,) = await failing_posts(proxy, 1)
        status, _, err = await dlq(proxy, "replay", one)
        assert (status, err) == (
            1,
            "not sent: it may have run; find out, then drop it or use --force\n",
        )
        assert len(upstream.requests) == 1
        upstream.usual = answer(ok())
        assert (await dlq(proxy, "replay", one, "--force"))[0] == 0


async def test_a_letter_whose_key_has_a_result_is_not_said_to_be_sent() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(429))) as upstream,
        running(one_route(upstream, "dead_letter: true\nidempotency: true")) as proxy,
    ):
        (one,) = await failing_posts(proxy, 1, "Idempotency-Key: k")
        upstream.usual = answer(ok())
        await failing_posts(proxy, 1, "Idempotency-Key: k")
        status, out, _ = await dlq(proxy, "replay", one)
        assert (status, out) == (
            0,
            "not sent: its key has a result already (200), the letter is deleted\n",
        )
        assert len(upstream.requests) == 2


async def test_a_letter_that_was_refused_says_that_nothing_was_sent() -> None:
    policy = "dead_letter: {on: [default, refusals]}\nthrottle: {rate: 1/h, max_wait: 0s}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, policy)) as proxy:
        _, one = await failing_posts(proxy, 2)
        _, out, _ = await dlq(proxy, "show", one)
        assert "error: throttled (transient)" in out.splitlines()
        assert "may have run: no" in out.splitlines()
        assert ", nothing was sent" in next(
            line for line in out.splitlines() if line.startswith("refused: ")
        )


# Mistakes.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "x"), "write the 20 hexadecimal digits"),
        (("replay",), "name one letter, or write --all"),
        (("replay", FIRST, "--all"), "name one letter, or write --all"),
        (("replay", FIRST, "--route", "a"), "--route goes with --all"),
        (("replay", FIRST, "--caller", "a"), "--caller goes with --all"),
        (("replay", FIRST, "-H", "s3cret"), "write 'Name: value'"),
        (("drop",), "name one letter, or write --all"),
        (("drop", FIRST, "--route", "a"), "--route goes with --all"),
        (("list", "--limit", "0"), "--limit"),
    ],
)
async def test_wrong_usage(arguments: tuple[str, ...], said: str) -> None:
    async with running(CONFIG) as proxy:
        status, _, err = await dlq(proxy, *arguments)
        assert status == 2
        assert said in err
        assert "s3cret" not in err


@pytest.mark.parametrize("command", ["list", "export"])
async def test_nobody_answers(command: str) -> None:
    with refusing_port() as port:
        result = await asyncio.to_thread(
            CliRunner().invoke,
            main,
            ["dlq", command, "--admin", f"http://127.0.0.1:{port}"],
            env=UNSET,
        )
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: no answer from http://127.0.0.1:{port}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["list", "export"])
async def test_the_token(command: str) -> None:
    async with running(f"admin_token: ${{T}}\n{CONFIG}", environ={"T": "s"}) as proxy:
        status, _, err = await dlq(proxy, command)
        assert (status, "asks for the admin token" in err) == (1, True)
        status, _, err = await dlq(proxy, command, "--token", "x")
        assert (status, "refuses this admin token" in err) == (1, True)
        assert (await dlq(proxy, command, "--token", "s"))[0] == 0
