"""What a supervisor and a worker say to each other."""

from dataclasses import dataclass
from typing import Any

from proxy.observe.metrics.process_snapshot import ProcessSnapshot
from proxy.policy.settings import Settings

# To a worker.


@dataclass(frozen=True, slots=True)
class Begin:
    """Serve. The first message: settled, not read from a file that may have changed."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class Reload:
    """Serve with these from now on, or say why not."""

    number: int
    settings: Settings


@dataclass(frozen=True, slots=True)
class Ask:
    """Do or tell something, and answer under the same number."""

    number: int
    what: str
    """The name of an operation."""
    arguments: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Drain:
    """No more connections come: let every request end, then end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End at once."""


# To the supervisor.


@dataclass(frozen=True, slots=True)
class Ready:
    """Connections can be taken up."""

    reading: ProcessSnapshot


@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot serve, and ends."""

    why: str


@dataclass(frozen=True, slots=True)
class Answer:
    """To the question with that number."""

    number: int
    value: Any


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The store did not tell, or the worker does not know how to."""

    number: int
    store_is_silent: bool


@dataclass(frozen=True, slots=True)
class Last:
    """All requests have ended, and so does the worker."""

    reading: ProcessSnapshot


Message = Begin | Reload | Ask | Drain | Stop | Ready | Failed | Answer | NoAnswer | Last
