"""Lock files that fit to ``pyproject.toml``, and what is said of those that do not."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.release.lock import ROOT, faults, lock_files, main, pins

LOCKS = ("requirements.lock", "requirements-build.lock", "requirements-dev.lock")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", *LOCKS):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def edit(path: Path, was: str, now: str) -> None:
    text = path.read_text()
    assert text.count(was) == 1, was
    path.write_text(text.replace(was, now))


def test_the_locks_fit_to_what_is_asked_for() -> None:
    assert list(faults(ROOT)) == []
    assert tuple(lock.name for lock in lock_files(ROOT)) == LOCKS


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_has_hashes_and_nothing_says_where_it_comes_from(name: str) -> None:
    text = (ROOT / name).read_text()
    found = pins(text)
    assert len(found) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE))
    # A wheel and a source distribution at least, but for the few that have only one of them.
    assert all(pin.hashes for pin in found)
    assert "://" not in text


@pytest.mark.parametrize(
    ("was", "now", "complaint"),
    [
        pytest.param(
            '"aiohttp>=3.14.5,<3.15"',
            '"aiohttp>=3.15,<3.16"',
            r"requirements\.lock has aiohttp 3\.14\.\d+, which is not <3\.16,>=3\.15",
            id="a bound was moved",
        ),
        pytest.param(
            '"httptools>=0.9,<0.10",',
            '"httptools>=0.9,<0.10",\n    "brotli>=1.2",',
            r"requirements\.lock lacks brotli>=1\.2",
            id="a requirement was added",
        ),
        pytest.param(
            '    "hiredis>=3.5,<4",\n',
            "",
            r"requirements\.lock has hiredis, which nothing asks for",
            id="a requirement was removed",
        ),
        pytest.param(
            'requires = ["hatchling>=1.27,<2",',
            'requires = ["flit-core>=3", "hatchling>=1.27,<2",',
            r"requirements-build\.lock lacks flit-core>=3",
            id="another build backend",
        ),
        pytest.param(
            '    "h11>=0.16,<1",\n',
            "",
            r"requirements-dev\.lock has h11, which nothing asks for",
            id="a development tool was removed",
        ),
    ],
)
def test_a_change_of_requirements_makes_a_lock_stale(
    checkout: Path, was: str, now: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(checkout / "pyproject.toml", was, now)
    assert main(["--check", "--root", str(checkout)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert any(re.fullmatch(f"{complaint}: run make lock", line) for line in said), said


def test_what_runs_in_ci_is_what_runs_in_the_image(checkout: Path) -> None:
    lock = checkout / "requirements.lock"
    text = lock.read_text()
    lock.write_text(re.sub(r"^idna==\S+", "idna==3.1", text, flags=re.MULTILINE))
    assert list(faults(checkout)) == [
        "requirements-dev.lock has no idna 3.1, but requirements.lock has"
    ]


def test_an_address_in_a_lock_is_a_fault(checkout: Path) -> None:
    with (checkout / "requirements.lock").open("a") as lock:
        lock.write("    # from https://index.example/simple\n")
    assert list(faults(checkout)) == ["requirements.lock has an address in it"]


def test_a_lock_that_is_missing_is_a_fault(checkout: Path) -> None:
    (checkout / "requirements-build.lock").unlink()
    assert list(faults(checkout)) == ["requirements-build.lock is missing"]


def test_a_package_without_a_hash_is_not_taken_for_a_pin() -> None:
    with pytest.raises(ValueError, match=re.escape("not understood: aiohttp==3.14.5")):
        pins("aiohttp==3.14.5\n    # via holdfast (pyproject.toml)\n")


def test_ci_installs_from_the_lock_and_developers_what_is_allowed(tmp_path: Path) -> None:
    def printed(target: str, **environment: str) -> str:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("MAKE") and name != "CI"
        }
        make = ["make", "--dry-run", target, f"VENV={tmp_path}"]
        return subprocess.run(
            make,
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
            env=inherited | environment,
        ).stdout

    installs = {"setup": "dev", "docs": "docs", "audit": "release", "lock": "release"}
    for target, extra in installs.items():
        in_ci = printed(target, CI="true")
        assert "--require-hashes --requirement requirements-dev.lock" in in_ci
        assert not re.search(r"--editable '?\.\[", in_ci), "a package from no lock"
        assert f"--editable '.[{extra}]'" in printed(target)
        assert "--require-hashes --requirement requirements-dev.lock" not in printed(target)


def test_what_ci_uses_is_in_the_lock() -> None:
    locked = {pin.name for pin in pins((ROOT / "requirements-dev.lock").read_text())}
    assert {"pytest", "sphinx", "pip-audit"} <= locked
