"""``holdfast reload`` against a real proxy."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from proxy.cli import main
from tests.support import RunningProxy, ScriptedUpstream, answer, one_route, response, running
from tests.support.ports import refusing_port

CONFIG = one_route("http://127.0.0.1:9", "retry: true\nidempotency: true")


async def reload(proxy: RunningProxy, *arguments: str) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error."""
    return await reload_at(proxy.admin_port, *arguments)


async def reload_at(port: int, *arguments: str) -> tuple[int, str, str]:
    environ = {"HOLDFAST_ADMIN": f"http://127.0.0.1:{port}", "HOLDFAST_ADMIN_TOKEN": None}
    result = await asyncio.to_thread(CliRunner().invoke, main, ["reload", *arguments], env=environ)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


async def test_what_changed_and_what_did_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "holdfast")
    async with running(CONFIG) as proxy:
        file = proxy.config
        text = file.read_text()
        assert await reload(proxy) == (0, f"{file}: reloaded, nothing changed\n", "")

        file.write_text(text.replace("retry: true", "retry: {attempts: 5}") + "drain_delay: 1ms\n")
        status, out, err = await reload(proxy)
        assert (status, err) == (0, "")
        assert sorted(out.splitlines()) == sorted(
            [
                "changed routes.all.retry.attempts: 3, now 5",
                "changed drain_delay: 0s, now 1ms",
                f"{file}: reloaded, 2 changes",
            ]
        )
        assert "configuration reloaded: nothing changed" in caplog.messages
        assert caplog.messages[-1].startswith("configuration reloaded: routes.all.retry.attempts (")
        assert "drain_delay (changed)" in caplog.messages[-1]


async def test_faults_are_printed_as_check_prints_them() -> None:
    async with running(CONFIG) as proxy:
        file = proxy.config
        text = file.read_text()
        file.write_text(text + "nonsense: true\npolicies: {p: {}}\n")
        checked = CliRunner().invoke(main, ["check", str(file)])
        status, out, err = await reload(proxy)
        assert (status, err) == (1, "")
        *lines, last = out.splitlines()
        assert set(lines) == set(checked.output.splitlines()[:-1])
        assert len(lines) == 2
        assert last == "not reloaded: the configuration before it stays in force"
        # A warning is not one of the faults.
        content = json.loads((await reload(proxy, "--json"))[1])
        assert ["nonsense" in line for line in content["faults"]] == [True]
        assert ["policies.p: warning" in line for line in content["warnings"]] == [True]
        file.write_text(text)
        assert (await reload(proxy))[0] == 0
        proxy.complaints.clear()


async def test_a_change_that_needs_a_restart() -> None:
    async with running(CONFIG) as proxy:
        text = proxy.config.read_text()
        proxy.config.write_text(text + "workers: 2\nstore: redis://127.0.0.1:1\n")
        status, out, _ = await reload(proxy)
        assert status == 1
        assert "workers: changed, and that needs a restart" in out
        proxy.complaints.clear()


async def test_a_route_with_keys_that_is_renamed(caplog: pytest.LogCaptureFixture) -> None:
    async with running(CONFIG) as proxy:
        proxy.config.write_text(proxy.config.read_text().replace("name: all", "name: charges"))
        status, out, _ = await reload(proxy)
        assert status == 0
        first, *changes, last = out.splitlines()
        assert first.startswith("routes.charges: warning: it was called all, and idempotency keys")
        assert changes == ["added routes.charges", "removed routes.all"]
        assert last.endswith("reloaded, 2 changes")
        assert caplog.messages[-1] == first


async def test_what_an_untrusted_listener_says_does_not_control_the_terminal() -> None:
    evil = "\x1b[31m\n"
    change = {"path": evil, "change": "changed", "from": [evil], "to": {evil: evil * 100}}
    told = {"result": "reloaded", "files": [evil], "changes": [change], "warnings": [evil]}
    async with ScriptedUpstream() as upstream:
        for status, content in (
            (200, told),
            (422, {"type": "urn:holdfast:problem:config", "faults": [evil, 1], "warnings": evil}),
        ):
            upstream.script(answer(response(status, json.dumps(content).encode())))
            result = await asyncio.to_thread(
                CliRunner().invoke, main, ["reload", "--admin", upstream.url]
            )
            assert "\x1b" not in result.output
            assert "?[31m?" in result.output
            assert max(map(len, result.output.splitlines())) < 200


async def test_no_proxy() -> None:
    with refusing_port() as port:
        status, out, err = await reload_at(port)
    assert (status, out) == (1, "")
    assert "start Holdfast, or name its admin listener with --admin" in err
