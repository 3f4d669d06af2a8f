"""Settings of one route: what it matches, and its policies."""

from dataclasses import dataclass
from typing import Annotated

from proxy.http.header_edits import NO_EDITS, HeaderEdits
from proxy.policy.settings.dead_letter import DeadLetterSettings
from proxy.policy.settings.hand_off import HandOffSettings
from proxy.policy.settings.idempotency import IdempotencySettings
from proxy.policy.settings.retry import FallbackSettings, RetrySettings
from proxy.policy.settings.throttle import ThrottleSettings
from proxy.policy.settings.validation import FILLED, PREFIX, Validated, above, at_least, require


@dataclass(frozen=True, slots=True)
class Match(Validated):
    """The conditions of a route on a request; an empty tuple allows anything."""

    paths: tuple[str, ...] = ("/**",)
    methods: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Host names in lower case, without port; ``*.`` in front stands for every name below."""
    headers: tuple[tuple[str, str], ...] = ()
    """Pairs of a name in lower case and a value; a final ``*`` in it stands for any rest."""

    def check_fields(self) -> None:
        begin_right = all(path.startswith("/") for path in self.paths)
        require(self, "paths", "paths, which begin with a slash", holds=begin_right)
        is_lower = all(name == name.lower() for name, _ in self.headers)
        require(self, "headers", "named in lower case", holds=is_lower)


@dataclass(frozen=True, slots=True)
class RouteSettings(Validated):
    """One entry of ``routes`` with its policies merged in."""

    name: Annotated[str, FILLED]
    match: Match
    upstream: str
    strip_prefix: Annotated[str, PREFIX] = ""
    timeout: Annotated[float | None, above(0)] = 30.0
    idle_timeout: Annotated[float | None, above(0)] = 300.0
    max_body: Annotated[int | None, at_least(0)] = None
    buffer: Annotated[int, at_least(0)] = 1024**2
    """Request bodies up to this size are kept for another attempt."""
    upgrades: tuple[str, ...] = ("websocket",)
    request_headers: HeaderEdits = NO_EDITS
    response_headers: HeaderEdits = NO_EDITS
    retry: RetrySettings | None = None
    throttle: ThrottleSettings | None = None
    idempotency: IdempotencySettings | None = None
    fallback: FallbackSettings | None = None
    dead_letter: DeadLetterSettings | None = None
    hand_off: HandOffSettings | None = None
