"""Keys of listeners and of the limits on clients."""

from dataclasses import replace

from proxy.config.schema.section import REQUIRED, Key, Section
from proxy.config.schema.shorthands import SetsKey
from proxy.config.values.addresses import ListenAddress
from proxy.config.values.base import Integer
from proxy.config.values.locations import FilePath
from proxy.config.values.quantities import ByteRate, Duration, Size
from proxy.policy.settings import Limits, Listen, ListenTls

LISTEN_TLS = Section(
    "ListenTls",
    "Serve TLS on this address.",
    belongs_to="listen.tls",
    settings=ListenTls,
    keys={
        "cert": Key(FilePath(), "PEM file with the certificate and its chain."),
        "key": Key(FilePath(), "PEM file with the private key."),
    },
)


def _listen(address: Listen, tls: ListenTls | None = None) -> Listen:
    return replace(address, tls=tls)


LISTEN = Section(
    "ListenOn",
    "An address to accept connections on.",
    belongs_to="listen",
    settings=Listen,
    make=_listen,
    shorthands=(SetsKey("address"),),
    keys={
        "address": Key(ListenAddress(), "host:port, [::1]:port or unix:/path.", written=REQUIRED),
        "tls": Key(LISTEN_TLS, "Serve TLS with this certificate."),
    },
)

LIMITS = Section(
    "LimitKeys",
    "Limits on clients: sizes, times, connections, memory.",
    belongs_to="limits",
    settings=Limits,
    keys={
        "header_bytes": Key(
            Size(least=1024),
            "Largest request line and header fields together; beyond it 431 or 414.",
        ),
        "header_timeout": Key(
            Duration(zero="leaves no time for any header, write 10s (say)"),
            "Longest time from a request's first byte to the end of its header.",
        ),
        "body_rate": Key(
            ByteRate(),
            "Lowest average rate of a request body, over any 30 s in which it is waited for; "
            "below it 408. none: only idle_timeout applies.",
        ),
        "keepalive": Key(
            Duration(zero="leaves no time for a second request, write 1s or more"),
            "How long an idle client connection is kept.",
            written="75s",
        ),
        "connections": Key(
            Integer(least=1),
            "Most client connections at a time, TLS handshakes included; beyond it 503.",
        ),
        "replay_memory": Key(
            Size(),
            "Most bytes of request bodies that are kept for another attempt, shared by caller; "
            "beyond it a body is sent once.",
        ),
    },
)
