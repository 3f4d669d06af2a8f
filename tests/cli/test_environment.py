"""Every option can be set by an environment variable, and each variable means one thing."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.cli.environment import options_of
from proxy.config.loader import STATE_DIR
from tests.docs.generated.command_line import commands_of
from tests.support.proxies import ROOT

SHARED = {"HOLDFAST_ADMIN": "--admin", "HOLDFAST_ADMIN_TOKEN": "--token"}
"""Variables that mean the same for several commands."""
GOOD = "upstreams: {a: 'http://127.0.0.1:1'}\nroutes: [{name: a, match: /**, upstream: a}]\n"


def variables() -> Iterator[tuple[str, str, click.Option]]:
    """Yield each variable, with the command and the option that it sets."""
    for command, declared in commands_of(main):
        for option in options_of(declared):
            assert isinstance(option.envvar, str), f"{command} {option.opts}"
            yield option.envvar, command, option


def test_every_option_has_a_variable_of_its_own() -> None:
    by_name: dict[str, list[str]] = {}
    for name, command, option in variables():
        assert re.fullmatch(r"HOLDFAST_[A-Z_]+", name)
        longest = max(option.opts, key=len)
        if name in SHARED:
            assert longest == SHARED[name]
        else:
            words = f"{command} {longest.removeprefix('--')}"
            assert name == f"HOLDFAST_{re.sub('[ -]', '_', words).upper()}"
            by_name.setdefault(name, []).append(command)
    assert len(by_name) > 50
    assert {name: commands for name, commands in by_name.items() if len(commands) > 1} == {}


def test_no_variable_is_one_that_means_something_else() -> None:
    taken = {
        STATE_DIR,
        *re.findall(
            r"HOLDFAST_[A-Z_]+",
            "\n".join(
                path.read_text()
                for folder in ("config", ".ci", ".github")
                for path in (ROOT / folder).rglob("*")
                if path.is_file()
            ),
        ),
    } - SHARED.keys()
    own = {name for name, _, _ in variables()}
    assert own & taken == set()
    # Kubernetes sets these for a service that is called holdfast or holdfast-run.
    assert not [name for name in own if re.search(r"_(PORT|HOST)(_|$)", name)]
    # click's own, for completion; and what people call what they install.
    assert not {"HOLDFAST_COMPLETE", "HOLDFAST_VERSION", "HOLDFAST_HELP"} & own


def test_the_reference_has_a_table_of_them() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    table = page.partition("<!-- variables -->")[2].partition("<!-- end of variables -->")[0]
    listed = re.findall(r"^\| `(HOLDFAST_\w+)`", table, re.MULTILINE)
    assert sorted(listed) == sorted({name for name, _, _ in variables()})


def test_what_a_person_decides_each_time_has_none() -> None:
    each_time = {"--all", "--force", "--yes"}
    found = [
        option
        for _, declared in commands_of(main)
        for option in declared.params
        if isinstance(option, click.Option) and each_time & set(option.opts)
    ]
    assert len(found) > 8
    assert {option.envvar for option in found} == {None}


@pytest.mark.parametrize("name", ["HOLDFAST_VERSION", "HOLDFAST_HELP", "HOLDFAST_CHECK_HELP"])
def test_what_asks_for_nothing_has_none(name: str) -> None:
    result = CliRunner().invoke(main, ["check"], env={name: "1"})
    assert "no configuration given" in result.output


def test_they_set_options(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.yaml"
    file.write_text(GOOD + "policies: {p: {}}\n")
    environ = {"HOLDFAST_CHECK_STRICT": "true", "HOLDFAST_CHECK_FORMAT": "json"}
    result = CliRunner().invoke(main, ["check", str(file)], env=environ)
    assert result.exit_code == 1
    assert '"ok": false' in result.output
    # The command line wins.
    result = CliRunner().invoke(main, ["check", str(file), "--format", "text"], env=environ)
    assert result.output.splitlines()[-1].endswith("not good enough for --strict, 1 warning")


def test_header_fields_stand_on_lines_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.yaml"
    file.write_text(GOOD.replace("match: /**", "match: {path: /**, headers: {X-A: b c, X-B: d}}"))
    environ = {"HOLDFAST_EXPLAIN_HEADER": "X-A: b c\nX-B: d", "HOLDFAST_EXPLAIN_CONFIG": str(file)}
    result = CliRunner().invoke(main, ["explain", "GET", "/"], env=environ)
    assert (result.exit_code, "route a" in result.output) == (0, True), result.output


def test_a_file_may_use_the_variable_of_a_command(tmp_path: Path) -> None:
    """The token of a file and of the commands that need it is the same, and stays so."""
    file = tmp_path / "holdfast.yaml"
    file.write_text(GOOD + "admin_token: ${HOLDFAST_ADMIN_TOKEN}\n")
    environ = {"HOLDFAST_ADMIN_TOKEN": "a-long-enough-token", "HOLDFAST_ADMIN": "http://elsewhere"}
    result = CliRunner().invoke(main, ["check", "--strict", str(file)], env=environ)
    assert result.exit_code == 0, result.output
