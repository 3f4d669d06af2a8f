"""Settings of one upstream: URLs, TLS, connection pool, honoured key, retry budget, breaker."""

from dataclasses import dataclass
from enum import StrEnum

from proxy.policy.settings.throttle import ThrottleSettings
from proxy.policy.settings.validation import (
    above,
    at_least,
    check,
    choose,
    filled,
    lower_case,
    within,
)

_SCHEMES = ("http", "https")


class LoadBalancing(StrEnum):
    """Which address of an upstream gets a request."""

    ROUND_ROBIN = "round_robin"
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class Origin:
    """One URL of an upstream, parsed."""

    scheme: str
    host: str
    """Name or address, without brackets."""
    port: int
    base_path: str = ""
    """Prefix of the path of each request; never ends in a slash."""

    def __post_init__(self) -> None:
        check(self, "scheme", " or ".join(_SCHEMES), holds=self.scheme in _SCHEMES)
        filled(self, "host")
        within(self, 1, 65535, "port")
        is_prefix = not self.base_path or (self.base_path[0] == "/" != self.base_path[-1])
        check(self, "base_path", "a path without a final slash", holds=is_prefix)

    @property
    def authority(self) -> str:
        """The value for Host: with the port only where it is not the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.scheme == "https" else 80
        return host if self.port == default else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.base_path}"


@dataclass(frozen=True, slots=True)
class UpstreamTls:
    """TLS to a server: which certificates to trust, and the proxy's own certificate."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None
    verify: bool = True

    def __post_init__(self) -> None:
        check(self, "key", "beside a cert", holds=self.key is None or self.cert is not None)


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """The retry budget: how many retries an upstream has to bear."""

    ratio: float = 0.2
    """Retries per first attempt."""
    min_per_second: float = 1.0
    """Retries per second that are allowed whatever the traffic."""
    window: float = 10.0

    def __post_init__(self) -> None:
        at_least(self, 0, "ratio", "min_per_second")
        above(self, 0, "window")


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When the circuit breaker of an address opens, and how it closes again."""

    failure_ratio: float = 0.5
    min_requests: int = 20
    """Attempts in the window below which the breaker does not open."""
    window: float = 10.0
    open_for: float = 30.0
    probes: int = 3
    """Successful probes in a row that close it again; also how many are sent at once."""

    def __post_init__(self) -> None:
        above(self, 0, "failure_ratio", "window", "open_for")
        within(self, 0, 1, "failure_ratio")
        at_least(self, 1, "min_requests", "probes")


@dataclass(frozen=True, slots=True)
class HonouredKey:
    """An upstream's promise to run a request once that it gets twice with the same key."""

    header: str = "idempotency-key"
    """Name of the key's header field, in lower case."""
    remembered_for: float = 86_400.0
    """Seconds for which the upstream remembers a key."""
    is_shared: bool = False
    """Whether all of its URLs know a key that one of them got."""

    def __post_init__(self) -> None:
        lower_case(self, "header")
        above(self, 0, "remembered_for")


USUAL_REFUSALS = (421, 425, 429)
"""Default statuses by which an upstream says that it did not do the work."""


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """One entry of ``upstreams``."""

    name: str
    origins: tuple[Origin, ...]
    balance: LoadBalancing = LoadBalancing.ROUND_ROBIN
    connect_timeout: float = 5.0
    idle_connections: int = 64
    max_connections: int = 1024
    keepalive: float = 30.0
    preserve_host: bool = False
    tls: UpstreamTls = UpstreamTls()
    honours_key: HonouredKey | None = None
    """How the upstream recognises a repeated request; None: it promises nothing."""
    refused: frozenset[int] = frozenset(USUAL_REFUSALS)
    """Statuses by which the upstream says that it did not do the work."""
    budget: BudgetSettings | None = BudgetSettings()
    breaker: BreakerSettings | None = None
    throttle: ThrottleSettings | None = None

    def __post_init__(self) -> None:
        filled(self, "name", "origins")
        choose(self, LoadBalancing, "balance")
        above(self, 0, "connect_timeout", "keepalive")
        at_least(self, 0, "idle_connections")
        at_least(self, 1, "max_connections")
        within(self, 400, 599, "refused")
