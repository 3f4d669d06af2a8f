"""The exchange of a simulated request."""

from proxy.core.clientless import ClientlessExchange
from proxy.http.forwarded import identity_lines


class SimulatedExchange(ClientlessExchange):
    """A request that no client sent; records what a client would get."""

    __slots__ = ()

    scheme = "http"

    def identity_lines(self) -> bytes:
        """Return the header lines that tell the upstream of the client, as if it were local."""
        return identity_lines(self.peer, self.scheme, self.head.host)

    def client_ip(self) -> str:
        """Return the address of the client that the request is assumed to come from."""
        return self.peer

    def caller(self) -> str:
        """Return the caller for fair shares: the same for every request."""
        return self.peer
