"""Checks of TLS files: certificates, keys and authorities, wherever the file names them."""

import ssl
from pathlib import Path

from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.read.typed_tree import TypedMapping, TypedScalar
from proxy.config.source.files import reason_of


class _Encrypted(Exception):
    """The key is encrypted; the proxy has no way to ask for its password."""


def certificate_files(file: TypedMapping) -> list[Path]:
    """Return every certificate, key and authority that the file names."""
    owners = [*file.mappings("listen"), *file.mappings("upstreams"), file.mapping("store")]
    sections = [section.mapping("tls") for section in owners if section]
    scalars = [tls.scalar(key) for tls in sections if tls for key in ("ca", "cert", "key")]
    return [Path(scalar.value) for scalar in scalars if scalar]


def check_listen_tls(file: TypedMapping, diagnostics: Diagnostics) -> None:
    """Check that the certificates of the listeners can be used."""
    for listen in file.mappings("listen"):
        tls = listen.mapping("tls")
        if tls is not None:
            _check_chain(tls, diagnostics)


def check_client_tls(tls: TypedMapping, peer: str, diagnostics: Diagnostics) -> None:
    """Check the TLS settings of connections to *peer*, such as ``this upstream``."""
    verify = tls.scalar("verify")
    if verify is not None and not verify.value:
        diagnostics.warn(
            verify, f"anyone on the way can pose as {peer}, write ca: FILE to trust its certificate"
        )
    ca, key = tls.scalar("ca"), tls.scalar("key")
    if ca is not None and _is_readable(ca, diagnostics):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca.value)
        except (ssl.SSLError, OSError, ValueError):
            diagnostics.fault(ca, "the file holds no certificate, write one in PEM form")
    if key is not None and "cert" not in tls.entries.keys() | tls.broken:
        diagnostics.fault(key, "a key needs a certificate, write cert: FILE beside it")
    _check_chain(tls, diagnostics)


def _check_chain(tls: TypedMapping, diagnostics: Diagnostics) -> None:
    """Check that a certificate can be used with its key, which may be in the same file."""
    cert, key = tls.scalar("cert"), tls.scalar("key")
    readable = [_is_readable(scalar, diagnostics) for scalar in (cert, key) if scalar is not None]
    if cert is None or "key" in tls.broken or not all(readable):
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            cert.value, None if key is None else key.value, password=_no_password
        )
    except _Encrypted:
        scalar = key or cert
        diagnostics.fault(scalar, "the key is encrypted, write a file with a plain key")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH" and key is not None:
            diagnostics.fault(key, "this key does not belong to the certificate, write its own")
        else:
            diagnostics.fault(
                cert, "the certificate and its key cannot be loaded, write both in PEM form"
            )


def _no_password() -> str:
    raise _Encrypted


def _is_readable(scalar: TypedScalar, diagnostics: Diagnostics) -> bool:
    try:
        with Path(scalar.value).open("rb"):
            return True
    except (OSError, ValueError) as error:
        diagnostics.fault(
            scalar,
            f"cannot read {scalar.written.bare} ({reason_of(error)}), mount it or correct the path",
        )
        return False
