"""The demo on free ports, and a shell in which the commands of README.md can be run."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_PORTS = (8080, 9901, 9000)
"""Those of the demo, as README.md shows them."""

# What differs from one run to the next.
_MASKS = (
    (re.compile(r"(?m)^Date: .*"), "Date: DATE"),
    (re.compile(r"(?m)^X-Request-Id: [0-9a-f]{24}-\d+$"), "X-Request-Id: ID"),
    (re.compile(r'"request_id":"[0-9a-f]{24}-\d+"'), '"request_id":"ID"'),
    (re.compile(r'"time":"[-\d]{10}T[:\d]{8}\.\d{3}Z"'), '"time":"TIME"'),
    (re.compile(r'"((?:\w+_)?ms)":\d+\.\d{3}'), r'"\1":0.0'),
    (re.compile(r"(?m)^Content-Length: \d+"), "Content-Length: N"),
    (re.compile(r"\bup \w+(?: \w+)?, \d connections?$", re.MULTILINE), "up TIME"),
    (re.compile(r"^ended: .*", re.MULTILINE), "ended: TIME"),
    (re.compile(r" +[\d.]+m?s(?:/[\d.]+m?s)?(?![\w/.])"), " TIME"),
)


def masked(output: str) -> str:
    """*output* without what is different each time, and without spaces around it."""
    for pattern, instead in _MASKS:
        output = pattern.sub(instead, output)
    return output.strip()


class Session:
    """A running demo, as seen from another terminal in a checkout."""

    def __init__(self, folder: Path, ports: list[int], demo: subprocess.Popen[str]) -> None:
        self._folder = folder
        self._ports = ports
        self._demo = demo

    @property
    def said(self) -> str:
        """What the demo's terminal shows so far, access log included."""
        return self._as_shown((self._folder / "demo.out").read_text())

    def run(self, command: str) -> str:
        """Run *command* as a shell would; what it prints, in the ports of README.md."""
        for shown, real in zip(_PORTS, self._ports, strict=True):
            command = re.sub(rf"(?<=127\.0\.0\.1:){shown}\b", str(real), command)
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self._folder,
            env={**os.environ, "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            text=True,
            timeout=20,
            check=False,  # a check that finds faults does not end with 0
        )
        return self._as_shown(done.stdout.replace("\r\n", "\n"))

    def stop(self) -> int:
        """Ctrl-C; the exit status."""
        self._demo.send_signal(signal.SIGINT)
        return self._demo.wait(timeout=15)

    def _as_shown(self, text: str) -> str:
        for shown, real in zip(_PORTS, self._ports, strict=True):
            text = re.sub(rf"(?<=127\.0\.0\.1:){real}\b", str(shown), text)
        return text


@contextmanager
def demo(folder: Path) -> Iterator[Session]:
    """What ``make demo`` starts, in a *folder* that looks like a checkout."""
    ports = _free_ports(len(_PORTS))
    text = (ROOT / "config" / "demo.yaml").read_text()
    for shown, real in zip(_PORTS, ports, strict=True):
        text = text.replace(f"127.0.0.1:{shown}", f"127.0.0.1:{real}")
    (folder / "config").mkdir()
    (folder / "config" / "demo.yaml").write_text(text)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "bin").mkdir()
    curl = folder / "bin" / "curl"
    curl.write_text(f"#!{sys.executable}\n{(ROOT / 'tests/readme/curl.py').read_text()}")
    curl.chmod(0o755)
    arguments = ("--listen", f"127.0.0.1:{ports[2]}", "--with-proxy", "config/demo.yaml")
    with (folder / "demo.out").open("w") as output:
        process = subprocess.Popen(
            (sys.executable, "-m", "proxy.demo", *arguments),
            cwd=folder,
            stdout=output,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    with process:
        try:
            yield Session(folder, ports, process)
        finally:
            if process.poll() is None:
                process.terminate()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in taken]
