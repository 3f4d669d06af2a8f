"""``holdfast init``: a first file, that passes the strictest check."""

import os
import subprocess
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy.cli import main
from proxy.config import load
from tests.cli.terminal import HOLDFAST, Ended, KeysThenCtrlC, on_terminal
from tests.support.proxies import ROOT

UPSTREAM = ("--upstream", "https://api.example/v1")
MODELINE = "# yaml-language-server: $schema=./schema.json\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, prog_name="holdfast")


# Without a terminal.


def test_a_file_from_options(folder: Path) -> None:
    result = run("init", *UPSTREAM)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(
        "holdfast.yaml: written\nNext: holdfast check holdfast.yaml, then holdfast run"
    )
    text = (folder / "holdfast.yaml").read_text()
    assert text.startswith(MODELINE)
    settings = load(["holdfast.yaml"], {}).settings
    (route,), (upstream,) = settings.routes, settings.upstreams
    assert [str(origin) for origin in upstream.origins] == ["https://api.example/v1"]
    assert route.retry is not None
    assert (route.idempotency, route.throttle, upstream.throttle) == (None, None, None)


@pytest.mark.parametrize(
    ("retry", "idempotency", "rate"),
    [
        *product(
            ((), ("--no-retry",)),
            ((), ("--idempotency",), ("--honours-key",)),
            ((), ("--rate", "5/s"), ("--rate", "5000/h"), ("--rate", "1000000/s")),
        )
    ],
)
def test_whatever_is_written_passes_the_strict_check(
    folder: Path, retry: tuple[str, ...], idempotency: tuple[str, ...], rate: tuple[str, ...]
) -> None:
    assert run("init", *UPSTREAM, *retry, *idempotency, *rate, "my.yaml").exit_code == 0
    checked = run("check", "--strict", "my.yaml")
    assert checked.exit_code == 0, checked.output
    settings = load([folder / "my.yaml"], {}).settings
    (route,), (upstream,) = settings.routes, settings.upstreams
    assert (route.retry is None) == bool(retry)
    assert (upstream.throttle is None) == (not rate)
    assert (route.idempotency is None) == (not idempotency)
    assert (upstream.honours_key is None) == (idempotency != ("--honours-key",))
    text = (folder / "my.yaml").read_text()
    assert max(map(len, text.splitlines())) <= 100
    retries_posts = not retry and idempotency == ("--honours-key",)
    assert ("a POST with a key included" in text) == retries_posts
    assert ("no POST that may have run" in text) == (not retry and not retries_posts)


def test_what_may_have_run_does_not_run_again_unless_the_upstream_sees_to_it(folder: Path) -> None:
    assert run("init", *UPSTREAM, "--idempotency").exit_code == 0
    explained = run("explain", "-c", "holdfast.yaml", "POST", "/pay", "-H", "Idempotency-Key: a")
    assert explained.exit_code == 0
    for outcome in ("503", "reset", "timeout"):
        result = run(
            *("explain", "-c", "holdfast.yaml", "POST", "/pay", "-H", "Idempotency-Key: a"),
            *("--outcome", outcome, "--format", "text"),
        )
        assert "not_repeatable" in result.output, result.output
    assert folder.is_dir()


def test_to_standard_output(folder: Path) -> None:
    result = run("init", *UPSTREAM, "-")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(MODELINE)
    assert list(folder.iterdir()) == []


def test_standard_output_that_is_the_file(folder: Path) -> None:
    file = folder / "holdfast.yaml"
    command = [*HOLDFAST, "init", *UPSTREAM]
    with file.open("wb") as out:  # as the shell does for > holdfast.yaml
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, stdout=out, env=environ, check=True, timeout=30)
    assert file.read_text().startswith(MODELINE)


def test_a_file_that_is_there_is_kept(folder: Path) -> None:
    file = folder / "holdfast.yaml"
    file.write_text("mine\n")
    result = run("init", *UPSTREAM)
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: holdfast.yaml is there already: name another file, or use --force\n"
    )
    assert file.read_text() == "mine\n"
    (folder / "dangling.yaml").symlink_to(folder / "nowhere")
    assert run("init", *UPSTREAM, "dangling.yaml").exit_code == 1
    assert not (folder / "nowhere").exists()
    assert run("init", *UPSTREAM, "--force").exit_code == 0
    assert file.read_text().startswith(MODELINE)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        pytest.param(
            (), 2, "no upstream given, write: holdfast init --upstream http://HOST:PORT", id="none"
        ),
        pytest.param(
            ("--upstream", "api.example"), 2, "has no scheme, write http://api.example", id="no URL"
        ),
        pytest.param(
            ("--upstream", "http://user:pw@a.example"), 2, "must not hold credentials", id="secret"
        ),
        pytest.param((*UPSTREAM, "--rate", "5"), 2, "5 has no unit, write 5/s", id="no rate"),
        pytest.param(
            (*UPSTREAM, "--honours-key", "--no-idempotency"), 2, "remove one of them", id="odd"
        ),
        pytest.param(
            (*UPSTREAM, "none/a.yaml"), 1, "cannot write none/a.yaml: No such", id="where"
        ),
    ],
)
def test_what_is_refused(folder: Path, arguments: tuple[str, ...], status: int, said: str) -> None:
    result = run("init", *arguments)
    assert result.exit_code == status
    assert said in result.stderr
    assert "pw@" not in result.stderr
    assert list(folder.iterdir()) == []


def test_a_url_is_read_as_it_was_typed(folder: Path) -> None:
    assert run("init", "--upstream", "http://a.example/x$y,z").exit_code == 0
    (upstream,) = load([folder / "holdfast.yaml"], {}).settings.upstreams
    assert [str(origin) for origin in upstream.origins] == ["http://a.example/x$y,z"]


# On a terminal.


async def asked(folder: Path, typed: bytes, *arguments: str) -> Ended:
    return await on_terminal(
        [*HOLDFAST, "init", *arguments, str(folder / "a.yaml")],
        {"PYTHONPATH": str(ROOT)},
        typed=typed,
    )


async def test_it_asks_for_what_is_not_given(folder: Path) -> None:
    typed = b"api.example\nhttps://api.example\n\ny\nn\n100\n100/s\n"
    said = await asked(folder, typed)
    assert said.status == 0, said.text
    assert "URL of the upstream, such as https://api.example: " in said.text
    assert "has no scheme, write http://api.example" in said.text, "asked again"
    assert "100 has no unit" in said.text, "asked again"
    settings = load([folder / "a.yaml"], {}).settings
    (route,), (upstream,) = settings.routes, settings.upstreams
    assert route.retry is not None
    assert route.idempotency is not None
    assert (upstream.honours_key, upstream.throttle is None) == (None, False)


async def test_it_does_not_ask_for_what_is_given(folder: Path) -> None:
    said = await asked(folder, b"", *UPSTREAM, "--yes")
    assert (said.status, "?" in said.text) == (0, False), said.text
    said = await asked(folder, b"n\n", *UPSTREAM, "--no-retry", "--rate", "none", "--force")
    assert (said.status, said.text.count("?")) == (0, 1), said.text


async def test_the_end_of_the_input_leaves_nothing_behind(folder: Path) -> None:
    said = await asked(folder, b"https://api.example\n\x04")
    assert (said.status, said.text.splitlines()[-1]) == (1, "Error: nothing was done"), said.text
    assert "Traceback" not in said.text
    assert not (folder / "a.yaml").exists()


@pytest.mark.parametrize(
    ("typed", "question"),
    [
        pytest.param(b"", "URL of the upstream", id="at the first question"),
        pytest.param(b"https://api.example\n", "[Y/n]", id="half-way"),
        pytest.param(b"https://api.example\n\n\n", "[none]", id="at the last question"),
    ],
)
def test_ctrl_c_at_a_question_leaves_nothing_behind(
    folder: Path, typed: bytes, question: str
) -> None:
    result = CliRunner().invoke(main, ["init", "a.yaml"], input=KeysThenCtrlC(typed))
    assert question in result.stderr
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (130, "Error: nothing was done")
    assert not (folder / "a.yaml").exists()
