"""Keys at the top of the file."""

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated

from annotated_types import MinLen

from proxy.config.schema.listen import LimitKeys, ListenOn
from proxy.config.schema.route import PolicyKeys, RouteKeys
from proxy.config.schema.section import Section, described
from proxy.config.schema.shorthands import (
    OneOrMore,
    SetsKey,
)
from proxy.config.schema.store import StoreKeys
from proxy.config.schema.upstream import UpstreamKeys
from proxy.config.values.addresses import (
    AdminAddress,
    ListenAddress,
    TrustedPeer,
    UpstreamUrl,
)
from proxy.config.values.base import Choice, Name, Token
from proxy.config.values.headers import Pseudonym
from proxy.config.values.locations import FolderPath
from proxy.config.values.processes import WorkerCount
from proxy.config.values.quantities import Duration
from proxy.config.values.stores import StoreUrl
from proxy.policy.settings import AccessLogMode, Listen


class FileKeys(Section):
    """The configuration of Holdfast."""

    belongs_to = "the top of the file"

    name: Annotated[str, Pseudonym()] = described(
        "What this proxy is called in Via and Proxy-Status. Two in a row need two names, or the "
        "second takes it for a loop (508).",
        "holdfast",
    )
    listen: Annotated[
        list[Annotated[ListenOn, SetsKey("address", ListenAddress())]], MinLen(1), OneOrMore()
    ] = described("Address or list of addresses to accept connections on.", "127.0.0.1:8080")
    admin: Annotated[Listen | None, AdminAddress()] = described(
        "Address of the admin listener (health, metrics, status, reload); false for none.",
        "127.0.0.1:9901",
    )
    admin_token: Annotated[str | None, Token()] = described(
        "Asked for as a bearer token by the admin listener, except for /healthz, /readyz and "
        "/metrics. Needed unless admin is on a loopback address.",
        None,
    )
    workers: Annotated[int | None, WorkerCount()] = described(
        "Processes that serve: 1, a number, or auto for one per core. Several need a store that "
        "they can share, redis for limits, redis or sqlite for idempotency keys.",
        1,
    )
    drain_timeout: Annotated[float, Duration()] = described(
        "How long requests under way may go on after SIGTERM.", "30s"
    )
    drain_delay: Annotated[float, Duration()] = described(
        "How long readiness fails before the listeners close.", "0s"
    )
    access_log: Annotated[AccessLogMode, Choice(*AccessLogMode)] = described(
        "What to log: notable (refused, failed, repeated or fallen back), all or none.",
        "notable",
    )
    trusted_proxies: list[Annotated[IPv4Network | IPv6Network | str, TrustedPeer()]] = described(
        "Peers whose X-Forwarded-* and Forwarded are believed: networks, addresses, unix.", []
    )
    limits: LimitKeys = described("What clients may cost.", {})
    upstreams: dict[
        Annotated[str, Name()],
        Annotated[UpstreamKeys, SetsKey("urls", UpstreamUrl(), listed=True)],
    ] = described("Services by name: a URL, or a mapping.", {})
    defaults: PolicyKeys = described("What every route does unless it says otherwise.", {})
    policies: dict[Annotated[str, Name()], PolicyKeys] = described(
        "The same, by name, for the routes that ask for it.", {}
    )
    routes: list[RouteKeys] = described("The first that matches takes the request; none: 404.", [])
    # Last, so that a misplaced `timeout` is said to belong to a route rather than to store.
    store: Annotated[StoreKeys, SetsKey("url", StoreUrl())] = described(
        "Where limits are counted and idempotency keys are kept: memory; sqlite:PATH for keys that "
        "outlive the process; redis://… for all instances together; or a mapping.",
        "memory",
    )
    state_dir: Annotated[str, FolderPath()] = described(
        "Folder of the dead letters, made when a route keeps some; the environment variable "
        "HOLDFAST_STATE_DIR goes before it.",
        "./state",
    )
