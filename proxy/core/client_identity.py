"""The identity of a client: what its connection and trusted proxies tell of it."""

from proxy.http.forwarded import NO_FORWARDED_FIELDS, client_address, identity_lines, is_trusted
from proxy.http.request_head import RequestHead
from proxy.policy.fair_share import network_of
from proxy.policy.settings import Settings


class ClientIdentity:
    """The client at the other end of one connection; shared by all requests that come by it.

    A replayed dead letter has that of the client that once sent it.
    """

    __slots__ = ("_host", "_lines", "caller", "peer", "scheme")

    def __init__(self, peer: str, scheme: str) -> None:
        self.peer = peer
        """The address of the connection's other end; empty on a unix socket."""
        self.scheme = scheme
        """How the client came: http or https."""
        self.caller = network_of(peer)
        """The caller whose fair share the client takes, unless it forwards for others."""
        self._host = b""
        self._lines = b""
        """The lines for a request with *_host* and without fields of earlier hops; empty before
        the first one."""

    def __repr__(self) -> str:
        return f"<client {self.peer or 'on a unix socket'} by {self.scheme}>"

    def address(self, head: RequestHead, settings: Settings) -> str:
        """Return the client's own address, as trusted proxies report it; empty if unknown."""
        return client_address(
            self.peer,
            head.forwarded_fields,
            settings.trusted_proxies,
            trust_unix=settings.trust_unix,
        )

    def lines(self, head: RequestHead, settings: Settings) -> bytes:
        """Return the lines that tell an upstream who the client is, with CRLF between them."""
        host, fields = head.host, head.forwarded_fields
        if fields is NO_FORWARDED_FIELDS and not head.trusted_only:
            if not self._lines or host != self._host:
                self._host = host
                self._lines = identity_lines(self.peer, self.scheme, host)
            return self._lines
        trusted = is_trusted(self.peer, settings.trusted_proxies, trust_unix=settings.trust_unix)
        lines = identity_lines(self.peer, self.scheme, host, fields, trusted=trusted)
        return b"\r\n".join((lines, *head.trusted_only)) if trusted else lines
