"""Settings of one upstream: URLs, TLS, connection pool, honoured key, retry budget, breaker."""

from dataclasses import dataclass

from proxy.policy.settings.throttle import ThrottleSettings


@dataclass(frozen=True, slots=True)
class Origin:
    """One URL of an upstream, parsed."""

    scheme: str
    host: str
    """Name or address, without brackets."""
    port: int
    base_path: str = ""
    """Prefix of the path of each request; never ends in a slash."""

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


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """The retry budget: how many retries an upstream has to bear."""

    ratio: float = 0.2
    """Retries per first attempt."""
    min_per_second: float = 1.0
    """Retries per second that are allowed whatever the traffic."""
    window: float = 10.0


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


@dataclass(frozen=True, slots=True)
class HonouredKey:
    """An upstream's promise to run a request once that it gets twice with the same key."""

    header: str = "idempotency-key"
    """Name of the key's header field, in lower case."""
    remembered_for: float = 86_400.0
    """Seconds for which the upstream remembers a key."""
    is_shared: bool = False
    """Whether all of its URLs know a key that one of them got."""


USUAL_REFUSALS = (421, 425, 429)
"""Default statuses by which an upstream says that it did not do the work."""


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """One entry of ``upstreams``."""

    name: str
    origins: tuple[Origin, ...]
    balance: str = "round_robin"
    """Load balancing over the URLs: ``round_robin`` or ``first``."""
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
