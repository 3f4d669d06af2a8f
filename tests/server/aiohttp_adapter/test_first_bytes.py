"""What a connection speaks that does not begin with a request line of HTTP/1."""

import pytest

from proxy.server.aiohttp_adapter.first_bytes import refusal_of


@pytest.mark.parametrize(
    ("start", "status", "cause"),
    [
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http2_preface", id="HTTP/2"),
        pytest.param(b"PRI * HTTP/2.0\r\n", 505, "http2_preface", id="its first line"),
        pytest.param(b"PRI /x HTTP/1.1\r\n", 400, "", id="nearly HTTP/2"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01", 400, "tls_on_plain_port", id="TLS 1.0 to 1.3"),
        pytest.param(b"\x16\x03\x03", 400, "tls_on_plain_port", id="TLS with another version"),
        pytest.param(b"\x16", 400, "", id="too little to tell"),
        pytest.param(b"\x15\x03\x01\x00\x02", 400, "", id="an alert"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", 400, "", id="SSH"),
        pytest.param(b"GET  / HTTP/1.1\r\n", 400, "", id="two spaces"),
        pytest.param(b"", 400, "", id="nothing"),
    ],
)
def test_refusal(start: bytes, status: int, cause: str) -> None:
    refusal = refusal_of(start)
    assert (refusal.status, refusal.cause, refusal.close) == (status, cause, True)
