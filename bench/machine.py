"""Where a run took place, and what took part."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

from bench import tools
from bench.proxies import VERSIONS

_PACKAGES = ("aiohttp", "uvloop", "httptools", "hiredis", "holdfast")


def machine() -> dict[str, object]:
    """The computer, and how busy it was at the start."""
    cpu = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return {
        "platform": platform.platform(),
        "cpu": cpu[1] if cpu else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Of everything that takes part and is there."""
    found = {"python": platform.python_version()}
    found |= {package: version(package) for package in _PACKAGES}
    for name, ask in VERSIONS.items():
        try:
            found[name] = ask()
        except tools.Missing:
            continue
    found |= {name: text for name in ("wrk", "redis-server") if (text := _program_version(name))}
    return found


def commit() -> str:
    """What was measured; ``-dirty`` if there is more than what was committed."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(
            [tools.program("git"), *command[1:]],
            cwd=Path(__file__).parent,
            capture_output=True,
            check=True,
        )
    except (tools.Missing, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.decode().strip()


def _program_version(name: str) -> str | None:
    try:
        done = subprocess.run([tools.program(name), "--version"], capture_output=True, check=False)
    except tools.Missing:
        return None
    # wrk calls its version out while it complains about the option.
    found = re.search(rb"\b(?:v=)?(\d+\.\d+[\w.]*)", done.stdout + done.stderr)
    return found[1].decode() if found else None
