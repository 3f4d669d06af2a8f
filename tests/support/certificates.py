"""A certificate authority that exists for one test."""

import ssl
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

    def for_server(self, *names: str) -> ssl.SSLContext:
        """What a server with such a certificate uses."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.issue(*names))
        return context

    def for_client(self) -> ssl.SSLContext:
        """What a client uses that trusts this authority."""
        return ssl.create_default_context(cafile=str(self.ca))
