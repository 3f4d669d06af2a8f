"""Checks of the addresses that the proxy listens on, and of the peers it trusts."""

from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.read.typed_tree import TypedMapping, TypedScalar
from proxy.config.values.addresses import is_loopback
from proxy.policy.settings import Listen


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
