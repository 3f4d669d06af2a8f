"""Settings of the listeners: addresses, their TLS, and limits on what a client may cost."""

from dataclasses import dataclass
from typing import Annotated

from proxy.policy.settings.validation import FILLED, Validated, above, at_least, require, within


@dataclass(frozen=True, slots=True)
class ListenTls(Validated):
    """Certificate and key (PEM files) of a listener."""

    cert: Annotated[str, FILLED]
    key: Annotated[str, FILLED]


@dataclass(frozen=True, slots=True)
class Listen(Validated):
    """One address to accept connections on: host and port, or a unix path."""

    host: str = ""
    port: Annotated[int, within(0, 65535)] = 0
    path: str = ""
    tls: ListenTls | None = None

    def check_fields(self) -> None:
        require(self, "path", "in place of a host", holds=bool(self.path) != bool(self.host))

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Limits(Validated):
    """Limits on what clients may cost the proxy."""

    header_bytes: Annotated[int, at_least(1)] = 64 * 1024
    header_timeout: Annotated[float, above(0)] = 10.0
    body_rate: Annotated[int | None, at_least(1)] = 500
    """Bytes per second that a request body must bring while it is waited for; None: any."""
    keepalive: Annotated[float, above(0)] = 75.0
    connections: Annotated[int, at_least(1)] = 20_000
    replay_memory: Annotated[int, at_least(0)] = 256 * 1024**2
    """Bytes of request bodies kept for another attempt, summed over all clients."""
