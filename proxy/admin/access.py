"""Who may talk to the admin listener: three questions, asked as plain functions.

A browser on the operator's machine is the way in to fear: a page from anywhere
may send it to ``http://127.0.0.1:9901``. Such a request gives itself away by a
name in Host that is not ours (DNS rebinding), by a foreign Origin, or by
``Sec-Fetch-Site``. The token guards against everybody else.
"""

import hmac
from ipaddress import ip_address

from proxy.policy.settings import Listen


def host_is_ours(host: str, listen: Listen) -> bool:
    """Whether the Host field may name a listener on *listen*.

    An address cannot be rebound, so any will do. Of names we know localhost and
    the one that was configured. Off loopback, a name without a dot is taken as
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
    """Whether a page that the Host field's own server sent is asking."""
    return origin.lower() == f"http://{host.lower().removesuffix(':80')}"


def token_is_right(authorization: str, token: str) -> bool:
    """Whether *authorization* is ``Bearer TOKEN``, found out in constant time.

    Compared as bytes, since a text with other than ASCII characters would raise.
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
