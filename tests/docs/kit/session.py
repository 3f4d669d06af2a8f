"""A shell in which the commands of a page are run, and what runs beside it: see ``pages.py``."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner

from proxy.cli import main
from tests.docs.kit.blocks import as_pattern
from tests.docs.kit.curl import curl
from tests.docs.kit.pages import ROOT, Block
from tests.support.redis_server import SERVERS, free_port

PATIENCE = 20.0
"""Seconds for a command, or for something to be printed."""

# What differs from one run to the next.
_MASKS = (
    (re.compile(r"(?m)^Date: .*"), "Date: DATE"),
    (re.compile(r"(?m)^X-Request-Id: [0-9a-f]{24}-\d+$"), "X-Request-Id: ID"),
    (re.compile(r'"request_id":"[0-9a-f]{24}-\d+"'), '"request_id":"ID"'),
    (re.compile(r'"time": ?"[-\d]{10}T[:\d]{8}\.\d{3}Z"'), '"time":"TIME"'),
    (re.compile(r'"((?:\w+_)?ms)":\d+\.\d{3}'), r'"\1":0.0'),
    (re.compile(r"(?m)^Content-Length: \d+"), "Content-Length: N"),
    # What is left of a minute and its margin, in whole seconds.
    (re.compile(r"(?m)^(Retry-After: |RateLimit: .*t=)6[01]$"), r"\g<1>60"),
    (re.compile(r"(?m)^\d\d:\d\d:\d\d (?=[A-Z]+ )"), ""),
    (re.compile(r"\bup \w+(?: \w+)?, \d connections?, 0 in flight$", re.MULTILINE), "up TIME"),
    (re.compile(r"\bthe last (?:minute|\d+ s)\b"), "LATELY"),
    (re.compile(r"^ended: .*", re.MULTILINE), "ended: TIME"),
    (re.compile(r" +[\d.]+m?s(?:/[\d.]+m?s)?(?![\w/.])"), " TIME"),
    (re.compile(r"\b[0-9a-f]{32,}\b"), "DIGEST"),
    (re.compile(r"\b[0-9a-f]{20}\b"), "LETTER"),
    (re.compile(r"(?<=LETTER  )\d\d-\d\d \d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b[-\d]{10}[T ][:\d]{8}(?:\.\d{3})?Z"), "TIME"),
)

# Commands of ours that need no process of their own.
_ASK = {"check", "explain", "schema", "status", "attempts", "keys", "dlq", "healthcheck", "reload"}
_SHELL = re.compile(r"[|&;<>$`()]")
# A busy machine is not an outage of Redis.
_STORE = re.compile(r"(?m)^store: (redis://127\.0\.0\.1:\d+)$")
_SERVES = re.compile(r"(?:\S*/)?holdfast run\b|.* &$")
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+\b")


def masked(output: str) -> str:
    """*output* without what is different each time, and without spaces around it."""
    for pattern, instead in _MASKS:
        output = pattern.sub(instead, output)
    return "\n".join(line.rstrip() for line in output.strip().splitlines())


def _first_of_pipe(command: str) -> tuple[list[str], str] | None:
    """The words of the first program of a pipe, and the rest; None if there is more than a pipe."""
    first, _, rest = command.partition(" | ")
    has_more = _SHELL.search(re.sub(r"'[^']*'", "", first))
    return None if has_more else (shlex.split(first), rest)


def until(predicate: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not predicate():
        assert time.monotonic() < deadline, what()
        time.sleep(0.01)


@dataclass
class Background:
    """A process that a page left running, and what its terminal shows."""

    process: subprocess.Popen[bytes]
    shown: bytearray = field(default_factory=bytearray)

    def follow(self, terminal: int) -> None:
        """Read what it prints until it has ended."""
        while True:
            try:
                read = os.read(terminal, 65_536)
            except OSError:  # that is how the end of a terminal is told
                break
            if not read:
                break
            self.shown += read
        os.close(terminal)

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE)


class Session:
    """A terminal in a folder that looks like a checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_the_checkout = True
        """Whether ``holdfast`` is that of the checkout."""
        self.background: list[Background] = []
        self._ports: dict[int, int] = {}
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HOLDFAST_") and name != "COLUMNS"
        }
        self.environment |= {
            "PATH": f"{folder / 'bin'}:{folder / '.venv' / 'bin'}:{os.environ['PATH']}",
            "HOLDFAST_ADMIN": f"http://127.0.0.1:{self.port(9901)}",
            "NO_COLOR": "1",
        }
        (folder / "bin").mkdir()
        (folder / ".venv").symlink_to(sys.prefix)
        for path in (ROOT / "config").rglob("*.yaml"):
            self.write(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
        self._command(
            "curl", (ROOT / "tests" / "docs" / "kit" / "curl.py").read_text(encoding="utf-8")
        )

    def port(self, shown: int) -> int:
        """The real port in place of the one that a page shows."""
        if shown not in self._ports:
            self._ports[shown] = free_port()
        return self._ports[shown]

    def real(self, text: str) -> str:
        return _PORT.sub(lambda found: str(self.port(int(found[0]))), text)

    def as_shown(self, text: str) -> str:
        shown = {real: shown for shown, real in self._ports.items()}
        text = _PORT.sub(lambda found: str(shown.get(int(found[0]), found[0])), text)
        return text.replace("\r\n", "\n")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = _STORE.sub(r"store: {url: \1, timeout: 5s}", self.real(text))
        path.write_text(text, encoding="utf-8")

    @property
    def said(self) -> str:
        """What the processes in the background have printed so far."""
        return self.as_shown("".join(one.shown.decode() for one in self.background))

    def run(self, command: str) -> str:
        """What *command* prints, in the ports of the page."""
        first, said, rest = _first_of_pipe(self.real(command)), None, ""
        if first is not None:
            said, rest = self._in_this_process(first[0]), first[1]
        if said is not None and not rest:
            return self.as_shown(said)
        done = subprocess.run(
            ["/bin/sh", "-c", self.real(command) if said is None else rest],
            cwd=self.folder,
            env=self.environment,
            input=said,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,  # a check that finds faults does not end with 0
        )
        return self.as_shown(done.stdout)

    def _in_this_process(self, words: list[str]) -> str | None:
        """What curl or a command of ours prints, without the start of Python, which takes longest.

        None if the command needs a process of its own.
        """
        name, *arguments = words
        if name == "curl":
            return curl(arguments, self.folder)
        is_ours = name in {"holdfast", ".venv/bin/holdfast"} and self.is_the_checkout
        if not is_ours or arguments[:1] not in [[one] for one in _ASK]:
            return None
        with chdir(self.folder):
            return CliRunner(env=self.environment).invoke(main, arguments).output

    def start(self, *arguments: str) -> Background:
        """Start a program that is left running, on a terminal of its own."""
        ours, theirs = os.openpty()
        process = subprocess.Popen(
            arguments, cwd=self.folder, env=self.environment, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        one = Background(process)
        self.background.append(one)
        threading.Thread(target=one.follow, args=(ours,), daemon=True).start()
        return one

    def serve(self, command: str, shown: str) -> None:
        """Start *command*, and wait until it has printed what is *shown*, or listens."""
        words = self.real(command.rstrip("& "))
        if "holdfast run" in words:
            words += self._own_ports(words)
        one = self.start("/bin/sh", "-c", f"exec {words}")
        expected = [masked(line) for line in shown.splitlines() if line != "…"] or [
            "listening on" if "holdfast run" in words else ""
        ]
        until(
            lambda: all(line in masked(self.as_shown(one.shown.decode())) for line in expected),
            lambda: f"`{command}` prints now:\n{one.shown.decode()}",
        )

    def _own_ports(self, words: str) -> str:
        """Options for the ports that the files do not name."""
        files = re.findall(r" ([^\s-]\S*\.yaml)\b", words)
        text = "".join((self.folder / file).read_text(encoding="utf-8") for file in files)
        options = ""
        for key, port in (("listen", 8080), ("admin", 9901)):
            if not re.search(rf"(?m)^{key}:", text) and f"--{key}" not in words:
                options += f" --{key} 127.0.0.1:{self.port(port)}"
        return options

    def wait_for_port(self, shown: int) -> None:
        def is_open() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port(shown))) == 0

        until(is_open, lambda: f"nothing listens on {shown}:\n{self.said}")

    def start_demo(self) -> Background:
        """What ``make demo`` starts (a test compares it with the Makefile)."""
        one = self.start(
            *(sys.executable, "-m", "proxy.demo", "--listen", f"127.0.0.1:{self.port(9000)}"),
            *("--with-proxy", "config/demo.yaml"),
        )
        until(lambda: "Ctrl-C stops both" in self.said, lambda: self.said)
        return one

    def start_upstream(self) -> None:
        address = f"127.0.0.1:{self.port(9000)}"
        self.start(sys.executable, "-m", "proxy.demo", "--listen", address)
        self.wait_for_port(9000)

    def start_redis(self) -> None:
        options = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        self.start(str(SERVERS[0]), "--port", str(self.port(6379)), *options)
        self.wait_for_port(6379)
        self.environment["SESSION_REDIS"] = str(self.port(6379))
        client = ROOT / "tests" / "docs" / "kit" / "redis_cli.py"
        self._command("redis-cli", client.read_text(encoding="utf-8"))

    def use(self, installed: Path) -> None:
        """Have the commands of another environment than the checkout's."""
        self.is_the_checkout = False
        (self.folder / ".venv").unlink()
        self.environment["PATH"] = f"{self.folder / 'bin'}:{installed}:{os.environ['PATH']}"

    def _command(self, name: str, program: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!{sys.executable}\n{program}", encoding="utf-8")
        path.chmod(0o755)


@contextmanager
def session(folder: Path, parts: Iterable[str], blocks: Iterable[Block]) -> Iterator[Session]:
    """A session with the files of *blocks*, and *parts* running beside it."""
    with ExitStack() as stack:
        opened = Session(folder)
        stack.callback(lambda: [one.stop() for one in reversed(opened.background)])
        for block in blocks:
            if block.file is not None:
                opened.write(block.file, block.text)
        starts = {
            "demo": opened.start_demo,
            "upstream": opened.start_upstream,
            "redis": opened.start_redis,
        }
        for part in parts:
            if part != "installed":
                starts[part]()
        yield opened


def play(opened: Session, block: Block) -> None:
    """Run each command of a console block, and compare what it prints with what is shown."""
    for command, shown in block.steps():
        if command == "make demo":
            output = opened.said
        elif _SERVES.match(command):
            opened.serve(command, shown)
            continue
        else:
            output = opened.run(command)
        assert as_pattern(masked(shown)).fullmatch(masked(output) + "\n"), (
            f"{block}: `{command}` prints now:\n{output}"
        )
