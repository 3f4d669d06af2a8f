"""Settings of one route: what it matches, and its policies."""

from dataclasses import dataclass

from proxy.http.header_edits import NO_EDITS, HeaderEdits
from proxy.policy.settings.dead_letter import DeadLetterSettings
from proxy.policy.settings.idempotency import IdempotencySettings
from proxy.policy.settings.retry import FallbackSettings, RetrySettings
from proxy.policy.settings.throttle import ThrottleSettings
from proxy.policy.settings.validation import above, at_least, check, filled


@dataclass(frozen=True, slots=True)
class Match:
    """The conditions of a route on a request; an empty tuple allows anything."""

    paths: tuple[str, ...] = ("/**",)
    methods: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Host names in lower case, without port; ``*.`` in front stands for every name below."""
    headers: tuple[tuple[str, str], ...] = ()
    """Pairs of a name in lower case and a value; a final ``*`` in it stands for any rest."""

    def __post_init__(self) -> None:
        begin_right = all(path.startswith("/") for path in self.paths)
        check(self, "paths", "paths, which begin with a slash", holds=begin_right)
        is_lower = all(name == name.lower() for name, _ in self.headers)
        check(self, "headers", "named in lower case", holds=is_lower)


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

    def __post_init__(self) -> None:
        filled(self, "name")
        prefix = self.strip_prefix
        is_prefix = not prefix or (prefix[0] == "/" != prefix[-1])
        check(self, "strip_prefix", "a path without a final slash", holds=is_prefix)
        above(self, 0, "timeout", "idle_timeout")
        at_least(self, 0, "max_body", "buffer")
