import json
import subprocess
import sys

from click.testing import CliRunner

from proxy.cli import main
from proxy.config.schema.json_schema import json_schema


def test_prints_the_schema() -> None:
    result = CliRunner().invoke(main, ["schema"])
    assert result.exit_code == 0
    assert json.loads(result.output) == json_schema()


def test_help_waits_for_no_heavy_package() -> None:
    program = (
        "import sys, proxy.cli\n"
        "try: proxy.cli.main(['--help'], prog_name='holdfast')\n"
        "except SystemExit: pass\n"
        "print(sorted({'aiohttp', 'pydantic', 'yaml', 'uvloop'} & sys.modules.keys()))\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert "check" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "[]"


def test_the_package_is_the_command() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "proxy", "schema"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert json.loads(shown.stdout) == json_schema()
