"""TLS contexts: whom they trust, what they offer, and files that cannot be read."""

import ssl
from pathlib import Path

import pytest

from proxy.net.tls import client_context, server_context
from proxy.policy.settings import ListenTls, UpstreamTls
from tests.support import Certificates


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def agreed_protocol(client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """The ALPN protocol that a handshake in memory ends with."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    left = set(ends)
    for _ in range(10):
        for end in tuple(left):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            left.remove(end)
    assert not left
    return ends[0].selected_alpn_protocol()


def test_both_ends_agree_upon_http_1_1(certificates: Certificates) -> None:
    cert, key = certificates.issue()
    server = server_context(ListenTls(cert=str(cert), key=str(key)))
    client = client_context(UpstreamTls(ca=str(certificates.ca)))
    assert agreed_protocol(client, server) == "http/1.1"


def test_a_client_without_protocols_offers_none(certificates: Certificates) -> None:
    cert, key = certificates.issue()
    server = server_context(ListenTls(cert=str(cert), key=str(key)))
    client = client_context(UpstreamTls(ca=str(certificates.ca)), protocols=())
    assert agreed_protocol(client, server) is None


def test_a_stranger_is_trusted_only_if_nothing_is_verified(certificates: Certificates) -> None:
    cert, key = certificates.issue()
    server = server_context(ListenTls(cert=str(cert), key=str(key)))
    with pytest.raises(ssl.SSLCertVerificationError):
        agreed_protocol(client_context(UpstreamTls()), server)
    assert agreed_protocol(client_context(UpstreamTls(verify=False)), server) == "http/1.1"


def test_a_certificate_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(OSError, match="No such file"):
        server_context(ListenTls(cert=missing, key=missing))
