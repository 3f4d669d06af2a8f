"""``holdfast keys`` against a real proxy: output and exit codes."""

import asyncio
import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.policy.idempotency.record import ClaimAnswer, RecordState
from tests.cli.terminal import HOLDFAST, KeysThenCtrlC, on_terminal
from tests.support import (
    Response,
    RunningProxy,
    ScriptedUpstream,
    answer,
    hang_up,
    ok,
    one_route,
    request,
    running,
)
from tests.support.clock import FakeClock
from tests.support.ports import refusing_port
from tests.support.redis_server import redis_server
from tests.support.stored_keys import RECORD, claim, put_key
from tests.support.upstream import response

CONFIG = one_route("http://127.0.0.1:9")
BOTH = pytest.mark.parametrize("command", ["show", "release"])
DATE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


async def keys(*arguments: str, **environ: str) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error."""
    unset = {"HOLDFAST_ADMIN": None, "HOLDFAST_ADMIN_TOKEN": None}
    yes = ["--yes"] if arguments[:1] == ("release",) else []
    result = await asyncio.to_thread(
        CliRunner().invoke, main, ["keys", *arguments, *yes], env={**unset, **environ}
    )
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


def url_of(proxy: RunningProxy) -> str:
    return f"http://127.0.0.1:{proxy.admin_port}"


async def error_line(*arguments: str, **environ: str) -> str:
    """Return the one line that the command prints when it fails."""
    status, out, err = await keys(*arguments, **environ)
    assert (status, out) == (1, "")
    line, end, rest = err.partition("\n")
    assert (end, rest) == ("\n", "")
    return line.removeprefix("Error: ")


@pytest.mark.parametrize(
    ("state", "result", "meaning"),
    [
        pytest.param(
            RecordState.DONE, b"x" * 70_000, "it has run; duplicates get its result", id="done"
        ),
        pytest.param(
            RecordState.UNSTORED,
            b"",
            "it has run and its result was not kept; duplicates get 409",
            id="unstored",
        ),
        pytest.param(
            RecordState.HELD,
            b"",
            "it may have run, and its outcome is unknown; duplicates get 409",
            id="held",
        ),
    ],
)
async def test_show(state: RecordState, result: bytes, meaning: str) -> None:
    async with running(CONFIG) as proxy:
        await put_key(proxy, state, result)
        status, out, err = await keys("show", RECORD, "--admin", url_of(proxy))
    assert (status, err) == (0, "")
    lines = [
        f"record: {RECORD}",
        f"state: {state.value}",
        f"meaning: {meaning}",
        "route: charges",
        f"created: {DATE}, \\d+s ago",
        f"expires: {DATE}, in 23h 59m",
        f"bytes: {len(result)}",
    ]
    assert re.fullmatch("\n".join([*lines, ""]), out)


async def test_show_for_programs() -> None:
    async with running(CONFIG) as proxy:
        await put_key(proxy, RecordState.HELD)
        status, out, _ = await keys("show", RECORD, "--json", "--admin", url_of(proxy))
    shown = json.loads(out)
    assert (status, shown["record"], shown["state"]) == (0, RECORD, "held")


async def test_show_in_flight() -> None:
    async with running(CONFIG) as proxy:
        await put_key(proxy, RecordState.IN_FLIGHT)
        _, out, _ = await keys("show", RECORD, "--admin", url_of(proxy))
    assert "\nmeaning: its request is running; duplicates get its result\n" in out
    assert re.search(r"^lease: ends in 2\ds unless it is renewed$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("away", "said"),
    [
        (-5.0, r"\ds ago"),
        (-90.0, r"1m 3\ds ago"),
        (-3750.0, "1h 2m ago"),
        (-86430.0, r"1d 3\ds ago"),
        (3750.0, "in 1h 2m"),
        (86400.0 * 3 + 3690.0, "in 3d 1h"),
    ],
)
async def test_how_far_away_a_date_is(away: float, said: str) -> None:
    date = datetime.fromtimestamp(int(time.time() + away), UTC).isoformat()
    body = json.dumps({"record": RECORD, "expires": date}).encode()
    async with ScriptedUpstream(answer(response(200, body))) as listener:
        _, out, _ = await keys("show", RECORD, "--admin", listener.url)
    assert re.search(rf"^expires: {re.escape(date)}, {said}$", out, re.MULTILINE)


async def test_from_a_409_to_an_answer() -> None:
    """The whole way: an outcome that nobody knows, a look, a release, another run."""
    route = "idempotency: {on_ambiguous: hold}"
    async with (
        ScriptedUpstream(answer(ok(b"done"))) as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(hang_up)
        post = request("POST", "/", "Idempotency-Key: 8e03978e", body=b"hello")

        async def sent() -> Response:
            await client.send(post)
            return await client.response("POST")

        assert (await sent()).status == 502
        held = await sent()
        assert held.status == 409
        content = json.loads(held.body)
        assert content["type"] == "urn:holdfast:problem:outcome_unknown"
        _, out, _ = await keys("show", content["record"], "--admin", url_of(proxy))
        assert "\nstate: held\n" in out
        assert "\nroute: all\n" in out
        assert (await keys("release", content["record"], "--admin", url_of(proxy)))[0] == 0
        again = await sent()
        assert (again.status, again.body) == (200, b"done")
        assert len(upstream.requests) == 2


@pytest.mark.parametrize("state", [RecordState.HELD, RecordState.UNSTORED, RecordState.DONE])
async def test_release(state: RecordState) -> None:
    async with running(CONFIG) as proxy:
        await put_key(proxy, state)
        said = await keys("release", RECORD, "--admin", url_of(proxy))
        assert await claim(proxy) is ClaimAnswer.NEW
    text = f"record: {RECORD}\nwas: {state.value}\nfree: the next request with this key runs\n"
    assert said == (0, text, "")


async def test_release_of_what_its_owner_has_left_alone() -> None:
    clock = FakeClock()
    async with running(CONFIG, clock=clock) as proxy:
        await put_key(proxy, RecordState.IN_FLIGHT)
        clock.advance(31)
        status, out, _ = await keys("release", RECORD, "--admin", url_of(proxy))
    assert (status, out.splitlines()[1]) == (0, "was: held")


async def test_no_release_while_it_is_in_flight() -> None:
    async with running(CONFIG) as proxy:
        await put_key(proxy, RecordState.IN_FLIGHT)
        said = await error_line("release", RECORD, "--admin", url_of(proxy))
        assert await claim(proxy, owner="another") is ClaimAnswer.BUSY
    assert re.fullmatch(
        f"{RECORD} is in flight: wait for its request to end; if its owner is gone, release it "
        r"when the lease has ended, in 2\ds; or take it away with --force",
        said,
    )


async def test_a_record_may_be_written_in_capitals() -> None:
    async with running(CONFIG) as proxy:
        await put_key(proxy, RecordState.HELD)
        for command in ("show", "release"):
            status, out, _ = await keys(command, RECORD.upper(), "--admin", url_of(proxy))
            assert (status, out.splitlines()[0]) == (0, f"record: {RECORD}")


@BOTH
async def test_nothing_is_known(command: str) -> None:
    async with running(CONFIG) as proxy:
        url = url_of(proxy)
        assert await error_line(command, RECORD, "--admin", url) == (
            f"nothing is known of {RECORD} at {url}: it has expired or was released, and its key "
            f"is free; or name another instance with --admin"
        )


@BOTH
async def test_a_unix_socket_from_the_environment(tmp_path: Path, command: str) -> None:
    admin = f"unix:{tmp_path / 'admin.sock'}"
    async with running(f"admin: '{admin}'\n{CONFIG}") as proxy:
        await put_key(proxy, RecordState.HELD)
        assert (await keys(command, RECORD, HOLDFAST_ADMIN=admin))[0] == 0


@BOTH
async def test_token(command: str) -> None:
    async with running(f"admin_token: s3cret\n{CONFIG}") as proxy:
        url = url_of(proxy)
        ask = (command, RECORD, "--admin", url)
        assert await error_line(*ask) == (
            f"{url} asks for the admin token: set HOLDFAST_ADMIN_TOKEN, or use --token"
        )
        assert await error_line(*ask, HOLDFAST_ADMIN_TOKEN="wr0ng") == (
            f"{url} refuses this admin token: use the one in its configuration"
        )
        await put_key(proxy, RecordState.HELD)
        assert (await keys(*ask, HOLDFAST_ADMIN_TOKEN="s3cret"))[0] == 0
        if command == "release":
            await put_key(proxy, RecordState.HELD)
        assert (await keys(*ask, "--token", "s3cret", HOLDFAST_ADMIN_TOKEN="wr0ng"))[0] == 0


async def test_a_token_that_no_header_can_carry() -> None:
    status, _, err = await keys("show", RECORD, "--token", "s3cret\r\nX: y")
    assert status == 2
    assert err.endswith(
        "Error: Invalid value for --token: it has spaces or other unusual characters, write it as "
        "admin_token has it\n"
    )
    assert "s3cret" not in err


@BOTH
async def test_nobody_listens(command: str) -> None:
    with refusing_port() as port:
        url = f"http://127.0.0.1:{port}"
        assert await error_line(command, RECORD, "--admin", url) == (
            f"no answer from {url}: Connection refused; start Holdfast, or name its admin "
            f"listener with --admin"
        )


@BOTH
async def test_the_store_does_not_answer(command: str) -> None:
    async with redis_server() as redis:
        store = f"store: {{url: 'redis://127.0.0.1:{redis.port}', timeout: 2s}}"
        async with running(f"{store}\n{CONFIG}") as proxy:
            await redis.stop()
            url = url_of(proxy)
            assert await error_line(command, RECORD, "--admin", url) == (
                f"the store of {url} does not answer: see the proxy's log, then try again"
            )


@BOTH
@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(200, b"<h1>welcome</h1>", id="a page"),
        pytest.param(200, b'{"record": "\\u001b[2J"}', id="another record"),
        pytest.param(404, b"{}", id="nothing"),
        pytest.param(404, b'{"type": "about:blank", "detail": "\\u001b[2J"}', id="a problem"),
    ],
)
async def test_somebody_else_listens(command: str, status: int, body: bytes) -> None:
    async with ScriptedUpstream(answer(response(status, body))) as stranger:
        assert await error_line(command, RECORD, "--admin", stranger.url) == (
            f"what answers at {stranger.url} is no admin listener of Holdfast: name that with "
            f"--admin"
        )


async def test_the_port_of_the_clients_is_not_that_of_the_admin_listener() -> None:
    async with running(CONFIG.replace("/**", "/v1/**")) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        assert await error_line("show", RECORD, "--admin", url) == (
            f"{url} is where the proxy serves its clients: name its admin listener with --admin"
        )


async def test_an_answer_of_another_version() -> None:
    content = {"type": "urn:holdfast:problem:tired", "detail": "Ask again\nlater."}
    async with ScriptedUpstream(answer(response(418, json.dumps(content).encode()))) as other:
        said = await error_line("show", RECORD, "--admin", other.url)
        assert said == f"{other.url} answered 418: Ask again?later."
        odd = {"record": RECORD, "state": "frozen", "bytes": float("nan"), "created": "once"}
        other.usual = answer(response(200, json.dumps(odd).encode()))
        status, out, _ = await keys("show", RECORD, "--admin", other.url)
    assert status == 0
    assert "\nmeaning: unknown to this version\n" in out
    assert "\ncreated: once\n" in out
    assert "\nbytes: 0\n" in out


@BOTH
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(RECORD[:-1], id="too short"),
        pytest.param(RECORD[:-1] + "/", id="no hexadecimal digit"),
        pytest.param("8e03978e-40d5-43e8-bc93-6894a57f9324", id="a key instead of its record"),
    ],
)
async def test_no_record_is_called_so(command: str, name: str) -> None:
    status, out, err = await keys(command, name)
    assert (status, out) == (2, "")
    assert err.endswith(
        "Error: Invalid value for 'RECORD': write the 32 hexadecimal digits that keys list, and "
        "the 409, have as record\n"
    )
    assert name not in err, "it may be a key"


@BOTH
async def test_no_url(command: str) -> None:
    status, _, err = await keys(command, RECORD, "--admin", "https://127.0.0.1:9901")
    assert status == 2
    assert err.endswith("Invalid value for --admin: write http://HOST:PORT or unix:PATH\n")


@pytest.mark.parametrize("arguments", [(), ("show",), ("release",), ("keep", RECORD)])
async def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert (await keys(*arguments))[0] == 2


@BOTH
async def test_help_has_an_example(command: str) -> None:
    status, out, _ = await keys(command, "--help")
    assert status == 0
    assert f"Example:\n    holdfast keys {command} {RECORD}\n" in out


# It asks first.


async def unasked(*arguments: str) -> tuple[int, str, str]:
    """A release without --yes, where there is no terminal."""
    command = ["keys", "release", RECORD, *arguments]
    result = await asyncio.to_thread(CliRunner().invoke, main, command)
    return result.exit_code, result.stdout, result.stderr


async def test_a_release_wants_yes_where_there_is_no_terminal() -> None:
    async with running(CONFIG) as proxy:
        await put_key(proxy, RecordState.HELD)
        status, out, err = await unasked("--admin", url_of(proxy))
        assert (status, out) == (2, "")
        told = " ".join(err.split())
        assert re.search(rf"{RECORD} of route \S+, created {DATE}, .* ago, is held: it may", told)
        assert "Released, the next request with this key runs, even if the first one has" in told
        assert "Write --yes to do that without being asked, or --dry-run" in told
        status, out, _ = await unasked("--admin", url_of(proxy), "--dry-run")
        assert (status, out.splitlines()[-1]) == (0, "Nothing was released.")
        assert (await keys("show", RECORD, "--admin", url_of(proxy)))[0] == 0


@pytest.mark.parametrize(("typed", "is_free"), [(b"y\n", True), (b"n\n", False)])
async def test_a_terminal_is_asked(typed: bytes, *, is_free: bool) -> None:
    async with running(CONFIG) as proxy:
        await put_key(proxy, RecordState.HELD)
        command = [*HOLDFAST, "keys", "release", RECORD, "--admin", url_of(proxy)]
        ended = await on_terminal(command, typed=typed)
        assert "Release it? [y/N]" in ended.text
        assert (ended.status == 0) == is_free
        assert ("nothing was done" in ended.text) != is_free
        assert ((await keys("show", RECORD, "--admin", url_of(proxy)))[0] == 1) == is_free


async def test_ctrl_c_at_the_question_releases_nothing() -> None:
    async with running(CONFIG) as proxy:
        await put_key(proxy, RecordState.HELD)
        command = ["keys", "release", RECORD, "--admin", url_of(proxy)]
        result = await asyncio.to_thread(CliRunner().invoke, main, command, input=KeysThenCtrlC())
        assert "Release it? [y/N]" in result.stderr
        last = result.stderr.splitlines()[-1]
        assert (result.exit_code, last) == (130, "Error: nothing was done")
        assert (await keys("show", RECORD, "--admin", url_of(proxy)))[0] == 0


async def test_a_key_in_flight_is_not_asked_about_without_force() -> None:
    async with running(CONFIG) as proxy:
        await put_key(proxy, RecordState.IN_FLIGHT)
        status, _, err = await unasked("--admin", url_of(proxy))
        assert (status, f"{RECORD} is in flight: wait for its request" in err) == (1, True)
        status, out, _ = await unasked("--admin", url_of(proxy), "--force", "--dry-run")
        assert status == 0
        assert "With --force its request loses the key; what it has sent may still run." in out
