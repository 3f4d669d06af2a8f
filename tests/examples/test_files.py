"""What all files of ``config/examples`` have in common."""

import json
import re
from pathlib import Path

import pytest

from proxy.config import load
from tests.config.core_schema import read
from tests.designs.design import Design
from tests.docs.kit.blocks import links, rows
from tests.examples.example import FOLDER
from tests.support.json_schema import Draft202012Validator
from tests.support.proxies import ROOT

FILES = sorted(FOLDER.rglob("*.yaml"))
ALONE = sorted(FOLDER.glob("*.yaml"))
MOST_LINES = 20
HIGHEST_ROLL = 1 - 1e-9

every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


def header(file: Path) -> str:
    """The comment at its top, as one line."""
    lines = file.read_text().partition("\n\n")[0].splitlines()
    return " ".join(line.lstrip("# ") for line in lines)


@pytest.mark.parametrize("file", ALONE, ids=lambda file: file.name)
def test_it_has_no_fault_and_no_warning_that_it_does_not_explain(file: Path) -> None:
    for warning in load([file], {}).warnings:
        key = warning.path.rpartition(".")[2]
        assert f"`holdfast check` warns of {key}: " in header(file), warning


@every_file
def test_it_is_short(file: Path) -> None:
    lines = [line.strip() for line in file.read_text().splitlines()]
    assert sum(not line.startswith("#") for line in lines if line) <= MOST_LINES


@every_file
def test_it_says_how_to_run_it(file: Path) -> None:
    if file.parent == FOLDER:
        assert re.search(rf"holdfast run {file.name}\b", header(file))
    else:
        base = (file.parent / "base.yaml").read_text()
        assert re.search(rf"holdfast \w+ .*\b{file.name}\b", base)


@every_file
def test_it_tells_editors_its_schema_and_keeps_to_it(file: Path) -> None:
    first_line = file.read_text().splitlines()[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first_line)
    assert match
    schema = json.loads((file.parent / match[1]).read_text())
    # A file that goes over another one need not be complete.
    if file.parent != FOLDER:
        schema.pop("required", None)
        schema = json.loads(json.dumps(schema).replace('"required": ["urls"], ', ""))
    Draft202012Validator(schema).validate(read(file.read_text()))


@pytest.mark.parametrize("file", ALONE, ids=lambda file: file.name)
def test_there_is_time_for_every_attempt_and_wait_that_it_promises(file: Path) -> None:
    design = Design(file)
    for route in design.settings.routes:
        retry = route.retry
        if retry is None or retry.attempt_timeout is None:
            continue
        waits = sum(design.wait(route.name, n, roll=HIGHEST_ROLL) for n in range(1, retry.attempts))
        assert route.timeout is not None
        assert waits + retry.attempts * retry.attempt_timeout < route.timeout, route.name


@every_file
def test_it_is_walked_in_a_module_of_the_same_name(file: Path) -> None:
    name = file.parent.name if file.parent != FOLDER else file.stem
    module = Path(__file__).with_name(f"test_{name.replace('-', '_')}.py")
    assert f'"{file.name}"' in module.read_text()


def test_the_reference_lists_all_of_them() -> None:
    table = rows((ROOT / "docs" / "reference" / "configuration.md").read_text(), "## Examples")
    listed = [links(file)[0].removeprefix("../../") for file, _ in table]
    names = [file.relative_to(ROOT).as_posix() for file in FILES]
    # Of several files that belong together the base stands for all.
    assert sorted(listed) == [
        name for name in names if "/environments/" not in name or name.endswith("/base.yaml")
    ]
