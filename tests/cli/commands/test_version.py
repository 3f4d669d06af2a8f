"""``holdfast version``: what this installation is made of."""

import json
import platform
from importlib import metadata

from click.testing import CliRunner

from proxy import __version__
from proxy.cli import main

PACKAGES = ("aiohttp", "click", "hiredis", "httptools", "pyyaml", "rich", "uvloop")


def test_for_programs() -> None:
    result = CliRunner().invoke(main, ["version", "--json"])
    assert result.exit_code == 0
    told = json.loads(result.output)
    assert told["version"] == __version__
    assert told["python"] == platform.python_version()
    assert told["parser"] == "c"
    assert told["event_loop"] == f"uvloop {metadata.version('uvloop')}"
    assert told["platform"]
    for package in PACKAGES:
        assert told["packages"][package] == metadata.version(package)
    assert "pytest" not in told["packages"], "only what a plain installation has"


def test_for_people() -> None:
    result = CliRunner().invoke(main, ["version"])
    assert result.exit_code == 0
    lines = dict(line.split(maxsplit=1) for line in result.output.splitlines())
    assert lines["version"] == __version__
    assert lines["click"] == metadata.version("click")
    assert "packages" not in lines
