"""The lock files: every package that is installed, with its version and the hashes of its files.

===========================  ==================================================  =================
file                         made from                                           used by
===========================  ==================================================  =================
``requirements.lock``        ``dependencies`` of ``pyproject.toml``              image, SBOM, CI
``requirements-build.lock``  ``requires`` of its ``[build-system]``              image and release
``requirements-dev.lock``    ``dependencies``, the extras of :data:`IN_CI`       CI
===========================  ==================================================  =================

``make lock`` writes them, ``make lock UPGRADE=1`` with the newest versions that ``pyproject.toml``
allows. ``make check`` compares them with ``pyproject.toml``, and needs no network for it: a
requirement must have a version that fulfils it, and a version must have a requirement.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent.parent
COMPILE = (
    *("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"),
    *("--generate-hashes", "--no-header", "--no-emit-index-url"),
)
"""For every platform and every Python from the oldest on, and without the address of an index."""

IN_CI = ("dev", "docs", "release")
"""The extras that CI installs."""

_ENTRY = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\\n]+?))? \\\n"
    r"(?P<hashes>(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)"
    r"(?P<origin>(?:    #[^\n]*\n)*)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Pin:
    """One version of a package, as a lock file has it."""

    name: str
    version: str
    marker: str
    hashes: frozenset[str]
    is_direct: bool
    """Whether ``pyproject.toml`` asks for it, and not another package alone."""


@dataclass(frozen=True, slots=True)
class LockFile:
    """A lock file, and the requirements that it is made from."""

    name: str
    direct: tuple[Requirement, ...]
    sources: tuple[str, ...]
    """What uv is given to read; ``-`` for the requirements themselves."""


def lock_files(root: Path) -> list[LockFile]:
    """Return the lock files of the checkout at *root*, in the order in which to write them."""
    with (root / "pyproject.toml").open("rb") as file:
        pyproject = tomllib.load(file)
    runtime = _requirements(pyproject["project"]["dependencies"])
    build = _requirements(pyproject["build-system"]["requires"])
    extras = pyproject["project"]["optional-dependencies"]
    dev = _requirements([line for name in IN_CI for line in extras[name]])
    # What runs in CI is what runs in the image, and what builds there builds the release.
    held = ("--constraint", "requirements.lock", "--constraint", "requirements-build.lock")
    return [
        LockFile("requirements.lock", runtime, ("pyproject.toml",)),
        LockFile("requirements-build.lock", build, ("-",)),
        LockFile(
            "requirements-dev.lock",
            runtime + dev,
            ("pyproject.toml", *(f"--extra={name}" for name in IN_CI), *held),
        ),
    ]


def _requirements(lines: Sequence[str]) -> tuple[Requirement, ...]:
    return tuple(Requirement(line) for line in lines)


def pins(text: str) -> list[Pin]:
    """Return what a lock file pins. Raises ValueError if a line of it is not understood."""
    rest = _ENTRY.sub("", text).strip()
    if rest:
        raise ValueError(f"not understood: {rest.splitlines()[0]}")
    return [
        Pin(
            canonicalize_name(entry["name"]),
            entry["version"],
            entry["marker"] or "",
            frozenset(re.findall(r"[0-9a-f]{64}", entry["hashes"])),
            not entry["origin"] or "pyproject.toml" in entry["origin"],
        )
        for entry in _ENTRY.finditer(text)
    ]


def faults(root: Path) -> Iterator[str]:
    """Say what is wrong with the lock files of the checkout at *root*."""
    found: dict[str, list[Pin]] = {}
    for lock in lock_files(root):
        path = root / lock.name
        if not path.exists():
            yield f"{lock.name} is missing"
            return
        text = path.read_text(encoding="utf-8")
        if "://" in text:
            yield f"{lock.name} has an address in it"
        found[lock.name] = pins(text)
        yield from _stale(lock, found[lock.name])
    dev = set(found["requirements-dev.lock"])
    for name in ("requirements.lock", "requirements-build.lock"):
        versions = {(pin.name, pin.version) for pin in dev}
        for pin in found[name]:
            if (pin.name, pin.version) not in versions:
                yield f"requirements-dev.lock has no {pin.name} {pin.version}, but {name} has"


def _stale(lock: LockFile, found: Sequence[Pin]) -> Iterator[str]:
    wanted = {canonicalize_name(one.name): one for one in lock.direct}
    for name, requirement in wanted.items():
        versions = [pin.version for pin in found if pin.name == name]
        if not versions:
            yield f"{lock.name} lacks {requirement}"
        for version in versions:
            if not requirement.specifier.contains(version, prereleases=True):
                yield f"{lock.name} has {name} {version}, which is not {requirement.specifier}"
    for pin in found:
        if pin.is_direct and pin.name not in wanted:
            yield f"{lock.name} has {pin.name}, which nothing asks for"


def write(root: Path, *, upgrade: bool) -> None:
    """Write the lock files; versions that are there stay, unless *upgrade* says otherwise."""
    for lock in lock_files(root):
        command = [*COMPILE, *lock.sources, "--output-file", lock.name]
        given = "\n".join(str(one) for one in lock.direct) if lock.sources == ("-",) else None
        subprocess.run(
            [*command, *(["--upgrade"] if upgrade else [])],
            cwd=root,
            check=True,
            input=given,
            text=True,
            stdout=subprocess.DEVNULL,  # the file, once more
        )
        sys.stdout.write(f"{lock.name} is written\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the lock files, or say what is wrong with them."""
    parser = argparse.ArgumentParser(prog="python -m tests.release.lock", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, ask no index")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    options = parser.parse_args(arguments)
    if not options.check:
        write(options.root, upgrade=options.upgrade)
    found = list(faults(options.root))
    for fault in found:
        sys.stderr.write(f"{fault}: run make lock\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
