"""Settings of one route: what it matches, and its policies."""

from dataclasses import dataclass

from proxy.http.header_edits import NO_EDITS, HeaderEdits
from proxy.policy.settings.dead_letter import DeadLetterSettings
from proxy.policy.settings.idempotency import IdempotencySettings
from proxy.policy.settings.retry import FallbackSettings, RetrySettings
from proxy.policy.settings.throttle import ThrottleSettings


@dataclass(frozen=True, slots=True)
class Match:
    """The conditions of a route on a request; an empty tuple allows anything."""

    paths: tuple[str, ...] = ("/**",)
    methods: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Host names in lower case, without port; ``*.`` in front stands for every name below."""
    headers: tuple[tuple[str, str], ...] = ()
    """Pairs of a name in lower case and a value; a final ``*`` in it stands for any rest."""


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """One entry of ``routes`` with its policies merged in."""

    name: str
    match: Match
    upstream: str
    strip_prefix: str = ""
    timeout: float | None = 30.0
    idle_timeout: float | None = 300.0
    max_body: int | None = None
    buffer: int = 1024**2
    """Request bodies up to this size are kept for another attempt."""
    upgrades: tuple[str, ...] = ("websocket",)
    request_headers: HeaderEdits = NO_EDITS
    response_headers: HeaderEdits = NO_EDITS
    retry: RetrySettings | None = None
    throttle: ThrottleSettings | None = None
    idempotency: IdempotencySettings | None = None
    fallback: FallbackSettings | None = None
    dead_letter: DeadLetterSettings | None = None
