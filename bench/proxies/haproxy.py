"""HAProxy, as Debian has it."""

import re
import subprocess

from bench import tools
from bench.proxies.place import Command, Place, Proxy


def version() -> str:
    """For example ``2.6.12``."""
    output = subprocess.run([tools.program("haproxy"), "-v"], capture_output=True, check=True)
    found = re.search(rb"version (\d+\.\d+\.\d+)", output.stdout)
    return found[1].decode() if found else "unknown"


def _command(place: Place) -> Command:
    # In the foreground, and without a process above it: its clock is the whole of it.
    return [tools.program("haproxy"), "-db", "-f", str(place.render("haproxy.cfg"))], {}


PROXY = Proxy("haproxy", _command)
