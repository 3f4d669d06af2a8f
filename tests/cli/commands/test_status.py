"""``holdfast status`` against a real proxy, in pipes and on terminals."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.cli import main
from tests.cli.terminal import ESCAPE, HOLDFAST, WITHOUT_RICH, on_terminal
from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    answer,
    hang_up,
    ok,
    one_route,
    request,
    response,
    running,
    subprocess_proxy,
)
from tests.support.ports import refusing_port

FAST = "retry: {backoff: {base: 1ms}}"
LONG = "orders-of-the-second-generation-for-the-whole-of-europe-v2"
GREEN, YELLOW, RED = "\x1b[32m", "\x1b[33m", "\x1b[31m"


async def status(*arguments: str, **environ: str) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error."""
    unset = {"HOLDFAST_ADMIN": None, "HOLDFAST_ADMIN_TOKEN": None, "COLUMNS": None}
    result = await asyncio.to_thread(
        CliRunner().invoke, main, ["status", *arguments], env={**unset, **environ}
    )
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


async def error_line(*arguments: str, **environ: str) -> str:
    """Return the one line that the command prints when it fails."""
    code, out, err = await status(*arguments, **environ)
    assert (code, out) == (1, "")
    line, end, rest = err.partition("\n")
    assert (end, rest) == ("\n", "")
    return line.removeprefix("Error: ")


def url_of(proxy: RunningProxy) -> str:
    return f"http://127.0.0.1:{proxy.admin_port}"


def row(text: str, title: str, name: str) -> list[str]:
    """The cells of one row below a title."""
    below = text.partition(f"\n{title}")[2].partition("\n\n")[0]
    [found] = [line for line in below.splitlines() if line.startswith(f"{name} ")]
    return found.removeprefix(name).split()


# What it shows.


async def test_after_retries() -> None:
    async with (
        ScriptedUpstream(answer(ok())) as upstream,
        running(one_route(upstream, FAST, options="breaker: true")) as proxy,
    ):
        upstream.script(answer(response(503)), hang_up, answer(ok()))
        assert (await proxy.get("/")).status == 200
        upstream.script(answer(response(404)), answer(response(500)))
        for _ in range(3):
            await proxy.get("/")
        code, text, err = await status("--admin", url_of(proxy), COLUMNS="120")
    assert (code, err) == (0, "")
    first, store, *_ = text.splitlines()
    assert re.fullmatch(
        r"holdfast \d+\.\d+\.\d+: ready, up \d+s, \d connections?, 0 in flight", first
    )
    assert store == "store: memory of this process"
    rate, errors, refused, latency, in_flight, *totals = row(text, "Routes", "all")
    assert float(rate) > 0
    assert (errors, refused, in_flight, totals) == ("25.0%", "0.0%", "0", ["4", "25.0%"])
    assert re.fullmatch(r"[\d.]+m?s/[\d.]+m?s", latency)
    retries, worked, waits, *totals = row(text, "Retries", "all")
    assert (retries, worked, totals[:2]) == ("2", "50.0%", ["2", "50.0%"])
    assert re.fullmatch(r"[\d.]+ms/[\d.]+ms", waits)
    assert row(text, "Failed attempts", "all") == (
        ["2", "2", "2", "2", "503", "x1,", "reset", "x1,", "404", "x1,", "500", "x1"]
    )
    assert row(text, "Not retried", "all") == ["not_retryable_status", "x1", "x1"]
    address, state, calls, _, opened, idle, budget = row(text, "Upstreams", "scripted")
    assert address == upstream.url.removeprefix("http://")
    assert (state, opened, idle) == ("closed", "1", "1")
    assert float(calls) > 0
    assert int(budget) >= 1
    assert text.splitlines()[-2:] == [
        "reloads: 0 good, 0 refused",
        "not used: throttle, idempotency, dead_letter",
    ]


async def test_trouble_comes_first_with_a_sentence() -> None:
    async with (
        ScriptedUpstream(answer(response(500))) as upstream,
        running(one_route(upstream)) as proxy,
    ):
        for _ in range(3):
            await proxy.get("/")
        _, text, _ = await status("--admin", url_of(proxy))
        found = json.loads((await proxy.admin("GET", "/status")).body)["trouble"]
    above, _, below = text.partition("\nTrouble\n")
    assert above.count("\n") == 2
    sentence = below.partition("\n\n")[0]
    assert re.fullmatch(
        r"!!  route all  3 of 3 requests failed in the last \d+ s: 500 x3", sentence
    )
    assert [(one["level"], one["name"], one["reason"]) for one in found] == [
        ("bad", "all", "errors")
    ]


async def test_one_route_of_several() -> None:
    config = one_route("http://127.0.0.1:9").replace(
        "routes:", "routes:\n  - {name: other, match: /other, upstream: scripted}"
    )
    async with running(config) as proxy:
        _, text, _ = await status("--route", "other", "--admin", url_of(proxy))
        assert row(text, "Routes", "other")
        assert "\nall " not in text
        assert await error_line("--route", "othr", "--admin", url_of(proxy)) == (
            'no route is called "othr", did you mean "other"?'
        )
        assert await error_line("--route", "\x1b]0;x\x07", "--admin", url_of(proxy)) == (
            'no route is called "?]0;x?", there are: other, all'
        )


async def test_listed_statuses_are_transient_as_the_file_has_them() -> None:
    route = "retry: {attempts: 1, on: [500]}"
    async with (
        ScriptedUpstream(answer(response(500))) as upstream,
        running(one_route(upstream, route, options="refused: [418]")) as proxy,
    ):
        upstream.script(answer(response(418)), answer(response(503)))
        for _ in range(3):
            await proxy.get("/")
        _, text, _ = await status("--admin", url_of(proxy))
        assert row(text, "Failed attempts", "all")[2:4] == ["2", "1"], "418 and 500 against 503"
        proxy.config.write_text(proxy.config.read_text().replace("on: [500]", "on: [503]"))
        assert (await proxy.admin("POST", "/-/reload")).status == 200
        _, text, _ = await status("--admin", url_of(proxy))
        assert row(text, "Failed attempts", "all")[2:4] == ["2", "1"], "418 and 503 against 500"
    assert "reloads: 1 good, 0 refused" in text


async def test_limits_and_duplicates() -> None:
    route = "throttle: {rate: 1/m, burst: 2, max_wait: 1s}\nidempotency: true"
    post = request("POST", "/", "Idempotency-Key: 1", body=b"x")
    async with (
        ScriptedUpstream(answer(ok())) as upstream,
        running(one_route(upstream, route, options="throttle: {rate: 100/s, burst: 2}")) as proxy,
        proxy.client() as client,
    ):
        for _ in range(4):
            await client.send(post)
            assert (await client.response("POST")).status == 200
        assert (await proxy.get("/")).status == 200
        assert (await proxy.get("/")).status == 429
        _, text, _ = await status("--admin", url_of(proxy))
    _, errors, refused, _, *totals = row(text, "Routes", "all")
    assert (errors, refused, totals) == ("0.0%", "16.7%", ["0", "6", "0.0%", "16.7%"])
    assert row(text, "Idempotency keys", "all") == ["4", "75.0%", "0", "4", "75.0%", "0"]
    # Now: queue and pause; passed, delayed and refused of the last minute.
    assert row(text, "Throttles", "route all") == ["0", "no", *"201"]
    assert row(text, "Throttles", "upstream scripted") == ["0", "no", *"200"]
    assert re.search(
        r"^! +route all +1 of 6 requests was refused in .*: throttled x1$", text, re.MULTILINE
    )


async def test_a_shared_store(tmp_path: Path) -> None:
    store = f"store: sqlite:{tmp_path / 'keys.db'}"
    async with running(one_route("http://127.0.0.1:9", "idempotency: true", top=store)) as proxy:
        _, text, _ = await status("--admin", url_of(proxy))
    assert text.splitlines()[1] == f"store: up, sqlite:{tmp_path / 'keys.db'}, 0 errors"


async def test_an_open_breaker() -> None:
    with refusing_port() as port:
        config = one_route(f"http://127.0.0.1:{port}", options="breaker: {min_requests: 1}")
        async with running(config) as proxy:
            await proxy.get("/")
            _, text, _ = await status("--admin", url_of(proxy))
    assert row(text, "Upstreams", "scripted")[1] == "open"
    assert row(text, "Failed attempts", "all") == ["1", "0", "1", "0", "connect", "x1"]
    assert (
        f"\n!!  upstream scripted  its breaker is open, nothing is sent to 127.0.0.1:{port}\n"
        in text
    )


# How it looks.


async def test_plain_text_fits_80_columns_whatever_the_names() -> None:
    route = f"name: {LONG}\nthrottle: {{rate: 9/s}}\nidempotency: true\n{FAST}"
    config = one_route("http://127.0.0.1:9", route, options="breaker: true\nthrottle: 9/s")
    config = config.replace("  - name: all\n", "  -\n").replace("scripted", f"api-{LONG}")
    async with running(config) as proxy:
        await proxy.get("/")
        _, text, _ = await status("--admin", url_of(proxy))
        _, wide, _ = await status("--admin", url_of(proxy), COLUMNS="300")
    assert max(map(len, text.splitlines())) <= 80
    assert LONG not in text
    assert re.search(r"^orders-of\S+\.\.\S+e-v2 ", text, re.MULTILINE)
    assert LONG in wide


@pytest.mark.parametrize("arguments", [(), ("--plain",)])
async def test_a_pipe_gets_plain_text(arguments: tuple[str, ...]) -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        _, text, _ = await status(*arguments, "--admin", url_of(proxy))
    assert "\nRoutes " in text
    assert ESCAPE not in text
    assert text.isascii()


async def test_a_terminal_gets_colours() -> None:
    async with (
        ScriptedUpstream(answer(ok())) as upstream,
        running(one_route(upstream, FAST)) as proxy,
    ):
        upstream.script(answer(response(503)), answer(ok()), answer(response(500)))
        for _ in range(2):
            await proxy.get("/")
        command = (*HOLDFAST, "status", "--admin", url_of(proxy))
        coloured = await on_terminal(command)
        _, plain, _ = await status("--admin", url_of(proxy))
    assert coloured.status == 0
    assert f"{GREEN}ready" in coloured.text
    assert re.search(rf"{re.escape(RED)} *50\.0%", coloured.text), "errors"
    assert re.search(rf"{re.escape(YELLOW)} *1", coloured.text), "a transient failure"
    assert f"{ESCAPE}[1mRoutes" in coloured.text, "a title"
    assert f"{ESCAPE}[4mroute" in coloured.text, "a heading"
    # The same tables; rates depend on the time that has passed.
    shown, same = (
        re.sub(r"[\d.]+( s)?", "0", text).split() for text in (coloured.uncoloured, plain)
    )
    assert shown == same
    assert max(map(len, coloured.uncoloured.splitlines())) <= 80


@pytest.mark.parametrize(
    ("command", "environ", "arguments"),
    [
        pytest.param(HOLDFAST, {}, ["--plain"], id="plain text was asked for"),
        pytest.param(HOLDFAST, {"NO_COLOR": "1"}, [], id="NO_COLOR"),
        pytest.param(HOLDFAST, {"TERM": "dumb"}, [], id="a terminal that knows no colours"),
        pytest.param(WITHOUT_RICH, {}, [], id="rich is missing"),
    ],
)
async def test_a_terminal_without_colours(
    command: tuple[str, ...], environ: dict[str, str], arguments: list[str]
) -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        admin = ["--admin", url_of(proxy)]
        ended = await on_terminal([*command, "status", *admin, *arguments], environ)
    assert ended.status == 0
    assert re.search(
        r"^route  req/s  errors  refused  p50/p95  in flight  req", ended.text, re.MULTILINE
    )
    assert re.search(
        r"^all        0       -        -        -          0 +0 +-$", ended.text, re.MULTILINE
    )
    assert ESCAPE not in ended.text


async def test_an_empty_no_color_means_nothing() -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        command = (*HOLDFAST, "status", "--admin", url_of(proxy))
        assert ESCAPE in (await on_terminal(command, {"NO_COLOR": ""})).text


async def test_on_a_wider_terminal_names_are_whole() -> None:
    config = one_route("http://127.0.0.1:9", f"name: {LONG}").replace("  - name: all\n", "  -\n")
    async with running(config) as proxy:
        command = (*HOLDFAST, "status", "--admin", url_of(proxy))
        assert LONG in (await on_terminal(command, columns=200)).uncoloured


async def test_json_is_what_the_listener_says() -> None:
    async with running(one_route("http://127.0.0.1:9", FAST)) as proxy:
        code, text, _ = await status("--json", "--admin", url_of(proxy))
        said = json.loads((await proxy.admin("GET", "/status")).body)
    assert code == 0
    shown = json.loads(text)
    for one in (shown, said):
        del one["uptime_seconds"], one["last_minute"]["seconds"]
    assert shown == said
    assert text == json.dumps(json.loads(text), indent=2) + "\n"


async def test_many_routes() -> None:
    routes = "".join(
        f"  - {{name: route-{number}, match: /{number}, upstream: u, retry: true}}\n"
        for number in range(2500)
    )
    config = f"upstreams: {{u: 'http://127.0.0.1:9'}}\nroutes:\n{routes}"
    async with running(config) as proxy:
        assert len((await proxy.admin("GET", "/status")).body) > 1024 * 1024
        _, text, _ = await status("--admin", url_of(proxy))
    assert row(text, "Routes", "route-2499")


# Watching.


async def test_watching_as_plain_text_prints_one_block_after_another() -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        command = (*HOLDFAST, "status", "--watch", "--plain", "--admin", url_of(proxy))
        ended = await on_terminal(command, until=lambda text: text.count("\n--------\r\n") >= 2)
    assert ended.status == 0
    assert ESCAPE not in ended.text
    blocks = ended.text.split("\n--------\n")
    assert len(blocks) >= 3
    assert all("\nRoutes " in block for block in blocks[:2])
    assert "Traceback" not in ended.text


async def test_watching_on_a_terminal_gives_the_terminal_back() -> None:
    async with (
        ScriptedUpstream(answer(ok())) as upstream,
        running(one_route(upstream)) as proxy,
    ):
        command = (*HOLDFAST, "status", "--watch", "--admin", url_of(proxy))
        ended = await on_terminal(command, until=lambda text: text.count("since the last") >= 2)
    assert ended.status == 0
    assert ended.text.startswith(f"{ESCAPE}[?1049h{ESCAPE}[?25l"), "the other screen, no cursor"
    assert ended.text.endswith(f"{ESCAPE}[?25h{ESCAPE}[?1049l")
    assert "Traceback" not in ended.text


async def test_watching_as_json_prints_lines() -> None:
    async with running(one_route("http://127.0.0.1:9")) as proxy:
        command = (*HOLDFAST, "status", "--watch", "--json", "--admin", url_of(proxy))
        ended = await on_terminal(command, until=lambda text: text.count("\n") >= 2)
    lines = [line for line in ended.text.splitlines() if line.startswith("{")]
    assert ended.status == 0
    assert len(lines) >= 2
    assert all("routes" in json.loads(line) for line in lines[:2])


async def test_a_proxy_that_goes_away_while_it_is_watched_may_come_back() -> None:
    async with subprocess_proxy(one_route("http://127.0.0.1:9")) as proxy:
        url = f"http://127.0.0.1:{proxy.admin_port}"
        command = (*HOLDFAST, "status", "--watch", "--plain", "--admin", url)
        killed = False

        def enough(text: str) -> bool:
            nonlocal killed
            if "\nRoutes " in text and not killed:
                killed = True
                proxy.process.kill()
            return f"no answer from {url}" in text

        ended = await on_terminal(command, until=enough)
    assert ended.status == 0
    assert killed


async def test_watching_what_was_never_there_is_an_error() -> None:
    with refusing_port() as port:
        assert "Connection refused" in await error_line(
            "--watch", "--admin", f"http://127.0.0.1:{port}"
        )


# What goes wrong.


async def test_nobody_listens() -> None:
    with refusing_port() as port:
        url = f"http://127.0.0.1:{port}"
        assert await error_line("--admin", url) == (
            f"no answer from {url}: Connection refused; start Holdfast, or name its admin "
            f"listener with --admin"
        )


async def test_token() -> None:
    async with running(one_route("http://127.0.0.1:9", top="admin_token: s3cret")) as proxy:
        url = url_of(proxy)
        assert await error_line("--admin", url) == (
            f"{url} asks for the admin token: set HOLDFAST_ADMIN_TOKEN, or use --token"
        )
        assert await error_line("--admin", url, HOLDFAST_ADMIN_TOKEN="wr0ng") == (
            f"{url} refuses this admin token: use the one in its configuration"
        )
        assert (await status("--admin", url, HOLDFAST_ADMIN_TOKEN="s3cret"))[0] == 0
        assert (await status("--admin", url, "--token", "s3cret"))[0] == 0


@pytest.mark.parametrize("body", [b"<h1>welcome</h1>", b"{}", b'{"routes": 3}', b'{"type": "x"}'])
async def test_somebody_else_listens(body: bytes) -> None:
    async with ScriptedUpstream(answer(response(200, body))) as stranger:
        assert await error_line("--admin", stranger.url) == (
            f"what answers at {stranger.url} is no admin listener of Holdfast: name that with "
            f"--admin"
        )


async def test_a_unix_socket_from_the_environment(tmp_path: Path) -> None:
    admin = f"unix:{tmp_path / 'admin.sock'}"
    async with running(f"admin: '{admin}'\n{one_route('http://127.0.0.1:9')}"):
        assert (await status(HOLDFAST_ADMIN=admin))[0] == 0


async def test_json_is_not_about_one_route() -> None:
    code, out, err = await status("--json", "--route", "all")
    assert (code, out) == (2, "")
    assert err.endswith("Error: --json shows all routes, select one with: jq '.routes[\"NAME\"]'\n")


async def test_two_formats_at_once() -> None:
    code, out, err = await status("--plain", "--json")
    assert (code, out) == (2, "")
    assert err.endswith("Error: --plain and --json are two formats, write one of them\n")
