"""Who the client is: X-Forwarded-For, -Proto, -Host and Forwarded (RFC 7239).

An untrusted peer's own claims are replaced, a trusted one's are appended to.
"""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address

TOKEN_CHARACTERS = frozenset(
    b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)


@dataclass(frozen=True, slots=True)
class Claims:
    """What the request said about earlier hops: field values in order."""

    forwarded_for: tuple[bytes, ...] = ()
    proto: tuple[bytes, ...] = ()
    host: tuple[bytes, ...] = ()
    forwarded: tuple[bytes, ...] = ()


NO_CLAIMS = Claims()


def is_trusted(
    peer: str, networks: tuple[IPv4Network | IPv6Network, ...], *, trust_unix: bool
) -> bool:
    """Whether *peer* (an address, or nothing on a unix socket) may speak for others."""
    if not peer:
        return trust_unix
    if not networks:
        return False
    address = ip_address(peer.partition("%")[0])
    # A dual-stack socket shows an IPv4 peer as ::ffff:a.b.c.d.
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in networks)


def identity_lines(
    peer: str, scheme: str, host: bytes, claims: Claims = NO_CLAIMS, *, trusted: bool = False
) -> bytes:
    """The header lines that tell the upstream who asked, with CRLF between them.

    *peer* is empty on a unix socket, *host* where the client named none.
    """
    if not trusted:
        claims = NO_CLAIMS
    lines = []
    forwarded_for = claims.forwarded_for + ((peer.encode(),) if peer else ())
    if forwarded_for:
        lines.append(b"X-Forwarded-For: %b" % b", ".join(forwarded_for))
    proto = b", ".join(claims.proto) or scheme.encode()
    lines.append(b"X-Forwarded-Proto: %b" % proto)
    claimed_host = b", ".join(claims.host) or host
    if claimed_host:
        lines.append(b"X-Forwarded-Host: %b" % claimed_host)
    element = _element(peer, scheme, host)
    lines.append(b"Forwarded: %b" % b", ".join((*claims.forwarded, element)))
    return b"\r\n".join(lines)


def _element(peer: str, scheme: str, host: bytes) -> bytes:
    node = b"unknown"
    if peer:
        # RFC 7239 6: an IPv6 address is bracketed, and therefore quoted.
        node = b'"[%b]"' % peer.encode() if ":" in peer else peer.encode()
    element = b"for=%b;proto=%b" % (node, scheme.encode())
    if host:
        quoted = host if TOKEN_CHARACTERS.issuperset(host) else b'"%b"' % host
        element += b";host=%b" % quoted
    return element
