"""What stands around the proxies: the upstreams behind them, a Redis, certificates."""

import json
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import Literal

import trustme

from bench import tools
from bench.processes import MIB, Running, free_port, running

HERE = Path(__file__).parent
JSON_BODY = json.dumps({"id": 1234567, "status": "ok", "items": list(range(10)), "note": "x" * 16})

Upstream = Literal["nginx", "tls", "bodies"]
"""Small answers and files; the same over TLS; bodies that are read to their end."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that a proxy needs to know to take its place."""

    folder: Path
    ports: dict[Upstream, int]
    ca: Path
    """The authority of the upstream over TLS."""
    store: Running | None
    """None where no Redis can be had."""


@contextmanager
def standing(upstreams: Collection[Upstream], *, with_store: bool) -> Iterator[Stage]:
    """All that is needed, until the end of the block."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        # nginx started by root runs its workers as another user, who must be able to read it.
        folder.chmod(0o755)
        ports: dict[Upstream, int] = {
            "nginx": free_port(),
            "tls": free_port(),
            "bodies": free_port(),
        }
        ca = _certificates(folder)
        if "nginx" in upstreams or "tls" in upstreams:
            stack.enter_context(_nginx(folder, ports))
        if "bodies" in upstreams:
            command = [sys.executable, "-m", "bench.stage.bodies", str(ports["bodies"])]
            stack.enter_context(running("bodies", ports["bodies"], command, folder))
        yield Stage(folder, ports, ca, _store(stack, folder) if with_store else None)


def _certificates(folder: Path) -> Path:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "upstream.pem"))
    return folder / "ca.pem"


@contextmanager
def _nginx(folder: Path, ports: dict[Upstream, int]) -> Iterator[Running]:
    """Answers faster than any proxy can ask. The scheduler may place it anywhere."""
    for name, size in (("1MiB", MIB), ("100MiB", 100 * MIB)):
        # All zeros, and no room on the disk.
        with (folder / name).open("wb") as file:
            file.truncate(size)
    config = folder / "upstream.nginx.conf"
    template = Template((HERE / "upstream.nginx.conf").read_text())
    config.write_text(
        template.substitute(PORT=ports["nginx"], TLS_PORT=ports["tls"], DIR=folder, JSON=JSON_BODY)
    )
    command = [tools.program("nginx"), "-c", str(config), "-p", str(folder)]
    with running("upstream", ports["nginx"], command, folder) as upstream:
        yield upstream


def _store(stack: ExitStack, folder: Path) -> Running | None:
    """The Redis that instances share."""
    try:
        server = tools.program("redis-server")
    except tools.Missing:
        return None
    port = free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder))
    return stack.enter_context(running("store", port, [server, *options], folder))
