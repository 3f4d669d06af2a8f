"""The programs that a run needs, and the cores that it pins them to."""

import os
import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path

PACKAGES = {
    "wrk": "wrk",
    "nginx": "nginx-light",
    "redis-server": "redis-server",
    "taskset": "util-linux",
}


class BenchFailed(Exception):
    """The run cannot start or its figures would mean nothing. The message says why."""


def require_programs() -> None:
    """Make sure that all programs are here; install them where that is simple."""
    missing = [package for name, package in PACKAGES.items() if _find(name) is None]
    if not missing:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or _find("apt-get") is None:
        raise BenchFailed(f"missing programs; on Debian or Ubuntu: sudo {' '.join(command)}")
    # Run level 1 keeps the packages from starting services.
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run([program("apt-get"), *command[1:]], env=environment, check=True)


def program(name: str) -> str:
    """The absolute path of a program that must exist."""
    path = _find(name)
    if path is None:
        raise BenchFailed(f"{name} is not installed")
    return path


def envoy() -> Path:
    """Envoy itself, out of its wheel."""
    try:
        with as_file(files("envoy._bin") / "envoy") as path:
            return path
    except ModuleNotFoundError:
        raise BenchFailed("Envoy is missing: run `make bench`, which installs it") from None


def cores() -> tuple[int, int]:
    """One core for the proxy under test, another for the load."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        raise BenchFailed("two cores are needed: on one, the load would be measured too")
    return available[0], available[1]


def pinned(core: int, *command: str) -> list[str]:
    """*command*, kept on one core with all its threads."""
    return [program("taskset"), "--cpu-list", str(core), *command]


def _find(name: str) -> str | None:
    # Debian keeps nginx in /usr/sbin, which is not on everybody's PATH.
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
