"""What has to be so before a commit is released: ``make release-check`` says what is not.

It changes nothing and asks nobody: neither a package index nor the repository's home.
"""

import argparse
import datetime as dt
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.generate import stale
from tests.release.addresses import home, is_placeholder, strangers
from tests.release.lock import faults

ROOT = Path(__file__).parent.parent.parent
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_SECTION = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\S+))?$", re.MULTILINE)
_DIGEST = re.compile(r"^ARG PYTHON_DIGEST=sha256:[0-9a-f]{64}$", re.MULTILINE)


def version(root: Path) -> str:
    """Return the version that the checkout at *root* says it is."""
    found = _VERSION.search((root / "proxy" / "__init__.py").read_text(encoding="utf-8"))
    if found is None:
        raise ValueError("proxy/__init__.py has no __version__")
    return found[1]


def not_ready(root: Path, today: dt.date) -> Iterator[str]:
    """Say what is missing before the checkout at *root* can be released."""
    yield from address_faults(root)
    yield from version_faults(version(root))
    yield from changelog_faults(
        (root / "CHANGELOG.md").read_text(encoding="utf-8"), version(root), today
    )
    yield from git_faults(root, f"v{version(root)}")
    for path in stale(root):
        yield f"{path.relative_to(root)} is stale: run make generate"
    for fault in faults(root):
        yield f"{fault}: run make lock"
    if not _DIGEST.search((root / "Dockerfile").read_text(encoding="utf-8")):
        yield "the base image has no digest: give the Dockerfile's PYTHON_DIGEST one"


def address_faults(root: Path) -> Iterator[str]:
    """Say which addresses of the project are not those that users will find."""
    base = home(root)
    if is_placeholder(base):
        yield f"{base} is a placeholder: write the repository's address into [project.urls]"
    for path, address in strangers(root):
        yield f"{path} has {address}, which does not begin with {base}"


def version_faults(name: str) -> Iterator[str]:
    """Say whether *name* is the version of a release."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", name):
        yield f"{name} is no version of a release: write MAJOR.MINOR.PATCH"


def changelog_faults(text: str, name: str, today: dt.date) -> Iterator[str]:
    """Say what the changelog lacks for the version *name*."""
    sections = list(_SECTION.finditer(text))
    if not sections or sections[0]["name"] != "Unreleased":
        yield "CHANGELOG.md does not begin with an Unreleased section"
        return
    end = sections[1].start() if len(sections) > 1 else len(text)
    if text[sections[0].end() : end].strip():
        yield f"CHANGELOG.md has changes under Unreleased: move them to {name}"
    newest = sections[1] if len(sections) > 1 else None
    if newest is None or newest["name"] != name:
        yield f"CHANGELOG.md has no section for {name} below Unreleased"
        return
    try:
        date = dt.date.fromisoformat(newest["date"] or "")
    except ValueError:
        yield f"CHANGELOG.md has no date for {name}: write ## [{name}] - {today}"
        return
    if date > today:
        yield f"CHANGELOG.md dates {name} on {date}, which is to come"


def git_faults(root: Path, tag: str) -> Iterator[str]:
    """Say why the commit of the checkout at *root* cannot have the tag."""
    if _ask_git(root, "status", "--porcelain"):
        yield "there are changes that are not committed"
    here = {one for one in _ask_git(root, "tag", "--points-at", "HEAD") if one.startswith("v")}
    if here - {tag}:
        yield f"this commit has the tag {', '.join(sorted(here - {tag}))}, but it is {tag}"
    elif not here and _ask_git(root, "tag", "--list", tag):
        yield f"another commit has the tag {tag}: this version has been released"


def _ask_git(root: Path, *arguments: str) -> list[str]:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def main(arguments: Sequence[str] | None = None) -> int:
    """Say what is missing before this commit can be released."""
    parser = argparse.ArgumentParser(prog="python -m tests.release.check", description=main.__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    root = parser.parse_args(arguments).root
    missing = list(not_ready(root, dt.datetime.now(dt.UTC).date()))
    for one in missing:
        sys.stderr.write(f"not ready: {one}\n")
    if not missing:
        sys.stdout.write(f"{version(root)} is ready: tag this commit v{version(root)}\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
