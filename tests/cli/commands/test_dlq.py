"""``holdfast dlq`` against a real proxy: output, colours and exit codes."""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.policy.dead_letter import Missing
from tests.cli.terminal import ESCAPE, HOLDFAST, WITHOUT_RICH, Ended, on_terminal
from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    answer,
    eventually,
    hang_up,
    ok,
    one_route,
    response,
    running,
)
from tests.support.letters import letter
from tests.support.ports import refusing_port

CONFIG = one_route("http://127.0.0.1:9", "dead_letter: true")
FIRST, SECOND = letter(1).id, letter(2).id
UNSET = {"HOLDFAST_ADMIN": None, "HOLDFAST_ADMIN_TOKEN": None}


async def dlq(proxy: RunningProxy, *arguments: str) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error."""
    url = f"http://127.0.0.1:{proxy.admin_port}"
    result = await asyncio.to_thread(
        CliRunner().invoke, main, ["dlq", *arguments, "--admin", url], env=UNSET
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


async def on_a_terminal(
    proxy: RunningProxy, *arguments: str, program: Sequence[str] = HOLDFAST, **environ: str
) -> Ended:
    """Return what the command prints on a terminal of 80 columns."""
    url = f"http://127.0.0.1:{proxy.admin_port}"
    ended = await on_terminal([*program, "dlq", *arguments, "--admin", url], environ)
    assert ended.status == 0, ended.text
    return ended


async def put(proxy: RunningProxy) -> None:
    """Three letters: one that did not run, one that may have, one without a body."""
    await proxy.app._dead_letters.keep(letter(1))
    await proxy.app._dead_letters.keep(letter(2, route="charges", may_have_run=True))
    await proxy.app._dead_letters.keep(letter(3, missing=Missing.TOO_LARGE, body=b""))


# Looking.


async def test_an_empty_list_says_so() -> None:
    async with running(CONFIG) as proxy:
        assert await dlq(proxy, "list") == (0, "no dead letters\n", "")
        assert await dlq(proxy, "list", "--route", "all") == (
            *(0, "no dead letters of route all\n", ""),
        )
        assert await dlq(proxy, "replay", "--all") == (0, "no dead letters\n", "")
        assert await dlq(proxy, "export") == (0, "", "")


async def test_an_empty_list_says_why_if_it_would_stay_empty(tmp_path: Path) -> None:
    config = one_route("http://127.0.0.1:9", top=f"state_dir: {tmp_path}")
    async with running(config) as proxy:
        assert (await dlq(proxy, "list"))[1] == (
            "no dead letters: no route keeps any, write dead_letter: true in one that should\n"
        )
        assert (await dlq(proxy, "list", "--route", "all"))[1] == (
            "no dead letters of route all: it keeps none, dead_letter is not set\n"
        )
        assert (await dlq(proxy, "list", "--route", "al"))[1] == (
            'no dead letters of route al: no route is called "al", did you mean "all"?\n'
        )
        assert (await dlq(proxy, "list", "--route", "\x1b[2Jx"))[1] == (
            'no dead letters of route ?[2Jx: no route is called "?[2Jx", there are: all\n'
        )


async def test_list() -> None:
    async with running(CONFIG) as proxy:
        await put(proxy)
        status, out, _ = await dlq(proxy, "list")
        assert (status, out.splitlines()) == (
            0,
            [
                "Dead letters, the newest first",
                "id                    time, UTC    route    error  category   tries  ran?",
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


async def test_a_script_has_to_say_that_it_means_all() -> None:
    async with running(CONFIG) as proxy:
        await put(proxy)
        status, out, err = await dlq(proxy, "drop", "--all")
        assert (status, out) == (2, "")
        assert "3 dead letters (all: 2, charges: 1) would be deleted for good: write --yes" in err
        assert len(await proxy.app._dead_letters.page()) == 3


@pytest.mark.parametrize(("typed", "left"), [(b"y\n", 0), (b"n\n", 3), (b"\n", 3)])
async def test_a_terminal_is_asked(typed: bytes, left: int) -> None:
    async with running(CONFIG) as proxy:
        await put(proxy)
        url = f"http://127.0.0.1:{proxy.admin_port}"
        command = [*HOLDFAST, "dlq", "drop", "--all", "--admin", url]
        ended = await on_terminal(command, typed=typed)
        assert "3 dead letters (all: 2, charges: 1) will be deleted for good." in ended.text
        assert "Drop them? [y/N]" in ended.text
        assert ("dropped 3" if not left else "nothing was dropped") in ended.text
        assert (ended.status == 0) == (left == 0)
        assert len(await proxy.app._dead_letters.page()) == left


async def test_export() -> None:
    async with running(CONFIG) as proxy:
        await put(proxy)
        status, out, _ = await dlq(proxy, "export", "--route", "all")
        assert status == 0
        assert [json.loads(line)["id"] for line in out.splitlines()] == [FIRST, letter(3).id]


async def failing_posts(proxy: RunningProxy, count: int, *fields: str) -> list[str]:
    """The ids of as many letters, each of a millisecond of its own: those of one have no order."""
    ids = []
    async with proxy.client() as client:
        for _ in range(count):
            given = await client.request("POST", "/pay", *fields, body=b"p")
            ids.append(given.get("Holdfast-Dead-Letter") or "")
            written = int(ids[-1][:11] or "0", 16)
            await eventually(lambda: time.time() * 1000 >= written + 1, what="the next ms")  # noqa: B023 - called at once
    return ids


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


async def test_replay_of_all() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(429))) as upstream,
        running(one_route(upstream, "dead_letter: true")) as proxy,
    ):
        ids = await failing_posts(proxy, 3)
        upstream.usual = hang_up
        ids += await failing_posts(proxy, 1)
        upstream.usual = answer(ok())
        upstream.script(answer(ok()), answer(response(404)))
        status, out, _ = await dlq(proxy, "replay", "--all", "--route", "all")
        lines = out.splitlines()
        assert status == 1
        assert lines[0] == f"1/4 {ids[0]} sent, the upstream answered 200"
        assert lines[1].startswith(f"2/4 {ids[1]} failed: 404: ")
        assert lines[2] == f"3/4 {ids[2]} sent, the upstream answered 200"
        assert lines[3].startswith(f"4/4 {ids[3]} not sent: it may have run")
        assert lines[4] == "2 of 4 letters deleted, 2 kept"
        status, out, _ = await dlq(proxy, "replay", "--all", "--force", "--json")
        assert status == 0
        assert [json.loads(line)["id"] for line in out.splitlines()] == [ids[1], ids[3]]
        assert len(upstream.requests) == 4 + 3 + 2


async def test_a_dry_run_says_which_would_be_sent_and_sends_nothing() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(429))) as upstream,
        running(one_route(upstream, "dead_letter: true")) as proxy,
    ):
        (good,) = await failing_posts(proxy, 1)
        upstream.usual = hang_up
        (ran,) = await failing_posts(proxy, 1)
        await proxy.app._dead_letters.keep(letter(8, missing=Missing.TOO_LARGE, body=b""))
        await proxy.app._dead_letters.keep(letter(9, route="gone"))
        status, out, _ = await dlq(proxy, "replay", "--all", "--dry-run")
        lines = out.splitlines()
        assert status == 1
        assert lines[0] == f"1/4 {good} would be sent"
        assert lines[1].startswith(f"2/4 {ran} would not be sent: it may have run; find out")
        assert lines[2].startswith(f"3/4 {letter(8).id} would not be sent: Its body was not kept")
        assert lines[3].startswith(f"4/4 {letter(9).id} would not be sent: The route that it came")
        assert lines[4] == "1 of 4 would be sent, 3 would not; nothing was sent"
        status, out, _ = await dlq(proxy, "replay", "--all", "--dry-run", "--force", "--json")
        results = [json.loads(line) for line in out.splitlines()]
        assert [one.get("result") for one in results] == ["would_be_sent"] * 2 + [None] * 2
        status, out, _ = await dlq(proxy, "replay", good, "--dry-run")
        assert (status, out) == (0, "would be sent\n")
        assert len(upstream.requests) == 2
        assert {one.replays for one in await proxy.app._dead_letters.page()} == {0}


async def test_one_credential_is_for_the_letters_of_one_caller() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(429))) as upstream,
        running(
            one_route(upstream, "dead_letter: true\nidempotency: {scope: [header:X-Tenant]}")
        ) as proxy,
    ):
        await failing_posts(proxy, 2, "Authorization: Bearer a")
        await failing_posts(proxy, 1, "Authorization: Bearer b")
        await failing_posts(proxy, 1)
        callers = [one.caller for one in await proxy.app._dead_letters.page()]
        upstream.usual = answer(ok())
        seen = len(upstream.requests)
        for field in ("authorization: Bearer a", "X-Tenant: acme"):
            for more in ((), ("--dry-run",), ("--force",)):
                status, out, err = await dlq(proxy, "replay", "--all", "-H", field, *more)
                assert (status, out) == (2, "")
                assert "with the letters of 3 callers" in err
                assert f"{callers[0]}: 2" in err
                assert "none: 1" in err
                assert "add --caller ID" in err
                assert "Bearer a" not in err
        assert len(upstream.requests) == seen
        credential = ("-H", "Authorization: Bearer b")
        one_caller = ("replay", "--all", "--caller", callers[2])
        assert (await dlq(proxy, *one_caller, *credential))[0] == 0
        assert [sent.get("Authorization") for sent in upstream.requests[seen:]] == ["Bearer b"]
        assert (await dlq(proxy, "replay", "--all", "--caller", "none"))[0] == 0
        assert (await dlq(proxy, "replay", "--all", "--caller", "x"))[1] == "no dead letters\n"
        # Those that are left are of one caller.
        status, _, _ = await dlq(proxy, "replay", "--all", "-H", "Authorization: Bearer a")
        assert status == 0


async def test_any_other_field_is_for_all() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(429))) as upstream,
        running(one_route(upstream, "dead_letter: true")) as proxy,
    ):
        await failing_posts(proxy, 1, "Authorization: Bearer a")
        await failing_posts(proxy, 1, "Authorization: Bearer b")
        upstream.usual = answer(ok())
        assert (await dlq(proxy, "replay", "--all", "-H", "X-Replayed-By: me"))[0] == 0


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


async def test_a_terminal_gets_a_bar() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(429))) as upstream,
        running(one_route(upstream, "dead_letter: true")) as proxy,
    ):
        await failing_posts(proxy, 3)
        upstream.usual = answer(ok())
        said = (await on_a_terminal(proxy, "replay", "--all")).uncoloured
        assert "100%" in said
        assert "3 of 3 letters deleted, 0 kept" in said


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
