"""Settings of one upstream: URLs, TLS, connection pool, honoured key, retry budget, breaker."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from proxy.policy.settings.throttle import ThrottleSettings
from proxy.policy.settings.validation import (
    FILLED,
    LOWER_CASE,
    PREFIX,
    STATUS,
    Validated,
    above,
    at_least,
    one_of,
    require,
    within,
)


class LoadBalancing(StrEnum):
    """Which address of an upstream gets a request."""

    ROUND_ROBIN = "round_robin"
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class Origin(Validated):
    """One URL of an upstream, parsed."""

    scheme: Annotated[str, one_of("http", "https")]
    host: Annotated[str, FILLED]
    """Name or address, without brackets."""
    port: Annotated[int, within(1, 65535)]
    base_path: Annotated[str, PREFIX] = ""
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
class UpstreamTls(Validated):
    """TLS to a server: which certificates to trust, and the proxy's own certificate."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None
    verify: bool = True

    def check_fields(self) -> None:
        require(self, "key", "beside a cert", holds=self.key is None or self.cert is not None)


@dataclass(frozen=True, slots=True)
class BudgetSettings(Validated):
    """The retry budget: how many retries an upstream has to bear."""

    ratio: Annotated[float, at_least(0)] = 0.2
    """Retries per first attempt."""
    min_per_second: Annotated[float, at_least(0)] = 1.0
    """Retries per second that are allowed whatever the traffic."""
    window: Annotated[float, above(0)] = 10.0


@dataclass(frozen=True, slots=True)
class BreakerSettings(Validated):
    """When the circuit breaker of an address opens, and how it closes again."""

    failure_ratio: Annotated[float, above(0), within(0, 1)] = 0.5
    min_requests: Annotated[int, at_least(1)] = 20
    """Attempts in the window below which the breaker does not open."""
    window: Annotated[float, above(0)] = 10.0
    open_for: Annotated[float, above(0)] = 30.0
    probes: Annotated[int, at_least(1)] = 3
    """Successful probes in a row that close it again; also how many are sent at once."""


@dataclass(frozen=True, slots=True)
class HonouredKey(Validated):
    """An upstream's promise to run a request once that it gets twice with the same key."""

    header: Annotated[str, LOWER_CASE] = "idempotency-key"
    """Name of the key's header field, in lower case."""
    remembered_for: Annotated[float, above(0)] = 86_400.0
    """Seconds for which the upstream remembers a key."""
    is_shared: bool = False
    """Whether all of its URLs know a key that one of them got."""


USUAL_REFUSALS = (421, 425, 429)
"""Default statuses by which an upstream says that it did not do the work."""


@dataclass(frozen=True, slots=True)
class UpstreamSettings(Validated):
    """One entry of ``upstreams``."""

    name: Annotated[str, FILLED]
    origins: Annotated[tuple[Origin, ...], FILLED]
    balance: LoadBalancing = LoadBalancing.ROUND_ROBIN
    connect_timeout: Annotated[float, above(0)] = 5.0
    idle_connections: Annotated[int, at_least(0)] = 64
    max_connections: Annotated[int, at_least(1)] = 1024
    keepalive: Annotated[float, above(0)] = 30.0
    preserve_host: bool = False
    tls: UpstreamTls = UpstreamTls()
    honours_key: HonouredKey | None = None
    """How the upstream recognises a repeated request; None: it promises nothing."""
    refused: Annotated[frozenset[int], STATUS] = frozenset(USUAL_REFUSALS)
    """Statuses by which the upstream says that it did not do the work."""
    budget: BudgetSettings | None = BudgetSettings()
    breaker: BreakerSettings | None = None
    throttle: ThrottleSettings | None = None
