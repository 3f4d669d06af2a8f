"""``holdfast deliveries`` against a real proxy: output, colours and exit codes."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from proxy.cli import main
from tests.admin.test_deliveries import CONFIG, UNKNOWN, ended, waiting
from tests.cli.dlq import UNSET
from tests.cli.terminal import HOLDFAST, on_terminal
from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    answer,
    hang_up,
    ok,
    one_route,
    running,
)
from tests.support.delivery_admin import delivery_of


async def deliveries(
    proxy: RunningProxy, *arguments: str, program: str = "deliveries"
) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error."""
    url = f"http://127.0.0.1:{proxy.admin_port}"
    result = await asyncio.to_thread(
        CliRunner().invoke, main, [program, *arguments, "--admin", url], env=UNSET
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("command", [("list",), ("retry", "--all")])
async def test_an_empty_list_says_so(command: tuple[str, ...]) -> None:
    async with running(CONFIG) as proxy:
        assert await deliveries(proxy, *command) == (0, "no deliveries\n", "")
        of_route = (0, "no deliveries of route all\n", "")
        assert await deliveries(proxy, *command, "--route", "all") == of_route
        status, out, err = await deliveries(proxy, *command, "--route", "al\x1b")
        assert (status, out) == (1, "")
        assert err == 'Error: no route is called "al?", did you mean "all"?\n'
        assert (await deliveries(proxy, *command, "--state", "failed"))[1] == "no deliveries\n"
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        _, out, _ = await deliveries(proxy, *command)
        expected = "no route hands off, write hand_off: true in a route to change that"
        assert out == f"no deliveries: {expected}\n"
        _, out, _ = await deliveries(proxy, *command, "--route", "all")
        assert (
            out == "no deliveries of route all: it does not hand off, write hand_off: true in it\n"
        )


async def test_list() -> None:
    async with running(CONFIG) as proxy:
        first = await waiting(proxy, delay=3600.0)
        second = await ended(proxy, "ran", route="orders")
        third = await ended(proxy, "delivered")
        status, out, _ = await deliveries(proxy, "list")
        title, headings, *rows = out.splitlines()
        assert (status, title) == (0, "Deliveries, the newest first (UTC)")
        assert headings.split() == [
            "id",
            "accepted",
            "route",
            "state",
            "tries",
            "next",
            "or",
            "why",
        ]
        assert [row.split()[0] for row in rows] == [third, second, first]
        assert max(map(len, out.splitlines())) <= 80
        assert rows[0].endswith("delivered      1  201")
        assert "failed         1  attempt" in rows[1]
        _, out, _ = await deliveries(proxy, "list", "--oldest", "--limit", "1")
        assert out.startswith("The oldest 1 deliveries (UTC); for more use --limit, or filters")
        _, out, _ = await deliveries(proxy, "list", "--state", "failed", "--json")
        assert [one["id"] for one in json.loads(out)["deliveries"]] == [second]
        _, out, _ = await deliveries(proxy, "list", "--why", "attempts_exhausted", "--json")
        assert [one["id"] for one in json.loads(out)["deliveries"]] == [second]
        _, out, _ = await deliveries(proxy, "list", "--route", "orders", "--json")
        assert [one["id"] for one in json.loads(out)["deliveries"]] == [second]
        status, _, err = await deliveries(proxy, "list", "--why", "because")
        assert status == 1
        assert "Write why=REASON" in err


async def test_show_and_a_hostile_request() -> None:
    async with running(CONFIG) as proxy:
        fields = ((b"X-Trick", b"\x1b[31mred\x9b"), (b"Cookie", b"secret"))
        given = {"headers": fields, "wiped": frozenset({"cookie"}), "target": "/a\x1b]0;x\x07"}
        delivery_id = await ended(proxy, "ran", record="5f" * 16, **given)
        status, out, _ = await deliveries(proxy, "show", delivery_id)
        assert status == 0
        assert "\x1b" not in out
        assert "\x9b" not in out
        lines = out.splitlines()
        assert lines[:3] == [
            f"id: {delivery_id}",
            "state: failed",
            "route: gone, to the upstream api",
        ]
        assert "why: attempts_exhausted (timeout)" in lines
        assert "may have run: maybe" in lines
        assert f"key: holdfast keys show {'5f' * 16}" in lines
        assert "X-Trick: ?[31mred?" in lines
        assert "secret" not in out
        _, out, _ = await deliveries(proxy, "show", delivery_id, "--json")
        assert json.loads(out) == await delivery_of(proxy, delivery_id)
        status, _, err = await deliveries(proxy, "show", UNKNOWN)
        assert (status, err.startswith("Error: there is no such delivery")) == (1, True)
        assert (await deliveries(proxy, "show", "18f3a2b4c5d0a1b2c3d4"))[0] == 2


async def test_a_terminal_gets_colours() -> None:
    async with running(CONFIG) as proxy:
        await ended(proxy, "ran", route="a-route-with-a-name-that-is-rather-long")
        url = f"http://127.0.0.1:{proxy.admin_port}"
        said = await on_terminal([*HOLDFAST, "deliveries", "list", "--admin", url], {})
        assert said.status == 0
        assert "\x1b[31mfailed" in said.text
        assert max(map(len, said.uncoloured.splitlines())) <= 80


async def test_retry_of_one() -> None:
    async with running(CONFIG) as proxy:
        ran, fresh = await ended(proxy, "ran"), await waiting(proxy, delay=3600.0)
        refused = (
            "sent: it may have run and may not run twice; find out, then drop its dead letter or "
            "use --force\n"
        )
        assert await deliveries(proxy, "retry", ran) == (1, "", f"not {refused}")
        dry = await deliveries(proxy, "retry", ran, "--dry-run")
        assert dry == (1, "", f"would not be {refused}")
        assert await deliveries(proxy, "retry", fresh, "--dry-run") == (0, "would be sent\n", "")
        assert await deliveries(proxy, "retry", fresh) == (0, "is sent now\n", "")
        status, out, _ = await deliveries(proxy, "retry", ran, "--force", "--json")
        assert (status, json.loads(out)["result"]) == (0, "due")
        assert (await delivery_of(proxy, ran))["state"] == "retrying"


@pytest.mark.parametrize(
    "arguments",
    [("retry",), ("retry", UNKNOWN, "--all"), ("retry", UNKNOWN, "--route", "all"), ("retry", "x")],
    ids=" ".join,
)
async def test_a_retry_that_makes_no_sense(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["deliveries", *arguments], env=UNSET)
    assert result.exit_code == 2


async def test_retry_of_all_leaves_out_what_wants_force() -> None:
    async with running(CONFIG) as proxy:
        ran, failed = await ended(proxy, "ran"), await ended(proxy, "failed", route="orders")
        fresh = await waiting(proxy, delay=3600.0)
        await ended(proxy, "delivered")
        status, out, err = await deliveries(proxy, "retry", "--all")
        assert (status, out) == (2, "")
        assert "3 deliveries (gone: 2, orders: 1; failed: 2, waiting: 1)." in err
        assert "Write --yes" in err
        status, out, _ = await deliveries(proxy, "retry", "--all", "--dry-run")
        assert status == 1
        assert out.splitlines()[-1] == (
            "2 of 3 would be sent; 1 left out: they may have run, --force sends them; nothing was "
            "sent"
        )
        assert (await delivery_of(proxy, failed))["state"] == "failed"
        status, out, _ = await deliveries(proxy, "retry", "--all", "--yes")
        assert status == 1
        assert out.splitlines()[-1] == (
            "2 of 3 are sent now; 1 left out: they may have run, --force sends them"
        )
        states = [(await delivery_of(proxy, each))["state"] for each in (ran, failed, fresh)]
        assert states == ["failed", "retrying", "waiting"]
        arguments = ("retry", "--all", "--yes", "--force", "--state", "failed", "--json")
        status, out, _ = await deliveries(proxy, *arguments)
        assert (status, [json.loads(line)["id"] for line in out.splitlines()]) == (0, [ran])


async def test_a_proxy_that_ends_in_between() -> None:
    ids = [f"d_{number:022}" for number in range(3)]
    rows = [{"id": each, "route": "all", "state": "failed"} for each in ids]
    page = json.dumps({"deliveries": rows, "next": None}).encode()
    async with ScriptedUpstream() as admin:
        admin.script(answer(ok(page)), answer(ok(b'{"result": "due"}')), hang_up)
        arguments = ["retry", "--all", "--yes", "--state", "failed", "--admin", admin.url]
        run = CliRunner().invoke
        result = await asyncio.to_thread(run, main, ["deliveries", *arguments], env=UNSET)
    assert result.exit_code == 1
    assert result.stdout == f"1/3 {ids[0]} is sent now\n"
    assert result.stderr.splitlines()[:3] == [
        "the proxy does not answer: 1 of 3 are sent now; 1 not tried",
        f"may be sent: {ids[1]}",
        f"not tried: {ids[2]}",
    ]


async def test_cancel() -> None:
    async with running(CONFIG) as proxy:
        delivery_id = await waiting(proxy)
        dry = await deliveries(proxy, "cancel", delivery_id, "--dry-run")
        assert dry == (0, "would be cancelled\n", "")
        done = await deliveries(proxy, "cancel", delivery_id)
        assert done == (0, f"cancelled {delivery_id}\n", "")
        status, _, err = await deliveries(proxy, "cancel", delivery_id)
        assert (status, err.startswith("Error: It has ended")) == (1, True)
        status, _, err = await deliveries(proxy, "cancel", delivery_id, "--dry-run")
        assert (status, err) == (1, "Error: would not be cancelled: it is cancelled\n")


async def test_status_has_a_table_of_them() -> None:
    async with running(CONFIG) as proxy:
        await waiting(proxy, route="all", upstream="scripted", delay=3600.0)
        await ended(proxy, "ran", route="all", upstream="scripted", delay=3600.0)
        await proxy.app._deliveries._count()
        content = json.loads((await proxy.admin("GET", "/status")).body)["deliveries"]
        route = content["routes"]["all"]
        assert (route["open"], route["upstream"]) == (1, "scripted")
        assert route["states"]["failed"] == 1
        assert 3500 < route["next_seconds"] <= 3600
        assert 0 <= route["oldest_seconds"] < 600
        assert content["lines"] == {"scripted": "open"}
        assert 0 < content["used_ratio"] < 0.01
        _, out, _ = await deliveries(proxy, "--plain", program="status")
        table = out[out.index("Deliveries\n") :].splitlines()
        assert table[1].split() == ["route", "open", "oldest", "waiting", "failed", "line", "next"]
        assert table[2].split()[:2] == ["all", "1"]
        assert table[2].split()[-4:-2] == ["open", "in"]


async def test_status_without_hand_off_has_none() -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        assert "deliveries" not in json.loads((await proxy.admin("GET", "/status")).body)
