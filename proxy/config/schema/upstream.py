"""Keys of an upstream."""

from typing import Annotated, Any, Literal

from annotated_types import MinLen
from pydantic import create_model

from proxy.config.schema.section import Section, described
from proxy.config.schema.shorthands import SetsKey, Switchable
from proxy.config.schema.throttle import Throttle
from proxy.config.values.addresses import ServerName, UpstreamUrl
from proxy.config.values.base import Choice, Integer, Number, Switch
from proxy.config.values.idempotency import HonouredHeader
from proxy.config.values.locations import FilePath
from proxy.config.values.outcomes import Status
from proxy.config.values.quantities import Duration
from proxy.policy.settings import USUAL_REFUSALS, LoadBalancing, Origin

_NO_WINDOW = "leaves no time to count in, write 10s (say)"


class UpstreamTlsKeys(Section):
    """How to trust a TLS upstream, and how to show who we are."""

    belongs_to = "an upstream's tls"

    ca: Annotated[str | None, FilePath()] = described(
        "PEM file with the authorities to trust in place of the system's.", None
    )
    cert: Annotated[str | None, FilePath()] = described("PEM file with a client certificate.", None)
    key: Annotated[str | None, FilePath()] = described("PEM file with its private key.", None)
    server_name: Annotated[str | None, ServerName()] = described(
        "Name to ask for and to find in the certificate, in place of the URL's host.", None
    )
    verify: Annotated[bool, Switch()] = described(
        "false accepts any certificate, so anyone on the way can read and change all of it.",
        default=True,
    )


class BudgetKeys(Section):
    """How many retries an upstream is asked to bear."""

    belongs_to = "an upstream's budget"

    ratio: Annotated[float, Number(0, 100)] = described("Retries per request.", 0.2)
    min_per_second: Annotated[float, Number(0, 1_000_000)] = described(
        "Retries per second that are allowed besides, however few requests there are.", 1
    )
    window: Annotated[float, Duration(zero=_NO_WINDOW)] = described(
        "How long requests and retries are counted.", "10s"
    )


class BreakerKeys(Section):
    """When an address is left alone for a while."""

    belongs_to = "an upstream's breaker"

    failure_ratio: Annotated[float, Number(0, 1, above=True)] = described(
        "Share of failures (connect, reset, timeout, protocol, 500, 502, 503, 504) that opens it.",
        0.5,
    )
    min_requests: Annotated[int, Integer(least=1)] = described(
        "Fewer requests than this in the window do not open it.", 20
    )
    window: Annotated[float, Duration(zero=_NO_WINDOW)] = described(
        "How long outcomes are counted.", "10s"
    )
    open_for: Annotated[
        float, Duration(zero="leaves the address no time to recover, write 30s (say)")
    ] = described("How long the address gets no requests, before it is probed.", "30s")
    probes: Annotated[int, Integer(least=1, most=1000)] = described(
        "Successes that close it again; also how many requests probe it at a time.", 3
    )


# Made by create_model, because one of its keys (`for`) is a keyword of Python.
_HONOURED: dict[str, Any] = {
    "header": (
        Annotated[str, HonouredHeader()],
        described("The header field that carries the key.", "Idempotency-Key"),
    ),
    "for": (
        Annotated[
            float,
            Duration(
                zero="is no time to remember a key, write 24h (say)",
                units=("h", "s"),
                example="24h",
            ),
        ],
        described(
            "How long it remembers a key. A POST is repeated by its key only within this time "
            "after the first attempt that may have run, less the time of one attempt.",
            "24h",
        ),
    ),
    "shared": (
        Annotated[bool, Switch()],
        described(
            "Whether all its urls have one store of keys; if not, a POST that may have run is "
            "repeated only at the URL that it was sent to.",
            default=False,
        ),
    ),
}

HonoursKeyKeys = create_model(
    "HonoursKeyKeys",
    __base__=Section,
    __doc__="How the upstream knows a request again that it has run.",
    **_HONOURED,
)
HonoursKeyKeys.belongs_to = "an upstream's honours_key"


class UpstreamKeys(Section):
    """An HTTP service that requests are sent to."""

    belongs_to = "an upstream"

    urls: Annotated[list[Annotated[Origin, UpstreamUrl()]], MinLen(1)] = described(
        "Where it is: http or https, host, port and a base path. A name stands for every address "
        "that it resolves to."
    )
    balance: Annotated[LoadBalancing, Choice(*LoadBalancing)] = described(
        "round_robin takes the addresses in turn; first takes the first that works.", "round_robin"
    )
    connect_timeout: Annotated[
        float, Duration(zero="leaves no time to connect, write 5s (say)")
    ] = described("Longest wait for a connection, TLS handshake included.", "5s")
    idle_connections: Annotated[int, Integer(least=0)] = described(
        "Most idle connections that are kept, per address.", 64
    )
    max_connections: Annotated[int, Integer(least=1)] = described(
        "Most connections, per address; beyond it requests wait for connect_timeout, then 503.",
        1024,
    )
    keepalive: Annotated[
        float,
        Duration(zero="keeps no connection, write idle_connections: 0 if that is meant"),
    ] = described(
        "Longest idle time of a connection that is used again; never beyond what the upstream "
        "itself announces.",
        "30s",
    )
    host: Annotated[str, Choice("upstream", "preserve")] = described(
        "The Host that it sees: that of its URL (upstream) or that of the client (preserve).",
        "upstream",
    )
    tls: UpstreamTlsKeys = described("For https URLs.", {})
    honours_key: Annotated[
        HonoursKeyKeys | Literal[False],
        Switchable(),
        SetsKey("header", HonouredHeader()),
    ] = described(
        "Whether the upstream itself runs a request once, however often it is sent with the same "
        "Idempotency-Key; or the name of the header that it goes by.",
        default=False,
    )
    refused: list[Annotated[int, Status()]] = described(
        "Statuses from 400 to 599 by which it says that it did not do the work. Add 503 or 529 "
        "where that is true.",
        list(USUAL_REFUSALS),
    )
    budget: Annotated[BudgetKeys | Literal[False], Switchable()] = described(
        "How many retries it is asked to bear; false for any number.", {}
    )
    throttle: Throttle = described(
        "Limits the calls of all routes to it together, besides each one's own.", default=False
    )
    breaker: Annotated[BreakerKeys | Literal[False], Switchable()] = described(
        "Leaves an address alone for a while that fails too often.", default=False
    )
