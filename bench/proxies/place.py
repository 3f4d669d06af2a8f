"""What a proxy is, and where one runs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import Template

from bench.stage import Stage, Upstream

HERE = Path(__file__).parent

ATTEMPTS = 4
"""Of every retry policy, the first included: one request in ten fails, so 1 in 10,000 for good."""

PLENTY = 1_000_000
"""Requests per second of every rate limit: none ever has to act."""


@dataclass(frozen=True, slots=True)
class Place:
    """A port to listen on, and everything around it."""

    port: int
    upstream: Upstream
    stage: Stage

    @property
    def upstream_port(self) -> int:
        return self.stage.ports[self.upstream]

    def file(self, name: str) -> Path:
        """A path for a file of this proxy alone."""
        return self.stage.folder / f"{self.port}-{name}"

    def render(self, template: str) -> Path:
        """Fill in a configuration file."""
        text = Template((HERE / template).read_text()).substitute(
            PORT=self.port,
            UPSTREAM=self.upstream_port,
            DIR=self.stage.folder,
            ATTEMPTS=ATTEMPTS,
            RETRIES=ATTEMPTS - 1,
            PLENTY=PLENTY,
        )
        path = self.file(template)
        path.write_text(text)
        return path


Command = tuple[list[str], dict[str, str]]
"""What to start, and what to add to its environment."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A program with a configuration."""

    name: str
    command: Callable[[Place], Command]
    path: str = "/"
    """What it serves as soon as it is ready."""
    uses_store: bool = False
    is_pinned: bool = True
    """Whether it is kept on one core."""
    workers: int = 1
