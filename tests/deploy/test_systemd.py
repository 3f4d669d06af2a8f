"""The unit for systemd."""

import configparser
import shlex
import sys
from pathlib import Path

from proxy.policy.settings import Settings
from tests.deploy.deployed import FOLDER, options_of_run, patience, run, settings_of
from tests.support.tools import tool

FILE = FOLDER / "holdfast.service"
INSTALLED = "/opt/holdfast/bin/holdfast"


def unit() -> configparser.ConfigParser:
    """The unit, no key of which is there twice."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as its documentation says
    parser.read_string(FILE.read_text())
    return parser


def default_settings(folder: Path) -> Settings:
    return settings_of(
        "upstreams: {a: 'http://a.example'}\nroutes: [{match: /**, upstream: a}]\n", folder
    )


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    file = tmp_path / FILE.name
    ours = str(Path(sys.executable).parent / "holdfast")
    file.write_text(FILE.read_text().replace(INSTALLED, ours))
    assert run(tool("systemd-analyze"), "verify", str(file)) == ""


def test_it_is_told_when_the_proxy_serves() -> None:
    """The messages themselves are tested in tests/runtime/test_systemd.py."""
    assert unit()["Service"]["Type"] == "notify"


def test_a_reload_is_the_signal_that_reloads() -> None:
    assert unit()["Service"]["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_a_process_that_hangs_is_started_anew_and_leaves_no_core() -> None:
    """That its event loop says that it is alive is tested in tests/runtime/test_systemd.py."""
    service = unit()["Service"]
    assert int(service["WatchdogSec"]) >= 10, "a busy machine is no reason"
    assert service["Restart"] == "on-failure", "which the watchdog is"
    assert service["LimitCORE"] == "0"


def test_its_command_is_one_of_ours() -> None:
    program, *arguments = shlex.split(unit()["Service"]["ExecStart"])
    assert program == INSTALLED
    assert options_of_run(arguments)["files"] == ("/etc/holdfast/holdfast.yaml",)


def test_it_has_time_to_drain(tmp_path: Path) -> None:
    assert patience(default_settings(tmp_path)) < int(unit()["Service"]["TimeoutStopSec"])


def test_it_writes_where_it_may() -> None:
    service = unit()["Service"]
    assert service["DynamicUser"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["Environment"] == f"HOLDFAST_STATE_DIR=%S/{service['StateDirectory']}"
