"""What the image is built from, and what is in it, as the Dockerfile says: there is no daemon."""

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

import proxy
from tests.release.addresses import ROOT

LABELS = ("base.digest", "base.name", "created", "description", "documentation", "licenses",
          "revision", "source", "title", "version")  # fmt: skip


def stages() -> list[list[tuple[str, str]]]:
    """What stands before the first FROM, and each stage: instructions with their arguments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    found: list[list[tuple[str, str]]] = [[]]
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append((name, " ".join(arguments.split())))
    return found


def of_kind(stage: list[tuple[str, str]], kind: str) -> Iterator[str]:
    return (arguments for name, arguments in stage if name == kind)


def context() -> set[str]:
    """The files that docker would be sent, by the rules of ``.dockerignore``."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    first, *rules = [line for line in lines if line and not line.startswith("#")]
    assert first == "*", "only what is named is sent"
    allowed = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    denied = [rule for rule in rules if not rule.startswith("!")]
    assert denied == ["**/__pycache__/"]
    sent: set[str] = set()
    for rule in allowed:
        path = ROOT / rule
        assert path.exists(), f".dockerignore names {rule}, which is not there"
        sent |= {
            str(one.relative_to(ROOT))
            for one in ([path] if path.is_file() else path.rglob("*"))
            if one.is_file() and "__pycache__" not in one.parts
        }
    return sent


def test_both_stages_begin_with_one_base_image_that_is_pinned_by_a_digest_argument() -> None:
    before, *rest = stages()
    arguments = dict(one.split("=", 1) for one in of_kind(before, "ARG"))
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", arguments["PYTHON_IMAGE"])
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", arguments["PYTHON_DIGEST"])
    bases = [next(of_kind(stage, "FROM")).partition(" AS ")[0] for stage in rest]
    assert bases == ["${PYTHON_IMAGE}@${PYTHON_DIGEST}"] * 2
    told = (ROOT / "RELEASING.md").read_text()
    assert "imagetools inspect" in told
    assert "--build-arg PYTHON_DIGEST=" in told


def test_every_package_in_the_image_comes_from_a_lock_with_its_hash() -> None:
    (_, build, last) = stages()
    runs = " && ".join(of_kind(build, "RUN")).split("&&")
    installs = [run.strip() for run in runs if re.search(r"\bpip (?:install|wheel)\b", run)]
    assert len(installs) == 4
    for install in installs:
        is_locked = "--require-hashes" in install and "--only-binary :all:" in install
        is_our_own = "--no-deps" in install and (
            "--no-build-isolation" in install or "--no-index" in install
        )
        assert is_locked != is_our_own, install
    assert not any("pip" in run for run in of_kind(last, "RUN"))


def test_what_is_copied_is_there_and_nothing_else_is_sent() -> None:
    sent = context()
    (_, build, last) = stages()
    for arguments in [*of_kind(build, "COPY"), *of_kind(last, "COPY")]:
        if arguments.startswith("--from=build "):
            continue
        for source in arguments.split()[:-1]:
            assert source == "." or any(fnmatch(name, source) for name in sent), source
    outside = {name.partition("/")[0] for name in sent}
    assert {"LICENSE", "README.md", "proxy", "pyproject.toml"} <= outside
    assert {"requirements.lock", "requirements-build.lock"} <= outside
    assert not outside & {"tests", "bench", ".git", ".venv", "docs", ".github"}
    assert "--from=build /opt/holdfast /opt/holdfast" in list(of_kind(last, "COPY"))


def test_the_wheel_can_be_built_from_what_is_sent_alone(tmp_path: Path) -> None:
    """And it holds the whole package: so does the image."""
    for name in context():
        copy = tmp_path / "src" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(
        [*build, "--directory", str(tmp_path / "dist")],
        cwd=tmp_path / "src",
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("proxy/")}
    assert packed == {name for name in context() if name.startswith("proxy/")}


def test_labels_say_what_the_image_is_and_what_it_was_built_from() -> None:
    last = stages()[-1]
    label = " ".join(of_kind(last, "LABEL"))
    labels = dict(re.findall(r'org\.opencontainers\.image\.([\w.]+)="([^"]*)"', label))
    assert tuple(sorted(labels)) == LABELS
    arguments = {one.partition("=")[0] for one in of_kind(last, "ARG")}
    for name, value in labels.items():
        for used in re.findall(r"\$\{(\w+)\}", value):
            assert used in arguments, f"{name}: ${used} is empty in this stage"
    assert labels["version"] == "${VERSION}"


def test_make_image_fills_the_labels(tmp_path: Path) -> None:
    """A program called docker writes down how it is called."""
    told = tmp_path / "told"
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {told}\n')
    docker.chmod(0o755)
    git = ["git", "log", "-1", "--format=%H %cI"]
    if not (ROOT / ".git").exists():
        pytest.skip("this is no repository: there is no commit to name")
    commit = subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True)
    revision, created = commit.stdout.split()
    environment = tmp_path / "venv"
    image = ["make", "image", f"VENV={environment}"]
    subprocess.run(
        image,
        cwd=ROOT,
        check=True,
        capture_output=True,
        env={"PATH": f"{tmp_path}:/usr/local/bin:/usr/bin:/bin"},
    )
    given = [line for line in told.read_text().splitlines() if "=" in line]
    assert given == [
        f"VERSION={proxy.__version__}",
        f"REVISION={revision}",
        f"CREATED={created}",
    ]
    assert not environment.exists(), "packages were installed, and from no lock"
