"""Checks of the addresses that the proxy listens on, and of the peers it trusts."""

from enum import Enum
from ipaddress import IPv4Address, IPv6Address, ip_address

from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.read.effective import EffectiveSection
from proxy.config.read.typed_tree import TypedMapping, TypedScalar
from proxy.config.values.addresses import is_loopback
from proxy.policy.settings import Listen, Origin

_LISTENER = ("listener", "so each request would come back to us", "listen")
_ADMIN = ("admin listener", "which sends nothing on", "admin")
_LOCALHOST = "localhost"
_IPV4 = 4


class _Reach(Enum):
    """Whether a connection to an upstream's URL ends at a listener of our own."""

    NO = "no"
    PERHAPS = "perhaps"
    CERTAINLY = "certainly"


def check_listeners(file: TypedMapping, diagnostics: Diagnostics) -> None:
    """Check that each address is used once, and that the admin listener is protected."""
    taken: dict[Listen, str] = {}
    addresses = [listen.scalar("address") for listen in file.mappings("listen")]
    admin = file.scalar("admin")
    for scalar in (*addresses, admin):
        # Port 0 gets another free port each time, so it may be repeated.
        if (
            scalar is None
            or scalar.value is None
            or (not scalar.value.port and not scalar.value.path)
        ):
            continue
        if scalar.value in taken:
            diagnostics.fault(
                scalar, f"already the address of {taken[scalar.value]}, write another"
            )
        taken.setdefault(scalar.value, scalar.path)
    if admin is not None and admin.value is not None:
        _check_admin(file, admin, diagnostics)


def check_own_addresses(
    file: TypedMapping, whole: EffectiveSection, diagnostics: Diagnostics
) -> None:
    """Refuse an upstream at an address that we listen on ourselves.

    A name that may stand for such an address, and for another one, gets a warning.
    """
    listen, admin = whole.items("listen"), whole.scalar("admin")
    own = [
        (EffectiveSection(item, item.path).scalar("address"), _LISTENER)
        for item in (listen.items if listen else ())
        if isinstance(item, TypedMapping)
    ]
    for upstream in file.mappings("upstreams"):
        for url in upstream.scalars("urls"):
            for address, listener in (*own, (admin, _ADMIN)):
                if address is None or address.value is None:
                    continue
                reaches = _reaches(url.value, address.value)
                if reaches is not _Reach.NO:
                    _report_own_address(url, address, listener, reaches, diagnostics)
                    break


def _report_own_address(
    url: TypedScalar,
    address: TypedScalar,
    listener: tuple[str, str, str],
    reaches: _Reach,
    diagnostics: Diagnostics,
) -> None:
    name, effect, key = listener
    where = f"our own {name} ({key}: {address.written.bare}), {effect}"
    if reaches is _Reach.CERTAINLY:
        diagnostics.fault(
            url,
            f"{url.written.bare} is {where}, write the address of the service, or another {key}",
        )
    else:
        diagnostics.warn(
            url,
            f"{url.written.bare} may be {where}, write 127.0.0.1 for localhost if the service "
            f"listens there, or another {key}",
        )


def _reaches(url: Origin, listen: Listen) -> _Reach:
    """Return whether a connection to *url* gets to *listen*."""
    if listen.path or url.port != listen.port:
        return _Reach.NO
    to, at = _address(url.host), _address(listen.host)
    if to == at:
        return _Reach.CERTAINLY
    if _LOCALHOST in {to, at}:
        other = at if to == _LOCALHOST else to
        if isinstance(other, str) or not (other.is_loopback or other.is_unspecified):
            return _Reach.NO
        # localhost is 127.0.0.1, and on some machines ::1, too.
        return _Reach.CERTAINLY if other.version == _IPV4 else _Reach.PERHAPS
    if isinstance(to, str) or isinstance(at, str) or to.version != at.version:
        return _Reach.NO
    # To connect to 0.0.0.0 is to connect to this machine; to listen on it, on all its addresses.
    is_own = (at.is_unspecified and to.is_loopback) or (to.is_unspecified and at.is_loopback)
    return _Reach.CERTAINLY if is_own else _Reach.NO


def _address(host: str) -> IPv4Address | IPv6Address | str:
    """Return *host* as an address, or as a name in lower case."""
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower().rstrip(".")
    return getattr(address, "ipv4_mapped", None) or address


def check_readiness(file: TypedMapping, diagnostics: Diagnostics) -> None:
    """Warn if the instance never becomes ready: that is easily forgotten."""
    ready = file.scalar("ready")
    if ready is not None and ready.value is False:
        diagnostics.warn(ready, "this instance never becomes ready, write true to have it used")


def check_trust(file: TypedMapping, diagnostics: Diagnostics) -> None:
    """Warn if every peer is trusted."""
    for item in file.scalars("trusted_proxies"):
        if getattr(item.value, "prefixlen", 1) == 0:
            diagnostics.warn(
                item, "every client can claim to be another one, write the networks of your proxies"
            )


def _check_admin(file: TypedMapping, admin: TypedScalar, diagnostics: Diagnostics) -> None:
    if is_loopback(admin.value) or "admin_token" in file.entries or "admin_token" in file.broken:
        return
    referenced = bool(admin.written.references)
    host, port = (admin.written.bare, 9901) if referenced else (admin.value.host, admin.value.port)
    diagnostics.fault(
        admin,
        f"{host} is reachable from outside and there is no admin_token, write admin_token: "
        f"${{HOLDFAST_ADMIN_TOKEN}} or admin: 127.0.0.1:{port}",
    )
