"""What an admin operation is declared with: its endpoint, and who answers where workers serve.

Each group of operations is one module: a protocol with the operations that it asks of the process,
each with the rule by which a supervisor has its workers answer, and a resource with the endpoints
and their handlers. Nothing else lists them.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OperationT = TypeVar("OperationT", bound=Callable[..., Any])


class StoreSilent(Exception):
    """The store, or the file of the dead letters, did not answer.

    The operation may have been done all the same.
    """


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method and a path of the admin listener, and what handles them."""

    method: str
    path: str
    handler: Handler
    hint: str = ""
    """How the path is written in the list that a 404 shows; empty if it is not there."""
    needs_token: bool = True
    has_head: bool = True
    """Whether a GET may be a HEAD as well."""


@dataclass(frozen=True, slots=True)
class WorkerRule:
    """How a supervisor has its workers run an operation."""

    merge: Callable[[Sequence[Any]], Any] | None = None
    """Makes one answer of those of all workers; None: one worker answers for all."""
    takes_long: bool = False
    """Whether the supervisor waits for as long as it takes."""
    logged_as: str = ""
    """What the log calls the operation, if not by its name: operators may search for that."""

    def __call__(self, operation: OperationT) -> OperationT:
        """Declare, as a decorator, that *operation* is run by this rule."""
        operation.__dict__[_RULE] = self
        return operation


_RULE = "worker_rule"


def worker_rules(operations: type) -> dict[str, WorkerRule]:
    """Return the rule of each of *operations* that workers run; the rest the supervisor does."""
    members = {name: getattr(operations, name) for name in dir(operations)}
    return {
        name: member.__dict__[_RULE]
        for name, member in members.items()
        if _RULE in getattr(member, "__dict__", ())
    }
