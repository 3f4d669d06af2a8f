"""``holdfast dlq`` with many letters at once: it says what it will do, asks, and can be stopped."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from dataclasses import replace

import click
import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.cli.admin_client import AdminClient
from proxy.cli.kept import dead_letter_client, drop_client
from proxy.cli.kept.replay_client import ReplayProgress
from proxy.policy.dead_letter import DeadLetterState, Missing
from proxy.stores import StoreError
from tests.cli.dlq import (
    ALL_THREE,
    CONFIG,
    FIRST,
    SECOND,
    dlq,
    failing_posts,
    on_a_terminal,
    put,
)
from tests.cli.terminal import HOLDFAST, KeysThenCtrlC, on_terminal
from tests.support import (
    ScriptedUpstream,
    answer,
    eventually,
    hang_up,
    ok,
    one_route,
    response,
    running,
)
from tests.support.keys import Gate
from tests.support.letters import letter
from tests.support.ports import refusing_port


async def test_a_script_has_to_say_that_it_means_all() -> None:
    async with running(CONFIG) as proxy:
        await put(proxy)
        status, out, err = await dlq(proxy, "drop", "--all")
        assert (status, out) == (2, "")
        assert f"{ALL_THREE} All will be deleted for good: export them first. Write --yes" in err
        status, out, err = await dlq(proxy, "replay", "--all")
        assert (status, out) == (2, "")
        assert f"{ALL_THREE} All will be sent again, but for those that may have run" in err
        _, _, err = await dlq(proxy, "replay", "--all", "--force", "--json")
        assert f"{ALL_THREE} All will be sent again, those that may have run as well." in err
        assert len(await proxy.app._dead_letters.page()) == 3


async def test_a_dry_run_of_drop_says_which_and_drops_nothing() -> None:
    async with running(CONFIG) as proxy:
        await put(proxy)
        status, out, err = await dlq(proxy, "drop", "--all", "--dry-run")
        assert (status, err, out.splitlines()) == (
            0,
            "",
            [
                f"1/3 {FIRST} would be dropped",
                f"2/3 {SECOND} would be dropped",
                f"3/3 {letter(3).id} would be dropped",
                ALL_THREE,
                "3 of 3 would be dropped; nothing was dropped",
            ],
        )
        assert await dlq(proxy, "drop", FIRST, "--dry-run") == (0, "would be dropped\n", "")
        status, _, err = await dlq(proxy, "drop", letter(9).id, "--dry-run")
        assert (status, err.startswith("Error: there is no such letter")) == (1, True)
        assert len(await proxy.app._dead_letters.page()) == 3
        await proxy.app._dead_letters.begin_replay(FIRST, "ticket", force=True)
        status, out, _ = await dlq(proxy, "drop", "--all", "--dry-run")
        busy = f"1/3 {FIRST} would not be dropped: it is being sent again just now"
        assert (status, out.splitlines()[0]) == (1, busy)
        status, out, _ = await dlq(proxy, "drop", "--all", "--yes")
        told = "dropped 2 of 3: the others are being sent again, or were gone\n"
        assert (status, out) == (1, told)


async def test_drop_goes_by_pages_and_tells_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy ends after the first page of two."""
    monkeypatch.setattr(dead_letter_client, "PAGE_SIZE", 2)
    monkeypatch.setattr(drop_client, "PAGE_SIZE", 2)
    async with running(CONFIG) as proxy:
        await put(proxy)
        status, out, _ = await dlq(proxy, "drop", "--all", "--yes")
        assert (status, out) == (0, "1/2 dropped 2\n2/2 dropped 1\ndropped 3\n")
        await put(proxy)
        store = proxy.app._dead_letters
        drop_all = store.drop_all

        async def once(*arguments: object) -> int:
            monkeypatch.setattr(store, "drop_all", broken)
            return await drop_all(*arguments)  # type: ignore[arg-type]  # passed on as they are

        async def broken(*_: object) -> int:
            raise StoreError("the disk is gone")

        monkeypatch.setattr(store, "drop_all", once)
        status, out, err = await dlq(proxy, "drop", "--all", "--yes")
        assert (status, out) == (1, "1/2 dropped 2\n")
        first, begun, error = err.splitlines()
        assert first == "the proxy does not answer: dropped 2 of 3, 0 not tried"
        assert begun == f"may be gone, the proxy does not stop: {letter(3).id}"
        assert error.startswith("Error: the file of the dead letters does not answer")


@pytest.mark.parametrize(("typed", "left"), [(b"y\n", 0), (b"n\n", 3), (b"\n", 3)])
async def test_a_terminal_is_asked(typed: bytes, left: int) -> None:
    async with running(CONFIG) as proxy:
        await put(proxy)
        url = f"http://127.0.0.1:{proxy.admin_port}"
        command = [*HOLDFAST, "dlq", "drop", "--all", "--admin", url]
        ended = await on_terminal(command, typed=typed)
        assert ALL_THREE in ended.text
        assert "All will be deleted for good: export them first." in ended.text
        assert "Drop them? [y/N]" in ended.text
        assert ("dropped 3" if not left else "nothing was done") in ended.text
        assert (ended.status == 0) == (left == 0)
        assert len(await proxy.app._dead_letters.page()) == left


@pytest.mark.parametrize("command", ["drop", "replay"])
async def test_ctrl_c_at_the_question_does_nothing(command: str) -> None:
    async with running(CONFIG) as proxy:
        await put(proxy)
        url = f"http://127.0.0.1:{proxy.admin_port}"
        asks = ["dlq", command, "--all", "--admin", url]
        result = await asyncio.to_thread(CliRunner().invoke, main, asks, input=KeysThenCtrlC())
        assert "[y/N]" in result.stderr
        last = result.stderr.splitlines()[-1]
        assert (result.exit_code, last) == (130, "Error: nothing was done")
        assert len(await proxy.app._dead_letters.page()) == 3


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
        status, out, _ = await dlq(proxy, "replay", "--all", "--yes", "--route", "all")
        lines = out.splitlines()
        assert status == 1
        assert lines[0] == f"1/4 {ids[0]} sent, the upstream answered 200"
        assert lines[1].startswith(f"2/4 {ids[1]} failed: 404: ")
        assert lines[2] == f"3/4 {ids[2]} sent, the upstream answered 200"
        assert lines[3].startswith(f"4/4 {ids[3]} not sent: it may have run")
        assert lines[4] == "2 of 4 letters deleted, 2 kept"
        status, out, _ = await dlq(proxy, "replay", "--all", "--yes", "--force", "--json")
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
        one_caller = ("replay", "--all", "--yes", "--caller", callers[2])
        assert (await dlq(proxy, *one_caller, *credential))[0] == 0
        assert [sent.get("Authorization") for sent in upstream.requests[seen:]] == ["Bearer b"]
        assert (await dlq(proxy, "replay", "--all", "--yes", "--caller", "none"))[0] == 0
        assert (await dlq(proxy, "replay", "--all", "--caller", "x"))[1] == "no dead letters\n"
        # Those that are left are of one caller.
        status, _, _ = await dlq(proxy, "replay", "--all", "--yes", "-H", "Authorization: Bearer a")
        assert status == 0


async def test_any_other_field_is_for_all() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(429))) as upstream,
        running(one_route(upstream, "dead_letter: true")) as proxy,
    ):
        await failing_posts(proxy, 1, "Authorization: Bearer a")
        await failing_posts(proxy, 1, "Authorization: Bearer b")
        upstream.usual = answer(ok())
        assert (await dlq(proxy, "replay", "--all", "--yes", "-H", "X-Replayed-By: me"))[0] == 0


async def test_a_terminal_gets_a_bar() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(429))) as upstream,
        running(one_route(upstream, "dead_letter: true")) as proxy,
    ):
        await failing_posts(proxy, 3)
        upstream.usual = answer(ok())
        said = (await on_a_terminal(proxy, "replay", "--all", "--yes")).uncoloured
        assert "100%" in said
        assert "3 of 3 letters deleted, 0 kept" in said


async def test_a_terminal_is_asked_before_all_are_sent() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(429))) as upstream,
        running(one_route(upstream, "dead_letter: true")) as proxy,
    ):
        await failing_posts(proxy, 2)
        upstream.usual = answer(ok())
        url = f"http://127.0.0.1:{proxy.admin_port}"
        command = [*HOLDFAST, "dlq", "replay", "--all", "--admin", url]
        ended = await on_terminal(command, typed=b"n\n")
        assert ended.status == 1
        assert "2 dead letters (all: 2), the oldest of 20" in ended.text
        assert "; none may have run." in ended.text
        assert "Send them? [y/N]" in ended.text
        assert len(upstream.requests) == 2
        ended = await on_terminal(command, typed=b"y\n")
        assert (ended.status, len(upstream.requests)) == (0, 4)


@pytest.mark.parametrize("as_json", [False, True])
async def test_ctrl_c_tells_what_is_done_and_what_is_not(*, as_json: bool) -> None:
    async with (
        ScriptedUpstream(usual=answer(response(429))) as upstream,
        running(one_route(upstream, "dead_letter: true")) as proxy,
    ):
        ids = await failing_posts(proxy, 4)
        gate = Gate()
        upstream.script(answer(ok()), gate.behaviour)
        url = f"http://127.0.0.1:{proxy.admin_port}"
        options = ["--json"] if as_json else []
        program = await asyncio.create_subprocess_exec(
            *HOLDFAST, "dlq", "replay", "--all", "--yes", "--admin", url, *options,
            stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        await gate.reached.wait()
        program.send_signal(signal.SIGINT)
        out, err = await program.communicate()
        assert program.returncode == 130
        assert len(out.splitlines()) == 1
        assert err.decode().splitlines() == [
            "stopped: 1 of 4 letters deleted, 0 kept, 2 not tried",
            f"may still be sent, the proxy does not stop it: {ids[1]} (holdfast dlq show {ids[1]})",
            f"not tried: {ids[2]} {ids[3]}",
        ]
        gate.open()
        store = proxy.app._dead_letters
        # The one that was begun ends as it would have, and the others were not touched.
        await eventually(lambda: len(proxy.app._replays) == 0, what="the end of the replay")
        assert [(one.id, one.state) for one in await store.page()] == [
            (one, DeadLetterState.WAITING) for one in ids[2:]
        ]
        assert len(upstream.requests) == 6


async def test_ctrl_c_while_letters_are_dropped() -> None:
    """More than a page of letters, at a proxy that does not answer for the second one."""
    ids = [letter(number).id for number in range(1, 1003)]
    listed = [{"id": one, "route": "a", "time": "2026-11-18T15:20:34.408Z"} for one in ids]
    pages = [{"letters": listed[:1000], "next": ids[999]}, {"letters": listed[1000:]}]
    answers = [*pages, {"result": "dropped", "letters": 1000}]
    gate = Gate()
    script = [answer(response(200, json.dumps(content).encode())) for content in answers]
    async with ScriptedUpstream() as admin:
        admin.script(*script, gate.behaviour)
        program = await asyncio.create_subprocess_exec(
            *HOLDFAST, "dlq", "drop", "--all", "--yes", "--admin", admin.url,
            stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        await gate.reached.wait()
        program.send_signal(signal.SIGINT)
        out, err = await program.communicate()
    assert (program.returncode, out) == (130, b"1/2 dropped 1000\n")
    assert err.decode().splitlines() == [
        "stopped: dropped 1000 of 1002, 0 not tried",
        f"may be gone, the proxy does not stop: {ids[1000]} {ids[1001]}",
    ]
    assert [asked.method for asked in admin.requests] == ["GET", "GET", "DELETE", "DELETE"]
    assert f"until={ids[999]}" in admin.requests[2].target


async def test_a_proxy_that_ends_in_between() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(429))) as upstream,
        running(one_route(upstream, "dead_letter: true")) as proxy,
    ):
        ids = await failing_posts(proxy, 3)
        upstream.usual = answer(ok())
        replays = ReplayProgress(
            (),
            force=False,
            dry_run=False,
            client=AdminClient(f"http://127.0.0.1:{proxy.admin_port}"),
            plain_text=True,
            as_json=False,
        )
        with refusing_port() as port:
            gone = AdminClient(f"http://127.0.0.1:{port}")
            runner = CliRunner()

            @click.command()
            def command() -> None:
                sys.exit(replace(replays, client=gone).replay_all(ids))

            result = await asyncio.to_thread(runner.invoke, command, [])
        assert result.exit_code == 1
        first, begun, rest, error = result.stderr.splitlines()
        assert first == "the proxy does not answer: 0 of 3 letters deleted, 0 kept, 2 not tried"
        assert begun.startswith(f"may still be sent, the proxy does not stop it: {ids[0]} ")
        assert rest == f"not tried: {ids[1]} {ids[2]}"
        assert error.startswith("Error: no answer from ")
