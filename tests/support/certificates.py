"""A certificate authority that exists for one test."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


class Certificates:
    """Certificates in files, and contexts that use them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.ca = folder / "ca.pem"
        """The authority's certificate: whoever trusts it trusts all of these."""
        self._authority.cert_pem.write_to_path(str(self.ca))

    def issue(self, *names: str) -> tuple[Path, Path]:
        """A certificate for *names*, and its key: two PEM files."""
        issued = self._authority.issue_cert(*(names or ("localhost", "127.0.0.1")))
        stem = (names or ("localhost",))[0].replace("*", "any")
        cert, key = self._folder / f"{stem}.pem", self._folder / f"{stem}.key"
        cert.unlink(missing_ok=True)
        for blob in issued.cert_chain_pems:
            blob.write_to_path(str(cert), append=True)
        issued.private_key_pem.write_to_path(str(key))
        return cert, key

    def for_server(self, *names: str, asks_for_certificate: bool = False) -> ssl.SSLContext:
        """What a server with such a certificate uses."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.issue(*names))
        if asks_for_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(str(self.ca))
        return context

    def expired(self) -> ssl.SSLContext:
        """What a server uses whose certificate ran out yesterday."""
        yesterday = datetime.now(UTC) - timedelta(days=1)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._authority.issue_cert(
            "127.0.0.1", not_before=yesterday - timedelta(days=1), not_after=yesterday
        ).configure_cert(context)
        return context

    def for_client(self) -> ssl.SSLContext:
        """What a client uses that trusts this authority."""
        return ssl.create_default_context(cafile=str(self.ca))
