"""What this installation is made of: for a report of a fault, and to compare two machines."""

import platform
import re
from importlib import metadata
from typing import TypedDict

from proxy import __version__
from proxy.server.aiohttp_adapter.parser import parser_name

_name_of = re.compile(r"[A-Za-z0-9._-]+").match


class Versions(TypedDict):
    """All versions that matter, ready for JSON."""

    version: str
    python: str
    implementation: str
    platform: str
    parser: str
    """``c``: the compiled one."""
    event_loop: str
    packages: dict[str, str]


def versions() -> Versions:
    """Return what this process would serve with."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "parser": parser_name(),
        "event_loop": f"uvloop {metadata.version('uvloop')}",
        "packages": _packages(),
    }


def _packages() -> dict[str, str]:
    """Return the version of each package that Holdfast needs, by its name."""
    try:
        requirements = metadata.requires("holdfast") or []
    except metadata.PackageNotFoundError:  # run from a folder, without an installation
        return {}
    needed = [text for text in requirements if "extra ==" not in text]
    names = sorted(found[0] for text in needed if (found := _name_of(text)))
    return {name: version for name in names if (version := _version_of(name))}


def _version_of(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # not for this platform
        return ""
