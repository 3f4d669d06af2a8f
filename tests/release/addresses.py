"""Where the project lives: one address in ``pyproject.toml``, and all others begin with it."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parent.parent.parent
WRITTEN_IN = ("proxy", "tests", "bench", "config", "docs", ".ci", ".github")
PLACEHOLDER = ".example"
"""The end of a name that nobody can have (RFC 2606)."""

_URL = re.compile(r"https?://[^\s\"'<>`|\\)\]}]+")
_BARE = re.compile(
    r"(?<![\w./-])(?:[\w.+-]+@)?(?:[\w-]+\.)*[\w-]*holdfast[\w-]*(?:\.[\w-]+)*"
    r"\.(?:app|com|dev|example|io|net|org|sh)\b"
)
_PRIVATE = re.compile(
    r"(?:^|\.)(?:localhost|local|internal|lan|svc|test)$|^[\d.]+$|^\[|^[^.]+$", re.IGNORECASE
)
"""Hosts that are nobody's public address: those of one network, and numbers."""


def home(root: Path = ROOT) -> str:
    """Return the address of the project's repository."""
    with (root / "pyproject.toml").open("rb") as file:
        address = tomllib.load(file)["project"]["urls"]["Homepage"]
    if not isinstance(address, str):
        raise TypeError("Homepage is no text")
    return address


def is_placeholder(address: str) -> bool:
    """Tell whether *address* stands for one that has yet to be chosen."""
    host = urlsplit(address).hostname or ""
    return host.endswith((PLACEHOLDER, ".invalid", ".test", "localhost"))


def own_addresses(text: str) -> Iterator[str]:
    """Find the addresses in *text* that are this project's, at a host of its own or of others."""
    for found in _URL.findall(text):
        try:
            url = urlsplit(found)
        except ValueError:
            continue  # a sample of what is no address
        host = (url.hostname or "").lower()
        if _PRIVATE.search(host):
            continue
        is_for_examples = host.endswith(PLACEHOLDER) and "holdfast" not in host
        named = re.split(r"[/@]", url.path.lower())
        if "holdfast" in host or ("holdfast" in named and not is_for_examples):
            yield found.rstrip(".,;:")
    yield from _BARE.findall(_URL.sub("", text))


def strangers(root: Path) -> Iterator[tuple[Path, str]]:
    """Find the own addresses in files under *root* that do not begin with the project's home."""
    base = home(root)
    for path in written_files(root):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for address in own_addresses(text):
            if address != base and not address.startswith(f"{base}/"):
                yield path.relative_to(root), address


def written_files(root: Path) -> Iterator[Path]:
    """Return every file that somebody wrote; what is built, installed or cached is left out."""
    yield from (path for path in sorted(root.iterdir()) if path.is_file())
    for folder in WRITTEN_IN:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path
