"""Settings of the whole configuration file."""

from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated

from proxy.policy.settings.hand_off import DeliveriesSettings
from proxy.policy.settings.listen import Limits, Listen
from proxy.policy.settings.route import RouteSettings
from proxy.policy.settings.store import MemorySettings, StoreSettings
from proxy.policy.settings.upstream import UpstreamSettings
from proxy.policy.settings.validation import FILLED, Validated, at_least, require


class AccessLogMode(StrEnum):
    """Which requests are logged."""

    NOTABLE = "notable"
    ALL = "all"
    NONE = "none"


_LISTEN = Listen("127.0.0.1", 8080)
_ADMIN = Listen("127.0.0.1", 9901)


@dataclass(frozen=True, slots=True)
class Settings(Validated):
    """All settings of one configuration file."""

    listen: Annotated[tuple[Listen, ...], FILLED] = (_LISTEN,)
    admin: Listen | None = _ADMIN
    """Address of the admin listener; None: there is none."""
    name: Annotated[str, FILLED] = "holdfast"
    """The name of this proxy in Via and Proxy-Status."""
    admin_token: str | None = field(repr=False, default=None)
    workers: Annotated[int | None, at_least(1)] = 1
    """Number of worker processes; None: one per core."""
    drain_timeout: Annotated[float, at_least(0)] = 30.0
    drain_delay: Annotated[float, at_least(0)] = 0.0
    ready: bool = True
    """Whether ``/readyz`` may say that requests are taken."""
    access_log: AccessLogMode = AccessLogMode.NOTABLE
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    trust_unix: bool = False
    """Whether peers on a unix socket are trusted too (``unix`` in trusted_proxies)."""
    limits: Limits = field(default_factory=Limits)
    store: StoreSettings = field(default_factory=MemorySettings)
    state_dir: Annotated[str, FILLED] = "state"
    """The directory of dead letters and deliveries."""
    deliveries: DeliveriesSettings = field(default_factory=DeliveriesSettings)
    upstreams: tuple[UpstreamSettings, ...] = ()
    routes: tuple[RouteSettings, ...] = ()

    def check_fields(self) -> None:
        _check_unique(self, "upstreams", [upstream.name for upstream in self.upstreams])
        _check_unique(self, "routes", [route.name for route in self.routes])
        known = {upstream.name for upstream in self.upstreams}
        fallbacks = [route.fallback for route in self.routes if route.fallback is not None]
        asked = {route.upstream for route in self.routes}
        asked |= {fallback.upstream for fallback in fallbacks if fallback.upstream}
        require(self, "routes", "to upstreams of the file", holds=asked <= known)


def _check_unique(settings: Settings, name: str, names: list[str]) -> None:
    require(settings, name, "of different names", holds=len(names) == len(set(names)))
