"""One upstream: its URLs, TLS, connections, key promise, budget and breaker."""

from dataclasses import dataclass

from proxy.policy.settings.throttle import ThrottleSettings


@dataclass(frozen=True, slots=True)
class Origin:
    """One URL of an upstream, taken apart."""

    scheme: str
    host: str
    """Name or address, without brackets."""
    port: int
    base_path: str = ""
    """Put before the path of each request; never ends in a slash."""

    @property
    def authority(self) -> str:
        """What goes into Host: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.scheme == "https" else 80
        return host if self.port == default else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.base_path}"


@dataclass(frozen=True, slots=True)
class UpstreamTls:
    """How to trust a TLS server that we talk to, and how to show it who we are."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None
    verify: bool = True


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """How many retries an upstream is asked to bear."""

    ratio: float = 0.2
    """Retries per first attempt."""
    min_per_second: float = 1.0
    """Retries that are allowed whatever the traffic."""
    window: float = 10.0


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When an address is left alone for a while."""

    failure_ratio: float = 0.5
    min_requests: int = 20
    """Fewer than this in the window say nothing."""
    window: float = 10.0
    open_for: float = 30.0
    probes: int = 3
    """Successes in a row that close it again; also how many are tried at once."""


@dataclass(frozen=True, slots=True)
class HonouredKey:
    """What an upstream promises about a request that it gets twice with the same key."""

    header: str = "idempotency-key"
    """In lower case."""
    remembered_for: float = 86_400.0
    """Seconds for which it knows a key again."""
    is_shared: bool = False
    """Whether all of its URLs know a key that one of them got."""


USUAL_REFUSALS = (421, 425, 429)
"""Statuses by which an upstream says that it did not do the work, unless it has its own."""


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """One entry of ``upstreams``."""

    name: str
    origins: tuple[Origin, ...]
    balance: str = "round_robin"
    """``round_robin`` or ``first``."""
    connect_timeout: float = 5.0
    idle_connections: int = 64
    max_connections: int = 1024
    keepalive: float = 30.0
    preserve_host: bool = False
    tls: UpstreamTls = UpstreamTls()
    honours_key: HonouredKey | None = None
    """How it knows a request again, and runs it once; None: it promises nothing."""
    refused: frozenset[int] = frozenset(USUAL_REFUSALS)
    """Statuses by which it says that it did not do the work."""
    budget: BudgetSettings | None = BudgetSettings()
    breaker: BreakerSettings | None = None
    throttle: ThrottleSettings | None = None
