"""nginx as a proxy, with ``proxy_next_upstream`` and ``limit_req``."""

import re
import subprocess

from bench import tools
from bench.proxies.place import Command, Place, Proxy


def version() -> str:
    """For example ``1.22.1``."""
    output = subprocess.run([tools.program("nginx"), "-v"], capture_output=True, check=True).stderr
    found = re.search(rb"nginx/(\S+)", output)
    return found[1].decode() if found else "unknown"


def _command(place: Place) -> Command:
    config = place.render("nginx.conf")
    return [tools.program("nginx"), "-c", str(config), "-p", str(place.stage.folder)], {}


PROXY = Proxy("nginx", _command)
