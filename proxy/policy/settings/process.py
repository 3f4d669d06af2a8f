"""Settings of the whole configuration file."""

from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network

from proxy.policy.settings.listen import Limits, Listen
from proxy.policy.settings.route import RouteSettings
from proxy.policy.settings.store import MemorySettings, StoreSettings
from proxy.policy.settings.upstream import UpstreamSettings
from proxy.policy.settings.validation import at_least, check, choose, filled


class AccessLogMode(StrEnum):
    """Which requests are logged."""

    NOTABLE = "notable"
    ALL = "all"
    NONE = "none"


_LISTEN = Listen("127.0.0.1", 8080)
_ADMIN = Listen("127.0.0.1", 9901)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one configuration file."""

    listen: tuple[Listen, ...] = (_LISTEN,)
    admin: Listen | None = _ADMIN
    """Address of the admin listener; None: there is none."""
    name: str = "holdfast"
    """The name of this proxy in Via and Proxy-Status."""
    admin_token: str | None = field(repr=False, default=None)
    workers: int | None = 1
    """Number of worker processes; None: one per core."""
    drain_timeout: float = 30.0
    drain_delay: float = 0.0
    access_log: AccessLogMode = AccessLogMode.NOTABLE
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    trust_unix: bool = False
    """Whether peers on a unix socket are trusted too (``unix`` in trusted_proxies)."""
    limits: Limits = field(default_factory=Limits)
    store: StoreSettings = field(default_factory=MemorySettings)
    state_dir: str = "state"
    """The directory of the dead letters."""
    upstreams: tuple[UpstreamSettings, ...] = ()
    routes: tuple[RouteSettings, ...] = ()

    def __post_init__(self) -> None:
        filled(self, "listen", "name", "state_dir")
        at_least(self, 1, "workers")
        at_least(self, 0, "drain_timeout", "drain_delay")
        choose(self, AccessLogMode, "access_log")
        _check_unique(self, "upstreams", [upstream.name for upstream in self.upstreams])
        _check_unique(self, "routes", [route.name for route in self.routes])
        known = {upstream.name for upstream in self.upstreams}
        fallbacks = [route.fallback for route in self.routes if route.fallback is not None]
        asked = {route.upstream for route in self.routes}
        asked |= {fallback.upstream for fallback in fallbacks if fallback.upstream}
        check(self, "routes", "to upstreams of the file", holds=asked <= known)


def _check_unique(settings: Settings, name: str, names: list[str]) -> None:
    check(settings, name, "of different names", holds=len(names) == len(set(names)))
