"""``holdfast attempts`` against a real proxy: the timeline of one request."""

import asyncio
import json
import re
import shlex
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.observe.recent import LONGEST
from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    answer,
    hang,
    hang_up,
    ok,
    one_route,
    request,
    response,
    running,
)
from tests.support.ports import refusing_port
from tests.support.upstream import Behaviour, reset

FAST = "retry: {backoff: {base: 1ms}}"
ID = "X-Request-Id: order-4711"
ROOT = Path(__file__).parents[3]
TIME = r"[\d.]+m?s"


async def attempts(*arguments: str, **environ: str) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error."""
    unset = {"HOLDFAST_ADMIN": None, "HOLDFAST_ADMIN_TOKEN": None}
    result = await asyncio.to_thread(
        CliRunner().invoke, main, ["attempts", *arguments], env={**unset, **environ}
    )
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


async def story(proxy: RunningProxy) -> list[str]:
    """What it says of the request, before the command that explains it."""
    code, out, err = await attempts("order-4711", "--admin", url_of(proxy))
    assert (code, err) == (0, "")
    *said, command = out.splitlines()
    assert command.startswith("explain: holdfast explain -c ")
    return said


async def error_line(*arguments: str, **environ: str) -> str:
    """Return the one line that the command prints when it fails."""
    code, out, err = await attempts(*arguments, **environ)
    assert (code, out) == (1, "")
    line, end, rest = err.partition("\n")
    assert (end, rest) == ("\n", "")
    return line.removeprefix("Error: ")


def url_of(proxy: RunningProxy) -> str:
    return f"http://127.0.0.1:{proxy.admin_port}"


def assert_says(said: list[str], *patterns: str) -> None:
    """Each line, times left open."""
    assert len(said) == len(patterns), said
    for line, pattern in zip(said, patterns, strict=True):
        assert re.fullmatch(pattern, line), f"{line!r} is not {pattern}"


async def test_a_request_that_took_three_attempts() -> None:
    async with (
        ScriptedUpstream(answer(ok())) as upstream,
        running(one_route(upstream, FAST)) as proxy,
    ):
        upstream.script(hang_up, answer(response(503)))
        await proxy.get("/orders?card=4242", ID)
        said = await story(proxy)
    where = f"scripted {re.escape(upstream.url.removeprefix('http://'))}"
    assert_says(
        said,
        "GET /orders",
        "route: all",
        f"answer: 200, after {TIME}",
        r"ended: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
        "3 attempts:",
        rf"#1 +{TIME}  {where}: reset in {TIME}, retried",
        " {13}new connection, sent, no response",
        rf"#2 +{TIME}  {where}: 503 in {TIME}, retried",
        rf" {{13}}waited {TIME} before it \(backoff\), new connection",
        rf"#3 +{TIME}  {where}: 200 in {TIME}, recovered",
        rf" {{13}}waited {TIME} before it \(backoff\), reused connection",
    )


async def test_what_could_not_be_reached() -> None:
    with refusing_port() as port:
        async with running(one_route(f"http://127.0.0.1:{port}")) as proxy:
            await proxy.get("/", ID)
            said = await story(proxy)
    assert_says(
        [said[2], *said[4:]],
        f"answer: 502, from Holdfast: connect, after {TIME}",
        "1 attempt:",
        rf"#1 +{TIME}  scripted 127.0.0.1:{port}: connect in {TIME}",
        " {13}nothing was sent",
    )


@pytest.mark.parametrize(
    ("outcome", "meaning"),
    [
        (answer(response(503)), "not_repeatable: it may have run, and may not run twice"),
        (hang_up, "not_repeatable: it may have run, and may not run twice"),
        (answer(response(500)), "not_retryable_status: retry.on does not name this status"),
    ],
)
async def test_the_reason_comes_with_what_it_means(outcome: Behaviour, meaning: str) -> None:
    async with ScriptedUpstream(outcome) as upstream, running(one_route(upstream, FAST)) as proxy:
        async with proxy.client() as client:
            await client.request("POST", "/pay", ID, body=b"5")
        said = await story(proxy)
    assert said[-1] == " " * 13 + meaning


async def test_a_hint_and_a_place_in_queue() -> None:
    route = f"{FAST}\nthrottle: {{rate: 5/s, burst: 1}}"
    async with (
        ScriptedUpstream(answer(ok())) as upstream,
        running(one_route(upstream, route)) as proxy,
    ):
        upstream.script(answer(response(503, b"", "retry-after-ms: 10")))
        await proxy.get("/", ID)
        said = await story(proxy)
    assert re.fullmatch(
        rf" {{13}}waited {TIME} before it \(hint\), queued for {TIME}, reused connection",
        said[-1],
    )


async def test_refused_by_a_throttle() -> None:
    async with (
        ScriptedUpstream(answer(ok())) as upstream,
        running(one_route(upstream, "throttle: {rate: 1/h, max_wait: 1s, burst: 1}")) as proxy,
    ):
        await proxy.get("/")
        await proxy.get("/", ID)
        said = await story(proxy)
    assert re.fullmatch(
        rf"answer: 429, from Holdfast: throttled \(max_wait\), after {TIME}", said[2]
    )
    assert said[4:] == ["0 attempts"]


async def test_a_fallback() -> None:
    async with (
        ScriptedUpstream(answer(response(500))) as upstream,
        running(one_route(upstream, "fallback: {status: 200, on: [500]}")) as proxy,
    ):
        await proxy.get("/", ID)
        said = await story(proxy)
    assert said[2].startswith("answer: 200, the fallback, after ")


async def test_a_duplicate() -> None:
    post = request("POST", "/", "Idempotency-Key: 1", ID, body=b"x")
    async with (
        ScriptedUpstream(answer(ok())) as upstream,
        running(one_route(upstream, "idempotency: true")) as proxy,
        proxy.client() as client,
    ):
        for _ in range(2):
            await client.send(post)
            await client.response("POST")
        said = await story(proxy)
    assert re.fullmatch("key: replayed, record [0-9a-f]{32}", said[4])
    assert said[5:] == ["0 attempts"]


async def test_an_id_that_came_twice_tells_two_stories() -> None:
    async with (
        ScriptedUpstream(answer(response(500))) as upstream,
        running(one_route(upstream)) as proxy,
    ):
        for path in ("/one", "/two"):
            await proxy.get(path, ID)
        said = await story(proxy)
    assert said.count("") == 1
    assert [line for line in said if line.startswith("GET")] == ["GET /one", "GET /two"]


async def test_attempts_that_were_left_out() -> None:
    async with (
        ScriptedUpstream(reset) as upstream,
        running(
            one_route(
                upstream,
                "retry: {attempts: 40, backoff: {base: 1ms, max: 1ms}}",
                options="budget: false",
            )
        ) as proxy,
    ):
        await proxy.get("/", ID)
        said = await story(proxy)
    assert "40 attempts:" in said
    at = said.index(" " * 13 + "... 8 more ...")
    assert said[at - 2].startswith("#16 ")
    assert said[at + 1].startswith("#25 ")


async def test_json_is_what_the_listener_says() -> None:
    async with (
        ScriptedUpstream(answer(response(500))) as upstream,
        running(one_route(upstream)) as proxy,
    ):
        await proxy.get("/", ID)
        _, out, _ = await attempts("order-4711", "--json", "--admin", url_of(proxy))
        said = (await proxy.admin("GET", "/attempts?request_id=order-4711")).body
    assert out == said.decode()


async def test_help_says_how_many_are_kept() -> None:
    _, out, _ = await attempts("--help")
    assert f"The last {LONGEST} notable requests" in out


# The command that explains it.


async def explain_line(*arguments: str) -> str:
    """Return the last line, which is to be pasted into a shell."""
    _, out, _ = await attempts(*arguments)
    return out.splitlines()[-1].removeprefix("explain: ")


async def pasted(command: str, folder: Path) -> str:
    """Return what a shell prints that is given *command* in *folder*."""
    # The program of this environment; a function is found before any other of that name.
    program = shlex.join([sys.executable, "-m", "proxy"])
    script = f'holdfast() {{ PYTHONPATH={shlex.quote(str(ROOT))} {program} "$@"; }}\n{command}\n'
    shell = await asyncio.create_subprocess_exec(
        "sh", stdin=PIPE, stdout=PIPE, stderr=STDOUT, cwd=folder
    )
    out, _ = await shell.communicate(script.encode())
    return out.decode()


async def test_the_command_can_be_pasted_whatever_the_client_sent(tmp_path: Path) -> None:
    """A client chooses the path; it must not get a word into an operator's shell."""
    route = f"{FAST}\nidempotency: {{required: true}}"
    evil = "/$(touch${IFS}ran)`touch${IFS}ran`;touch${IFS}ran;'|touch${IFS}ran|\"&%0d!!~*"
    async with (
        ScriptedUpstream(answer(response(503))) as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as client,
    ):
        given = await client.request(
            "POST", f"{evil}?card=4242", ID, "Idempotency-Key: s3cret", body=b"5"
        )
        assert given.status == 400  # an encoded CR gets no further
        evil = evil.replace("%0d", "")
        await client.request("POST", f"{evil}?card=4242", ID, "Idempotency-Key: s3cret", body=b"5")
        command = await explain_line("order-4711", "--admin", url_of(proxy))
        assert "s3cret" not in command
        assert "4242" not in command
        said = await pasted(command, tmp_path)
    assert f"POST {evil}\n" in said
    assert "  1. 503: not_repeatable (it may have run, and may not run twice)\n" in said
    assert "To have it sent again, one of:\n" in said
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240 - a look into an empty folder


LARGE = b"x" * 70_000
KEYED = ("Idempotency-Key: k",)


@pytest.mark.parametrize(
    ("method", "fields", "body", "script", "last"),
    [
        ("GET", (), b"", [hang_up, answer(response(503)), answer(ok())], "recovered"),
        ("GET", (), b"", [reset] * 3, "attempts_exhausted"),
        ("GET", (), b"", [answer(response(500))], "not_retryable_status"),
        ("POST", (), b"5", [hang_up], "not_repeatable"),
        ("POST", KEYED, b"5", [hang_up, answer(ok())], "recovered"),
        ("PUT", (), LARGE, [answer(response(503))], "body_too_large"),
        ("GET", (), b"", [answer(response(503, b"", "Retry-After: 90"))], "hint_too_long"),
        ("GET", (), b"", [answer(response(503, b"", "X-Should-Retry: false"))], "server_said_no"),
        (
            "POST",
            KEYED,
            b"5",
            [answer(response(503, b"", "Idempotent-Replayed: true"))],
            "final_answer",
        ),
        ("GET", ("Holdfast-Timeout: 20ms",), b"", [hang], "deadline"),
    ],
)
async def test_the_command_comes_to_the_same_verdicts(
    method: str, fields: tuple[str, ...], body: bytes, script: list[Behaviour], last: str
) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(
            one_route(upstream, f"{FAST}\nbuffer: 64KiB", options="honours_key: true")
        ) as proxy,
        proxy.client() as client,
    ):
        upstream.script(*script)
        await client.request(method, "/pay", ID, *fields, body=body)
        _, out, _ = await attempts("order-4711", "--json", "--admin", url_of(proxy))
        (told,) = json.loads(out)["requests"]
        arguments = ["explain", *told["explain"], "--json"]
        result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
    verdicts = [attempt["why"] for attempt in told["attempts"]]
    assert verdicts[-1] == last
    explained = json.loads(result.stdout)["attempts"]
    assert len(explained) == len(verdicts)
    for verdict, attempt in zip(verdicts, explained, strict=True):
        assert verdict in attempt["why"]
    meaning = dict(zip(explained[-1]["why"], explained[-1]["meaning"], strict=True))
    assert meaning[last] == told["attempts"][-1]["meaning"]


@pytest.mark.parametrize("evil", ["a\x1b[2J", "a\nb", "a\u202eb"])
async def test_what_cannot_be_seen_is_not_offered_for_pasting(evil: str) -> None:
    content = {"method": "GET", "path": "/", "attempts": [], "explain": ["-c", evil, "GET", "/"]}
    body = json.dumps({"request_id": "x", "requests": [content]}).encode()
    async with ScriptedUpstream(answer(response(200, body))) as stranger:
        _, out, _ = await attempts("x", "--admin", stranger.url)
    assert "explain" not in out


async def test_a_stranger_cannot_choose_the_command() -> None:
    content = {"explain": ["; reboot", "$(reboot)", "it's"]}
    body = json.dumps({"request_id": "x", "requests": [content]}).encode()
    async with ScriptedUpstream(answer(response(200, body))) as stranger:
        command = await explain_line("x", "--admin", stranger.url)
    assert shlex.split(command) == ["holdfast", "explain", "; reboot", "$(reboot)", "it's"]
    assert command.startswith("holdfast explain '; reboot' '$(reboot)' ")


# What goes wrong.


async def test_a_request_that_is_not_known() -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        url = url_of(proxy)
        assert await error_line("order-4711", "--admin", url) == (
            f"{url} knows no such request: only the last notable ones are kept (see access_log: "
            f"notable); ask another instance with --admin, or search the access log"
        )


async def test_token() -> None:
    async with running(one_route("http://127.0.0.1:9", top="admin_token: s3cret")) as proxy:
        url = url_of(proxy)
        assert await error_line("x", "--admin", url) == (
            f"{url} asks for the admin token: set HOLDFAST_ADMIN_TOKEN, or use --token"
        )
        assert await error_line("x", "--admin", url, "--token", "wr0ng") == (
            f"{url} refuses this admin token: use the one in its configuration"
        )
        await proxy.get("/", ID)
        asked = ("order-4711", "--admin", url)
        assert (await attempts(*asked, HOLDFAST_ADMIN_TOKEN="s3cret"))[0] == 0


async def test_nobody_listens() -> None:
    with refusing_port() as port:
        url = f"http://127.0.0.1:{port}"
        assert await error_line("x", "--admin", url) == (
            f"no answer from {url}: Connection refused; start Holdfast, or name its admin "
            f"listener with --admin"
        )


@pytest.mark.parametrize("body", [b"<h1>welcome</h1>", b"{}", b'{"request_id": "y"}'])
async def test_somebody_else_listens(body: bytes) -> None:
    async with ScriptedUpstream(answer(response(200, body))) as stranger:
        assert await error_line("x", "--admin", stranger.url) == (
            f"what answers at {stranger.url} is no admin listener of Holdfast: name that with "
            f"--admin"
        )


async def test_a_terminal_gets_no_orders_from_an_answer() -> None:
    evil = "\x1b[2J"
    attempt = {"upstream": evil, "address": evil, "outcome": evil, "why": evil, "wait_ms": "x"}
    content = {
        "method": evil,
        "path": evil,
        "route": evil,
        "time": evil,
        "attempts": [attempt, None],
    }
    body = json.dumps({"request_id": "x", "requests": [content, 3]}).encode()
    async with ScriptedUpstream(answer(response(200, body))) as stranger:
        code, out, _ = await attempts("x", "--admin", stranger.url)
    assert code == 0
    assert "\x1b" not in out


@pytest.mark.parametrize("name", ["a b", "a/b", "\u00e4", "a" * 129, ""])
async def test_no_request_is_called_so(name: str) -> None:
    code, out, err = await attempts(name)
    assert (code, out) == (2, "")
    assert err.endswith(
        "Invalid value for 'REQUEST_ID': write the X-Request-Id of an answer, or the request_id "
        "of the log\n"
    )
