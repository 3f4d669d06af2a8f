"""What all files of ``config/designs`` have in common."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.config import load
from tests.config.core_schema import read
from tests.designs.design import FOLDER, Design
from tests.support.json_schema import Draft202012Validator

FILES = sorted(FOLDER.iterdir())
HIGHEST_ROLL = 1 - 1e-9

every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


def header(file: Path) -> str:
    """The comment at its top, as one line."""
    lines = file.read_text().partition("\n\n")[0].splitlines()
    return " ".join(line.lstrip("# ") for line in lines)


@every_file
def test_check_finds_no_fault_and_warns_of_nothing_that_the_file_does_not_explain(
    file: Path,
) -> None:
    result = CliRunner().invoke(main, ["check", "-c", str(file)])
    assert result.exit_code == 0, result.output
    for warning in load([file], {}).warnings:
        key = warning.path.rpartition(".")[2]
        assert "`holdfast check` warns" in header(file), warning
        assert f"{key}: " in header(file), warning


@every_file
def test_it_tells_editors_its_schema_and_keeps_to_it(file: Path) -> None:
    first_line = file.read_text().splitlines()[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first_line)
    assert match
    schema = json.loads((file.parent / match[1]).read_text())
    Draft202012Validator(schema).validate(read(file.read_text()))


@every_file
def test_its_scenarios_are_walked_in_a_module_of_the_same_name(file: Path) -> None:
    module = Path(__file__).with_name(f"test_{file.stem.replace('-', '_')}.py")
    assert f'Design("{file.name}")' in module.read_text()


@every_file
def test_there_is_time_for_every_attempt_and_wait_that_it_promises(file: Path) -> None:
    design = Design(file)
    for route in design.settings.routes:
        if route.retry is None or route.timeout is None:
            continue
        waits = sum(
            design.wait(route.name, n, roll=HIGHEST_ROLL) for n in range(1, route.retry.attempts)
        )
        assert route.retry.attempt_timeout is not None
        calls = route.retry.attempts * route.retry.attempt_timeout
        assert waits + calls < route.timeout, route.name
