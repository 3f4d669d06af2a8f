"""Settings of the listeners: addresses, their TLS, and limits on what a client may cost."""

from dataclasses import dataclass

from proxy.policy.settings.validation import above, at_least, check, filled, within


@dataclass(frozen=True, slots=True)
class ListenTls:
    """Certificate and key (PEM files) of a listener."""

    cert: str
    key: str

    def __post_init__(self) -> None:
        filled(self, "cert", "key")


@dataclass(frozen=True, slots=True)
class Listen:
    """One address to accept connections on: host and port, or a unix path."""

    host: str = ""
    port: int = 0
    path: str = ""
    tls: ListenTls | None = None

    def __post_init__(self) -> None:
        check(self, "path", "in place of a host", holds=bool(self.path) != bool(self.host))
        within(self, 0, 65535, "port")

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on what clients may cost the proxy."""

    header_bytes: int = 64 * 1024
    header_timeout: float = 10.0
    body_rate: int | None = 500
    """Bytes per second that a request body must bring while it is waited for; None: any."""
    keepalive: float = 75.0
    connections: int = 20_000
    replay_memory: int = 256 * 1024**2
    """Bytes of request bodies kept for another attempt, summed over all clients."""

    def __post_init__(self) -> None:
        at_least(self, 1, "header_bytes", "body_rate", "connections")
        above(self, 0, "header_timeout", "keepalive")
        at_least(self, 0, "replay_memory")
