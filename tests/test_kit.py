"""The kit for wire tests, tried on itself: it must see what is there, and what is wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import (
    Certificates,
    End,
    ScriptedUpstream,
    answer,
    both_loops,
    ok,
    one_route,
    request,
    running,
    subprocess_proxy,
    tools,
)
from tests.support.newest_python import claimed, newest
from tests.support.slowest import slowest
from tests.support.tools import tool
from tests.support.witness import Stopwatch


@both_loops
async def test_a_request_goes_through_and_leaves_nothing_behind() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer(ok(b"hello", "X-Colour: red")))
        async with proxy.client() as client:
            response = await client.get("/path?q=1")
        assert (response.status, response.body) == (200, b"hello")
        assert response.get("x-colour") == "red"
        assert upstream.requests[0].target == "/path?q=1"
        assert (await proxy.logged())[0]["path"] == "/path"
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_requests_total", route="all", code="200") == 1


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(*(answer(ok(b"%d" % n)) for n in range(3)))
        async with proxy.client() as client:
            await client.send(b"".join(request("GET", f"/{n}") for n in range(3)))
            responses = await client.responses(["GET"] * 3)
        assert [response.body for response in responses] == [b"0", b"1", b"2"]


async def test_upstream_may_speak_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    async with (
        ScriptedUpstream(tls=certificates.for_server()) as upstream,
        running(one_route(upstream, options=f"tls: {{ca: {certificates.ca}}}")) as proxy,
    ):
        assert (await proxy.get()).body == b"ok"


async def test_clients_may_speak_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    listen = f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=listen)) as proxy,
        proxy.client(tls=certificates.for_client()) as client,
    ):
        assert (await client.get()).body == b"ok"
        assert upstream.requests[0].get("X-Forwarded-Proto") == "https"


async def test_process_serves_and_drains() -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream)) as proxy,
    ):
        async with proxy.client() as client:
            assert (await client.get()).body == b"ok"
            proxy.signal(signal.SIGTERM)
            assert await client.ended() is End.CLOSED
        assert await proxy.exit_status() == 0


# Programs from outside.


def test_whoever_sets_up_a_machine_finds_all_of_them_in_one_list() -> None:
    text = (tools.ROOT / "CONTRIBUTING.md").read_text()
    listed = text.partition("Some tests need a program: ")[2].partition(". ")[0]
    assert {one.name for one in tools.TOOLS} == set(listed.replace(",", "").split()) - {
        *("and", "from")
    }


def test_a_test_whose_program_is_missing_is_skipped_and_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"`make tools`.* systemd"):
        tool("systemd-analyze")


def test_in_ci_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="systemd-analyze is missing"):
        tool("systemd-analyze")


def test_what_could_not_be_had_is_said_and_is_an_error_to_whoever_asked_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tools, "FOLDER", tmp_path / "tools")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    assert tools.main([]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[0] for line in said] == [one.name for one in tools.TOOLS]
    assert all(line.endswith("; its tests are skipped") for line in said)
    assert tools.main(["--install"]) == 1


def test_a_server_under_another_name_is_linked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tools, "FOLDER", tmp_path / "tools")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "redis-check-rdb").touch(mode=0o755)
    tools.main([])
    assert f"linking {tmp_path / 'tools' / 'redis-server'}" in capsys.readouterr().err
    assert tool("redis-server") == str(tmp_path / "tools" / "redis-server")


def test_a_package_of_npm_counts_only_in_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tools, "FOLDER", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "node").touch(mode=0o755)
    modules = tmp_path / "npm-yaml-language-server" / "node_modules"
    package = modules / "yaml-language-server" / "package.json"
    package.parent.mkdir(parents=True)
    program = modules / ".bin" / "yaml-language-server"
    program.parent.mkdir()
    program.touch(mode=0o755)
    assert tools.find_tool("yaml-language-server") is None
    package.write_text('{"version": "0.0.1"}')
    assert tools.find_tool("yaml-language-server") is None
    (wanted,) = [one.npm for one in tools.TOOLS if one.name == "yaml-language-server"]
    package.write_text(json.dumps({"version": wanted}))
    assert tools.find_tool("yaml-language-server") == str(program)


# What `make test` and `make test-newest` ask.


def test_the_slowest_of_several_reports(tmp_path: Path) -> None:
    for name, seconds in (("one", 2.5), ("two", 0.25), ("three", 30.0)):
        case = f'<testcase classname="tests.some" name="{name}" time="{seconds}"/>'
        (tmp_path / f"{name}.xml").write_text(f"<testsuites>{case}</testsuites>")
    reports = sorted(tmp_path.iterdir())
    assert slowest(reports, 2) == [(30.0, "tests.some::three"), (2.5, "tests.some::one")]


def test_the_newest_python_is_one_that_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, *_, last = claimed()
    assert first > last == (3, 11)
    ours = (sys.version_info.major, sys.version_info.minor)
    name = f"python{ours[0]}.{ours[1]}"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert newest((3, 0)) is None
    (tmp_path / name).write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / name).chmod(0o755)
    assert newest((3, 0)) is None, "a shim of pyenv with nothing behind it"
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(sys.executable)
    assert newest((3, 0)) == tmp_path / name
    assert newest(ours) is None


# Measuring on a busy machine.


def spin(seconds: float) -> None:
    """Use so much of a core."""
    used = time.process_time()
    while time.process_time() < used + seconds:
        pass


@pytest.mark.parametrize("pass_time", [time.sleep, spin], ids=["slept", "computed"])
def test_a_stopwatch_counts_what_is_slept_and_computed(pass_time: Callable[[float], None]) -> None:
    measured = []
    for _ in range(5):  # one of them is not interrupted while it is read
        watch = Stopwatch()
        pass_time(0.01)
        measured.append(watch.seconds)
    assert max(measured) >= 0.0099


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="nobody counts it here")
def test_a_stopwatch_does_not_count_the_time_that_others_had_the_core() -> None:
    cores = os.sched_getaffinity(0)
    core = min(cores)
    hog = f"import os; os.sched_setaffinity(0, {{{core}}}); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", hog], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            os.sched_setaffinity(0, {core})
            watch, began = Stopwatch(), time.monotonic()
            spin(0.1)
            seconds, lasted = watch.seconds, time.monotonic() - began
        finally:
            os.sched_setaffinity(0, cores)
            other.kill()
    assert lasted > 0.13, "they took turns"
    assert seconds < 0.1 + 0.5 * (lasted - 0.1)


def test_a_stopwatch_may_outlive_a_process_that_it_watches() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as other:
        watch = Stopwatch(other.pid)
    time.sleep(0.1)
    assert watch.seconds >= 0.05
