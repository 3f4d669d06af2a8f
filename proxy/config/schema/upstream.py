"""Keys of an upstream."""

from proxy.config.schema.section import Key, ListOf, Section
from proxy.config.schema.shorthands import SetsKey, Switchable
from proxy.config.schema.throttle import THROTTLE
from proxy.config.values.addresses import ServerName, UpstreamUrl
from proxy.config.values.base import Choice, Integer, Number, Switch
from proxy.config.values.idempotency import HonouredHeader
from proxy.config.values.locations import FilePath
from proxy.config.values.outcomes import Status
from proxy.config.values.quantities import Duration
from proxy.policy.settings import (
    USUAL_REFUSALS,
    BreakerSettings,
    BudgetSettings,
    HonouredKey,
    LoadBalancing,
    UpstreamSettings,
    UpstreamTls,
)

_NO_WINDOW = "leaves no time to count in, write 10s (say)"

UPSTREAM_TLS = Section(
    "UpstreamTlsKeys",
    "Which certificates of an upstream to trust, and which client certificate to present.",
    belongs_to="an upstream's tls",
    settings=UpstreamTls,
    keys={
        "ca": Key(FilePath(), "PEM file with the authorities to trust in place of the system's."),
        "cert": Key(FilePath(), "PEM file with a client certificate."),
        "key": Key(FilePath(), "PEM file with its private key."),
        "server_name": Key(
            ServerName(),
            "Name to ask for and to find in the certificate, in place of the URL's host.",
        ),
        "verify": Key(
            Switch(),
            "false accepts any certificate, so anyone on the way can read and change all of it.",
        ),
    },
)

BUDGET = Section(
    "BudgetKeys",
    "How many retries an upstream gets, in proportion to its requests.",
    belongs_to="an upstream's budget",
    settings=BudgetSettings,
    shorthands=(Switchable(),),
    keys={
        "ratio": Key(Number(0, 100), "Retries per request."),
        "min_per_second": Key(
            Number(0, 1_000_000),
            "Retries per second that are always allowed, even with few requests.",
        ),
        "window": Key(Duration(zero=_NO_WINDOW), "How long requests and retries are counted."),
    },
)

BREAKER = Section(
    "BreakerKeys",
    "Circuit breaker: when a failing address gets no requests for a while.",
    belongs_to="an upstream's breaker",
    settings=BreakerSettings,
    shorthands=(Switchable(),),
    keys={
        "failure_ratio": Key(
            Number(0, 1, above=True),
            "Share of failures (connect, reset, timeout, protocol, 500, 502, 503, 504) that opens "
            "it.",
        ),
        "min_requests": Key(
            Integer(least=1), "Fewer requests than this in the window do not open it."
        ),
        "window": Key(Duration(zero=_NO_WINDOW), "How long outcomes are counted."),
        "open_for": Key(
            Duration(zero="leaves the address no time to recover, write 30s (say)"),
            "How long the address gets no requests, before it is probed.",
        ),
        "probes": Key(
            Integer(least=1, most=1000),
            "Successes that close it again; also how many requests probe it at a time.",
        ),
    },
)

HONOURS_KEY = Section(
    "HonoursKeyKeys",
    "How the upstream recognises a request that it has already run.",
    belongs_to="an upstream's honours_key",
    settings=HonouredKey,
    shorthands=(Switchable(), SetsKey("header")),
    keys={
        "header": Key(
            HonouredHeader(),
            "The header field that carries the key.",
            make=str.lower,
            written="Idempotency-Key",
        ),
        "for": Key(
            Duration(
                zero="is no time to remember a key, write 24h (say)",
                units=("h", "s"),
                example="24h",
            ),
            "How long it remembers a key. A POST is repeated by its key only within this time "
            "after the first attempt that may have run, less the time of one attempt.",
            to="remembered_for",
            written="24h",
        ),
        "shared": Key(
            Switch(),
            "Whether all its urls have one store of keys; if not, a POST that may have run is "
            "repeated only at the URL that it was sent to.",
            to="is_shared",
        ),
    },
)


def _preserves(host: str) -> bool:
    return host == "preserve"


UPSTREAM = Section(
    "UpstreamKeys",
    "An HTTP service that requests are sent to.",
    belongs_to="an upstream",
    settings=UpstreamSettings,
    shorthands=(SetsKey("urls", listed=True),),
    keys={
        "urls": Key(
            ListOf(UpstreamUrl(), can_be_empty=False),
            "Where it is: http or https, host, port and a base path. A name stands for every "
            "address that it resolves to.",
            to="origins",
        ),
        "balance": Key(
            Choice(*LoadBalancing),
            "round_robin takes the addresses in turn; first takes the first that works.",
        ),
        "connect_timeout": Key(
            Duration(zero="leaves no time to connect, write 5s (say)"),
            "Longest wait for a connection, TLS handshake included.",
        ),
        "idle_connections": Key(
            Integer(least=0), "Most idle connections that are kept, per address."
        ),
        "max_connections": Key(
            Integer(least=1),
            "Most connections, per address; beyond it requests wait for connect_timeout, then 503.",
        ),
        "keepalive": Key(
            Duration(zero="keeps no connection, write idle_connections: 0 if that is meant"),
            "Longest idle time of a connection that is used again; never beyond what the upstream "
            "itself announces.",
        ),
        "host": Key(
            Choice("upstream", "preserve"),
            "The Host that it sees: that of its URL (upstream) or that of the client (preserve).",
            to="preserve_host",
            make=_preserves,
            written="upstream",
        ),
        "tls": Key(UPSTREAM_TLS, "For https URLs."),
        "honours_key": Key(
            HONOURS_KEY,
            "Whether the upstream itself runs a request once, however often it is sent with the "
            "same Idempotency-Key; or the name of the header that it goes by.",
        ),
        "refused": Key(
            ListOf(Status()),
            "Statuses from 400 to 599 by which it says that it did not do the work. Add 503 or 529 "
            "where that is true.",
            make=frozenset,
            written=list(USUAL_REFUSALS),
        ),
        "budget": Key(BUDGET, "Limits the retries that it gets; false for no limit."),
        "throttle": Key(
            THROTTLE,
            "Limits the calls of all routes to it together, in addition to each route's own.",
        ),
        "breaker": Key(
            BREAKER,
            "Circuit breaker: an address that fails too often gets no requests for a while.",
        ),
    },
)
