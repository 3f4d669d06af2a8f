"""Which requests the admin listener accepts: Host, Origin and token, as plain functions.

The attack to expect comes through a browser on the operator's machine: a page from anywhere
may make it call ``http://127.0.0.1:9901``. Such a request can be told by a
name in Host that is not ours (DNS rebinding), by a foreign Origin, or by
``Sec-Fetch-Site``. The token guards against all other clients.
"""

import hmac
from ipaddress import ip_address

from proxy.policy.settings import Listen


def host_is_ours(host: str, listen: Listen) -> bool:
    """Tell whether the Host field may name a listener on *listen*.

    An address cannot be rebound, so any is accepted. Of names, localhost is accepted and
    the one that was configured. Off loopback, a name without a dot is accepted as
    well: containers call each other so, and no public site can have one. A unix
    socket is out of a browser's reach, and clients put what they like.
    """
    if listen.path:
        return True
    name = _without_port(host).lower()
    if name in {"localhost", listen.host.lower()} or _is_address(name):
        return True
    exposed = not (listen.host == "localhost" or _is_loopback(listen.host))
    return exposed and bool(name) and "." not in name


def origin_is_ours(origin: str, host: str) -> bool:
    """Tell whether the request comes from a page of the server that the Host field names."""
    return origin.lower() == f"http://{host.lower().removesuffix(':80')}"


def token_is_right(authorization: str, token: str) -> bool:
    """Tell whether *authorization* is ``Bearer TOKEN``, in constant time.

    The comparison is of bytes, since a text with other than ASCII characters would raise.
    """
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(
        given.strip(" ").encode("utf-8", "surrogateescape"), token.encode()
    )


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return _is_address(name) and ip_address(name).is_loopback
