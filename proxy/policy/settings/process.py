"""Settings of the whole configuration file."""

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from proxy.policy.settings.listen import Limits, Listen
from proxy.policy.settings.route import RouteSettings
from proxy.policy.settings.store import MemorySettings, StoreSettings
from proxy.policy.settings.upstream import UpstreamSettings


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one configuration file."""

    listen: tuple[Listen, ...]
    admin: Listen | None
    name: str = "holdfast"
    """The name of this proxy in Via and Proxy-Status."""
    admin_token: str | None = field(repr=False, default=None)
    workers: int | None = 1
    """Number of worker processes; None: one per core."""
    drain_timeout: float = 30.0
    drain_delay: float = 0.0
    access_log: str = "notable"
    """``notable``, ``all`` or ``none``."""
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    trust_unix: bool = False
    """Whether peers on a unix socket are trusted too (``unix`` in trusted_proxies)."""
    limits: Limits = field(default_factory=Limits)
    store: StoreSettings = field(default_factory=MemorySettings)
    state_dir: str = "state"
    """The directory of the dead letters."""
    upstreams: tuple[UpstreamSettings, ...] = ()
    routes: tuple[RouteSettings, ...] = ()
