"""The newest Python of this machine that the project claims to support: ``make test-newest`` asks.

``python -m tests.support.newest_python`` prints its path, and nothing where none is newer
than the one that runs this.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_TRY = "import ensurepip, sqlite3, ssl, sys, venv; print(*sys.version_info[:2], sys.executable)"
"""What a Python must be able to run: pyenv's shims may have nothing behind them."""
_PATIENCE = 30.0


def claimed() -> list[tuple[int, int]]:
    """Return the versions in the project's classifiers, newest first."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        classifiers = tomllib.load(file)["project"]["classifiers"]
    found = (re.search(r":: Python :: (\d+)\.(\d+)$", line) for line in classifiers)
    return sorted(((int(match[1]), int(match[2])) for match in found if match), reverse=True)


def newest(than: tuple[int, int]) -> Path | None:
    """Return the newest Python that is claimed, works, and is newer *than* that version."""
    for version in claimed():
        if version <= than:
            return None
        for candidate in _candidates(*version):
            found = _real(candidate)
            if found is not None and found[0] == version:
                return found[1]
    return None


def _candidates(major: int, minor: int) -> Iterator[str]:
    name = f"python{major}.{minor}"
    if on_path := shutil.which(name):
        yield on_path
    if pyenv := shutil.which("pyenv"):
        root = Path(_output(pyenv, "root") or "/nowhere")
        yield from sorted(map(str, root.glob(f"versions/{major}.{minor}.*/bin/{name}")), key=len)
    if (uv := shutil.which("uv")) and (found := _output(uv, "python", "find", name[6:])):
        yield found


def _real(python: str) -> tuple[tuple[int, int], Path] | None:
    """Return the version and the path of *python*; None if it does not work."""
    answer = _output(python, "-c", _TRY)
    if answer is None:
        return None
    major, minor, path = answer.split(maxsplit=2)
    return (int(major), int(minor)), Path(path)


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    if found := newest((sys.version_info.major, sys.version_info.minor)):
        sys.stdout.write(f"{found}\n")
