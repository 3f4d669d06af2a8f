"""What GitHub reads: workflows, issue forms, the template of a change."""

import importlib.resources
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.release.addresses import ROOT
from tests.release.workflows import PROGRAM, actionlint
from tests.support.json_schema import Draft202012Validator
from tests.support.tools import tool

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = [GITHUB / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "idea.yml")]


def program(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def parsed(path: Path) -> dict[str, Any]:
    # YAML 1.1 takes the key for true; GitHub does not.
    found = yaml.safe_load(path.read_text().replace("\non:\n", '\n"on":\n'))
    assert isinstance(found, dict)
    return found


def workflow(name: str) -> dict[str, Any]:
    return parsed(GITHUB / "workflows" / name)


def commands(name: str) -> list[str]:
    steps = [step for job in workflow(name)["jobs"].values() for step in job["steps"]]
    return [step["run"] for step in steps if "run" in step]


# Workflows.


def test_zizmor_finds_nothing_unsafe() -> None:
    done = subprocess.run(
        [program("zizmor"), "--offline", "--no-progress", str(GITHUB)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.deep  # `make check` runs it, too, and it takes seconds
def test_actionlint_finds_a_mistake_where_one_was_made_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / ".github" / "workflows"
    shutil.copytree(GITHUB / "workflows", folder)
    text = (folder / "release.yml").read_text()
    (folder / "wrong.yml").write_text(text.replace("needs: build", "needs: biuld"))
    done = actionlint(tool(PROGRAM), tmp_path)
    assert done.returncode == 1
    found = re.findall(r"^\.github/workflows/(\S+?):\d+:\d+ (.+)$", done.stdout, re.MULTILINE)
    assert [file for file, _ in found] == ["wrong.yml"], done.stdout
    assert 'needs job "biuld" which does not exist' in found[0][1]


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-issue-forms", FORMS),
        ("github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
        ("dependabot", [GITHUB / "dependabot.yml"]),
    ],
)
def test_files_are_what_github_reads(schema: str, files: list[Path]) -> None:
    vendored = importlib.resources.files("check_jsonschema.builtin_schemas") / "vendor"
    checker = Draft202012Validator(json.loads((vendored / f"{schema}.json").read_text()))
    for file in files:
        assert [error.message for error in checker.iter_errors(parsed(file))] == [], file.name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_their_commits_with_the_version_beside(path: Path) -> None:
    used = re.findall(r"^ +(?:- )?uses: (.+)$", path.read_text(), re.MULTILINE)
    assert used
    for one in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one), one


def test_one_action_has_one_version() -> None:
    text = "".join(path.read_text() for path in WORKFLOWS)
    used = {tuple(one.split("@")) for one in re.findall(r"uses: (\S+)", text)}
    assert len(used) == len({name for name, _ in used})


def test_ci_runs_on_each_python_that_is_claimed() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        classifiers = tomllib.load(file)["project"]["classifiers"]
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers))
    assert workflow("ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"] == claimed


def test_ci_checks_tests_builds_pages_and_image_and_asks_for_vulnerabilities() -> None:
    own = set(re.findall(r"^step (make .+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE))
    assert {"make check", "make docs", "make test", "make test-deep"} <= own
    # The suite runs on every Python there.
    wanted = own - {"make test-newest"} | {"make image", "make audit"}
    assert wanted <= set(commands("ci.yml"))
    assert workflow("ci.yml")["env"] == {"CI": "true"}
    assert "schedule" in workflow("ci.yml")["on"]


def test_a_release_is_checked_before_it_is_built_and_attested_before_it_is_published() -> None:
    release = workflow("release.yml")
    assert release["on"] == {"push": {"tags": ["v*"]}}
    assert commands("release.yml")[:4] == [
        "make setup",
        "make release-check",
        "make dist",
        "make sbom",
    ]
    jobs = release["jobs"]
    assert [jobs[name].get("needs") for name in ("build", "attest", "publish", "page")] == [
        None,
        "build",
        "attest",
        "publish",
    ]


def test_only_what_attests_and_publishes_has_an_identity_and_nothing_has_a_password() -> None:
    for path in WORKFLOWS:
        assert "secrets." not in path.read_text()
    release = workflow("release.yml")
    assert release["permissions"] == {}
    granted = {name: job["permissions"] for name, job in release["jobs"].items()}
    assert granted == {
        "build": {"contents": "read"},
        "attest": {"id-token": "write", "attestations": "write"},
        "publish": {"id-token": "write"},
        "page": {"contents": "write"},
    }
    assert workflow("ci.yml")["permissions"] == {"contents": "read"}
    publish = release["jobs"]["publish"]
    assert publish["environment"] == "release"
    assert publish["steps"][-1]["with"] == {"attestations": True}
    # Nothing is installed or built where there is an identity.
    assert not any("run" in step for step in publish["steps"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_what_make_has(path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    called = re.findall(r"\bmake ([a-z-]+)$", path.read_text(), re.MULTILINE)
    assert called
    assert set(called) <= set(targets)


def test_a_mistake_in_a_form_would_be_seen() -> None:
    form = parsed(FORMS[0])
    form["body"][1]["type"] = "text"
    vendored = importlib.resources.files("check_jsonschema.builtin_schemas") / "vendor"
    schema = json.loads((vendored / "github-issue-forms.json").read_text())
    assert list(Draft202012Validator(schema).iter_errors(form))


def test_dependabot_is_asked_only_for_what_it_can_read() -> None:
    """It does not resolve the arguments of ``FROM``: the base image is a step of a release."""
    asked = [one["package-ecosystem"] for one in parsed(GITHUB / "dependabot.yml")["updates"]]
    assert asked == ["github-actions"]
    steps = (ROOT / "RELEASING.md").read_text().partition("\n## Steps\n")[2]
    assert "base image" in steps.partition("\n2. ")[0]


# Forms.


@pytest.mark.parametrize("field", ["explain", "attempts", "configuration", "version"])
def test_a_report_has_to_show_what_holdfast_says_of_the_request(field: str) -> None:
    form = yaml.safe_load(FORMS[0].read_text())
    (asked,) = [one for one in form["body"] if one.get("id") == field]
    assert asked["validations"] == {"required": True}
    if field in {"explain", "attempts"}:
        assert f"`holdfast {field}`" in asked["attributes"]["label"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_commands_in_forms_are_commands(path: Path) -> None:
    shown = re.findall(r"`(holdfast [a-z]+ [^`]+)`", path.read_text())
    assert shown
    for command in shown:
        name, *arguments = command.split()[1:]
        options = {one for one in arguments if one.startswith("-")}
        told = subprocess.run(
            [program("holdfast"), name, "--help"], check=True, capture_output=True, text=True
        ).stdout
        assert all(re.search(rf"(?<![\w-]){option}\b", told) for option in options), command


def test_a_change_is_asked_for_the_same_and_for_its_tests() -> None:
    text = (GITHUB / "PULL_REQUEST_TEMPLATE.md").read_text()
    for asked in ("holdfast explain", "holdfast attempts", "make check", "CHANGELOG", "test fails"):
        assert asked in text


def test_a_vulnerability_is_not_reported_in_public() -> None:
    config = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "config.yml").read_text())
    (link,) = config["contact_links"]
    assert link["url"] in (ROOT / "SECURITY.md").read_text()
