"""Keys of listeners and of the limits on clients."""

from typing import Annotated

from proxy.config.schema.section import Section, described
from proxy.config.values.addresses import ListenAddress
from proxy.config.values.base import Integer
from proxy.config.values.locations import FilePath
from proxy.config.values.quantities import ByteRate, Duration, Size
from proxy.policy.settings import Listen


class ListenTlsKeys(Section):
    """Serve TLS on this address."""

    belongs_to = "listen.tls"

    cert: Annotated[str, FilePath()] = described("PEM file with the certificate and its chain.")
    key: Annotated[str, FilePath()] = described("PEM file with the private key.")


class ListenOn(Section):
    """An address to accept connections on."""

    belongs_to = "listen"

    address: Annotated[Listen, ListenAddress()] = described("host:port, [::1]:port or unix:/path.")
    tls: ListenTlsKeys | None = described("Serve TLS with this certificate.", None)


class LimitKeys(Section):
    """What one client may cost."""

    belongs_to = "limits"

    header_bytes: Annotated[int, Size(least=1024)] = described(
        "Largest request line and header fields together; beyond it 431 or 414.", "64KiB"
    )
    header_timeout: Annotated[
        float, Duration(zero="leaves no time for any header, write 10s (say)")
    ] = described("Longest time from a request's first byte to the end of its header.", "10s")
    body_rate: Annotated[int | None, ByteRate()] = described(
        "What a request body must bring on average over any 30 s in which it is waited for; below "
        "it 408. none: idle_timeout alone.",
        "500B/s",
    )
    keepalive: Annotated[
        float, Duration(zero="leaves no time for a second request, write 1s or more")
    ] = described("How long an idle client connection is kept.", "75s")
    connections: Annotated[int, Integer(least=1)] = described(
        "Most client connections at a time, TLS handshakes included; beyond it 503.", 20_000
    )
    replay_memory: Annotated[int, Size()] = described(
        "Most bytes of request bodies that are kept for another attempt, shared by caller; beyond "
        "it a body is sent once.",
        "256MiB",
    )
