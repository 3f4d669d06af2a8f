"""Keys at the top of the file."""

from ipaddress import IPv4Network, IPv6Network
from typing import Any

from proxy.config.schema.hand_off import DELIVERIES
from proxy.config.schema.listen import LIMITS, LISTEN
from proxy.config.schema.route import POLICY, ROUTE
from proxy.config.schema.section import NO_FIELD, Key, ListOf, Section, TableOf
from proxy.config.schema.shorthands import OneOrMore
from proxy.config.schema.store import STORE
from proxy.config.schema.upstream import UPSTREAM
from proxy.config.values.addresses import AdminAddress, TrustedPeer
from proxy.config.values.base import Choice, Name, Switch, Token
from proxy.config.values.headers import Pseudonym
from proxy.config.values.locations import FolderPath
from proxy.config.values.processes import WorkerCount
from proxy.config.values.quantities import Duration
from proxy.policy.settings import AccessLogMode, Settings


def _settings(
    *,
    trusted_proxies: tuple[IPv4Network | IPv6Network | str, ...] = (),
    **others: Any,  # noqa: ANN401 - fields of any type
) -> Settings:
    """Make the settings, in which trusted networks and trusted unix sockets are apart."""
    return Settings(
        trusted_proxies=tuple(peer for peer in trusted_proxies if not isinstance(peer, str)),
        trust_unix="unix" in trusted_proxies,
        **others,
    )


FILE = Section(
    "FileKeys",
    "The configuration of Holdfast.",
    belongs_to="the top of the file",
    settings=Settings,
    make=_settings,
    keys={
        "name": Key(
            Pseudonym(),
            "What this proxy is called in Via and Proxy-Status. Two proxies in a chain need "
            "different names, or the second one sees a loop (508).",
        ),
        "listen": Key(
            ListOf(LISTEN, OneOrMore(), can_be_empty=False),
            "Address or list of addresses to accept connections on.",
            written="127.0.0.1:8080",
        ),
        "admin": Key(
            AdminAddress(),
            "Address of the admin listener (health, metrics, status, reload); false for none.",
        ),
        "admin_token": Key(
            Token(),
            "The bearer token that the admin listener requires, except for /healthz, /readyz and "
            "/metrics. Needed unless admin is on a loopback address.",
        ),
        "workers": Key(
            WorkerCount(),
            "Worker processes: 1, a number, or auto for one per core. Several need a store "
            "that they can share, redis for limits, redis or sqlite for idempotency keys.",
        ),
        "drain_timeout": Key(Duration(), "How long requests in flight may continue after SIGTERM."),
        "drain_delay": Key(Duration(), "How long readiness fails before the listeners close."),
        "ready": Key(
            Switch(),
            "Whether /readyz and holdfast healthcheck may say that requests are taken. With false "
            "all is served as usual, but no balancer or pod that asks counts this instance.",
        ),
        "access_log": Key(
            Choice(*AccessLogMode),
            "What to log: notable (refused, failed, repeated or fallen back), all or none.",
        ),
        "trusted_proxies": Key(
            ListOf(TrustedPeer()),
            "Peers whose X-Forwarded-* and Forwarded are trusted: networks, addresses, unix.",
        ),
        "limits": Key(LIMITS, "Limits on clients."),
        "upstreams": Key(
            TableOf(Name(), UPSTREAM, name_to="name"),
            "Services by name: a URL, or a mapping.",
            make=lambda upstreams: tuple(upstreams.values()),
            examples=({"payments": "https://api.example.com"},),
        ),
        "defaults": Key(
            POLICY,
            "What every route does unless it says otherwise.",
            to=NO_FIELD,
            written={},
            examples=({"timeout": "10s", "retry": True},),
        ),
        "policies": Key(
            TableOf(Name(), POLICY),
            "Named sets of the same keys, for the routes that name them.",
            to=NO_FIELD,
            written={},
            examples=({"patient": {"timeout": "60s", "retry": 5}},),
        ),
        "routes": Key(
            ListOf(ROUTE),
            "The first that matches takes the request; none: 404.",
            examples=([{"match": "/v1/**", "upstream": "payments"}],),
        ),
        # Last, so that a misplaced `timeout` is said to belong to a route rather than to store.
        "store": Key(
            STORE,
            "Where limits are counted and idempotency keys are kept: memory; sqlite:PATH for keys "
            "that outlive the process; redis://… for all instances together; or a mapping.",
            written="memory",
        ),
        "state_dir": Key(
            FolderPath(),
            "Folder of dead letters and deliveries, made when a route keeps some; the environment "
            "variable HOLDFAST_STATE_DIR takes precedence.",
            written="./state",
        ),
        "deliveries": Key(DELIVERIES, "Where clients ask for what was handed off, and the room."),
    },
)
