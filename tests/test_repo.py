"""What the files around the code promise."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import proxy

ROOT = Path(__file__).parent.parent


def tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's last stage: instruction and arguments, lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line and line[0] not in " #"]
    pairs = [(name, " ".join(rest.split())) for name, rest in lines]
    last_stage = max(i for i, (name, _) in enumerate(pairs) if name == "FROM")
    return pairs[last_stage:]


def test_dockerfile_is_clean_to_hadolint() -> None:
    subprocess.run([tool("hadolint"), "Dockerfile"], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("instruction", "arguments"),
    [
        pytest.param("USER", "65532:65532", id="a numeric user that is not root"),
        pytest.param("ENTRYPOINT", '["holdfast"]', id="no shell between docker and the proxy"),
        pytest.param("STOPSIGNAL", "SIGTERM", id="docker stop drains"),
        pytest.param(
            "CMD", '["run", "-c", "/etc/holdfast/holdfast.yaml"]', id="serves a mounted file"
        ),
    ],
)
def test_image(instruction: str, arguments: str) -> None:
    assert (instruction, arguments) in instructions()


def test_image_checks_its_health_with_its_own_command() -> None:
    arguments = dict(instructions())["HEALTHCHECK"]
    assert arguments.endswith('CMD ["holdfast", "healthcheck"]')


def test_image_is_built_from_the_package_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule for rule in rules if rule.startswith("!")} == {
        "!LICENSE",
        "!README.md",
        "!proxy/",
        "!pyproject.toml",
    }


@pytest.mark.parametrize("file", ["config/demo.yaml", "bench/proxies/holdfast.yaml"])
def test_example_tells_editors_its_schema(file: str) -> None:
    first_line = (ROOT / file).read_text().splitlines()[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first_line)
    assert match
    assert (ROOT / file).parent.joinpath(match[1]).is_file()


def test_wheel_holds_the_whole_package_and_its_command(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", str(tmp_path)], cwd=ROOT, check=True)
    (wheel,) = tmp_path.iterdir()
    dist_info = f"holdfast-{proxy.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = message_from_string(archive.read(f"{dist_info}/METADATA").decode())
        entry_points = archive.read(f"{dist_info}/entry_points.txt").decode()
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "proxy").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if not name.startswith(dist_info)} == sources
    assert "proxy/py.typed" in names, "the classifier Typing :: Typed says so"
    assert f"{dist_info}/licenses/LICENSE" in names
    assert "holdfast = proxy.cli:main" in entry_points
    assert metadata["License-Expression"] == "Apache-2.0"


def test_makefile_lists_what_it_can_do() -> None:
    result = subprocess.run(
        ["make", "--no-print-directory"],  # noqa: S607 - whichever make the developer uses
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        # Not the flags of a make that runs these tests.
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
    )
    listed = [line.split()[1] for line in result.stdout.splitlines()]
    assert listed == ["help", "setup", "demo", "test", "test-deep", "check", "bench", "clean"]


def test_cleaning_leaves_the_published_benchmark_and_no_other(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    results = tmp_path / "bench" / "results"
    for folder in (tmp_path / "proxy", tmp_path / "tests", results, tmp_path / ".venv"):
        folder.mkdir(parents=True)
    for name in ("published.json", "published.md", "latest.json", "quick.md"):
        (results / name).touch()
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)  # noqa: S607 - whichever make the developer uses
    assert {path.name for path in results.iterdir()} == {"published.json", "published.md"}
    assert not (tmp_path / ".venv").exists()


def test_ci_can_be_started() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_changelog_has_a_place_for_what_comes_next_or_names_this_version() -> None:
    heading = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading
    assert heading[1] in {"Unreleased", proxy.__version__}
