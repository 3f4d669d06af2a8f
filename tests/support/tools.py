"""Programs that no Python package brings, and where they come from.

``python -m tests.support.tools`` (which ``make test`` runs first) looks for them. What is
missing it takes from Debian's packages, if it can: promtool is unpacked into ``.venv`` and
not installed, because its package starts a service. systemd-analyze needs half of systemd, and
openssl and wrk some libraries, so those are installed, and only where ``CI=true`` says that the
machine is there for it.

A test asks with :func:`tool`. Where a program is missing it is skipped and says so; with
``CI=true`` it fails.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / ".venv" / "tools"
PATIENCE = 180.0
"""Seconds for a download."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program, and the package that has it."""

    name: str
    package: str
    alone: bool
    """Whether it needs nothing else of its package."""


TOOLS = (
    Tool("openssl", "openssl", alone=False),
    Tool("promtool", "prometheus", alone=True),
    Tool("systemd-analyze", "systemd", alone=False),
    Tool("wrk", "wrk", alone=False),
)


def tool(name: str) -> str:
    """Where the program is; if nowhere, the end of this test."""
    found = _find(name)
    if found is None:
        complaint = _complaint(next(one for one in TOOLS if one.name == name))
        if _in_ci():
            pytest.fail(complaint)
        pytest.skip(complaint)
    return found


def _find(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=str(FOLDER))


def _complaint(missing: Tool) -> str:
    return (
        f"{missing.name} is missing: on Debian or Ubuntu it comes with"
        f" `apt-get install --no-install-recommends {missing.package}`"
    )


def _in_ci() -> bool:
    return os.environ.get("CI") == "true"


def _is_root() -> bool:
    return os.geteuid() == 0


def _get(missing: Tool) -> bool:
    """Try to get it from Debian's packages."""
    if shutil.which("apt-get") is None:
        return False
    get = _unpack if missing.alone else _install
    # The lists of a fresh machine are empty.
    return get(missing) or (_is_root() and _apt("update") and get(missing))


def _unpack(missing: Tool) -> bool:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not _apt("download", missing.package, within=folder):
            return False
        package = next(folder.glob("*.deb"))
        if not _succeeds("dpkg", "-x", str(package), str(folder / "files")):
            return False
        FOLDER.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / "files" / "usr" / "bin" / missing.name, FOLDER)
        return True


def _install(missing: Tool) -> bool:
    return (
        _in_ci()
        and _is_root()
        and _apt("install", "-y", "--no-install-recommends", missing.package)
    )


def _apt(*arguments: str, within: Path | None = None) -> bool:
    return _succeeds("apt-get", "-qq", *arguments, within=within)


def _succeeds(*command: str, within: Path | None = None) -> bool:
    try:
        done = subprocess.run(
            command, cwd=within, capture_output=True, check=False, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def main() -> None:
    """Get what is missing; say what could not be had."""
    for one in TOOLS:
        if _find(one.name) is None and not _get(one):
            consequence = "its tests will fail" if _in_ci() else "its tests are skipped"
            sys.stderr.write(f"{_complaint(one)}; {consequence}\n")


if __name__ == "__main__":
    main()
