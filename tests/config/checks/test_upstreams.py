"""Upstreams: URLs and TLS. » marks the position to be reported."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from proxy.config import Loaded
from proxy.policy.settings import Origin, UpstreamTls

FILE = """\
upstreams:
  api: {}
routes: [{{match: /**, upstream: api}}]
"""


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://a.example", Origin("http", "a.example", 80)),
        ("HTTPS://A.Example", Origin("https", "a.example", 443)),
        ("https://a.example:8443/", Origin("https", "a.example", 8443)),
        ("http://a.example/base/path/", Origin("http", "a.example", 80, "/base/path")),
        ("'http://[::1]:9200/x'", Origin("http", "::1", 9200, "/x")),
        ("'http://[0:0::1]'", Origin("http", "::1", 80)),
        ("http://127.0.0.1:9200", Origin("http", "127.0.0.1", 9200)),
        ("http://service_name.local.:80", Origin("http", "service_name.local.", 80)),
    ],
)
def test_a_url(loaded: Callable[..., Loaded], url: str, origin: Origin) -> None:
    for written in (url, f"{{urls: [{url}]}}"):
        (upstream,) = loaded(FILE.format(written)).settings.upstreams
        assert upstream.origins == (origin,)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ftp://a.example", '"ftp" is no scheme of an upstream, write http:// or https://'),
        (
            "unix:/run/a.sock",
            "an upstream on a unix socket is not supported, write http://127.0.0.1:9200 (say)",
        ),
        ("http://", "the URL names no host, write http://127.0.0.1:9200 (say)"),
        ("http://:80", "the URL names no host, write http://127.0.0.1:9200 (say)"),
        ("http://a.example:0", '"0" is no port, write a number from 1 to 65535'),
        ("http://a.example:99999", '"99999" is no port, write a number from 1 to 65535'),
        ("http://a.example:", '"" is no port, write a number from 1 to 65535'),
        ("http://a.example:²", '"²" is no port, write a number from 1 to 65535'),
        ("http://::1", "an IPv6 address needs brackets, write [::1]"),
        ("http://[::1", '"[::1" is no host, write [::1]:8080 (say) for an IPv6 address'),
        ("http://[::1]x", '"[::1]x" is no host, write [::1]:8080 (say)'),
        ("http://a..example", '"a..example" is no host name, write api.example.com (say)'),
        (
            "http://münchen.example",
            '"münchen.example" is no host name, write xn--mnchen-3ya.example',
        ),
        ("http://2130706433", '"2130706433" is no host name, write api.example.com (say)'),
        ("http://0x7f.1", '"0x7f.1" is no host name, write api.example.com (say)'),
        ("http://a/../b", '"." and ".." cannot stand in a path, write it without them'),
        (
            "http://a/b?x=1",
            "a URL here ends with its path, remove the ? or # and what follows",
        ),
        (
            "http://a b",
            "a URL cannot hold spaces, backslashes or control characters, remove them",
        ),
        (
            r"http://a\b",
            "a URL cannot hold spaces, backslashes or control characters, remove them",
        ),
        *(
            (
                f"http{separator}user:hunter2@a.example",
                (
                    "a URL must not hold credentials, write headers: {request: {set: "
                    '{Authorization: "${…}"}}} in the route, and %40 for an @ in its path'
                ),
            )
            for separator in ("://", ":/", "")
        ),
        *(
            (
                f"http://{host}/latest",
                (
                    f"{shown} is link-local, where clouds serve a machine's credentials, write a "
                    f"host name that stands for it if it is really meant"
                ),
            )
            for host, shown in (
                ("169.254.169.254", "169.254.169.254"),
                ("[fe80::1]", "fe80::1"),
                ("[::ffff:169.254.169.254]", "169.254.169.254"),
                ("[fd00:ec2::254]", "fd00:ec2::254"),
            )
        ),
    ],
)
def test_no_url(only_line: Callable[..., None], url: str, expected: str) -> None:
    only_line(FILE.format(f"»'{url}'"), f"upstreams.api: {expected}")


def test_a_url_that_is_there_twice(only_line: Callable[..., None]) -> None:
    only_line(
        FILE.format("{urls: ['http://a.example', »'http://A.example:80/']}"),
        "upstreams.api.urls[1]: this URL is already in the list, remove it",
    )


def test_every_key(loaded: Callable[..., Loaded]) -> None:
    (upstream,) = loaded(
        FILE.format(
            "{urls: ['https://a.example/a', 'https://b.example/b'], balance: first, "
            "connect_timeout: 1s, idle_connections: 0, max_connections: 3, keepalive: 4s, "
            "host: preserve, tls: {server_name: C.example., verify: true}}"
        )
    ).settings.upstreams
    assert [origin.base_path for origin in upstream.origins] == ["/a", "/b"]
    assert (upstream.balance, upstream.preserve_host) == ("first", True)
    assert (upstream.connect_timeout, upstream.keepalive) == (1, 4)
    assert (upstream.idle_connections, upstream.max_connections) == (0, 3)
    assert upstream.tls == UpstreamTls(server_name="c.example")


@pytest.mark.parametrize(
    ("written", "tls"),
    [
        ("{ca: ca.pem}", {"ca": "ca.pem"}),
        ("{cert: one.pem, key: one.key}", {"cert": "one.pem", "key": "one.key"}),
        ("{cert: both.pem}", {"cert": "both.pem"}),
    ],
)
def test_certificates(
    loaded: Callable[..., Loaded], certificates: Path, written: str, tls: dict[str, str]
) -> None:
    found = loaded(FILE.format(f"{{urls: ['https://a.example'], tls: {written}}}"))
    paths = {key: str(certificates / name) for key, name in tls.items()}
    assert found.settings.upstreams[0].tls == UpstreamTls(**paths)  # type: ignore[arg-type]  # all of them are paths


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("ca: »none.pem", "ca: cannot read none.pem (no such file), mount it or correct the path"),
        ("ca: »text", "ca: the file holds no certificate, write one in PEM form"),
        ("key: »one.key", "key: a key needs a certificate, write cert: FILE beside it"),
        (
            "cert: »one.pem",
            "cert: the certificate and its key cannot be loaded, write both in PEM form",
        ),
        (
            "cert: »text, key: one.key",
            "cert: the certificate and its key cannot be loaded, write both in PEM form",
        ),
        (
            "cert: one.pem, key: »two.key",
            "key: this key does not belong to the certificate, write its own",
        ),
        (
            "cert: one.pem, key: »locked.key",
            "key: the key is encrypted, write a file with a plain key",
        ),
        (
            "verify: »false",
            (
                "verify: warning: anyone on the way can pose as this upstream, write ca: FILE to "
                "trust its certificate"
            ),
        ),
        (
            "server_name: »'a b'",
            'server_name: "a b" is no host name, write api.example.com (say)',
        ),
    ],
)
def test_tls_that_cannot_be_used(
    only_line: Callable[..., None], certificates: Path, marked: str, expected: str
) -> None:
    _encrypt(certificates / "one.key", certificates / "locked.key")
    only_line(
        FILE.format(f"{{urls: ['https://a.example'], tls: {{{marked}}}}}"),
        f"upstreams.api.tls.{expected}",
    )


def _encrypt(plain: Path, locked: Path) -> None:
    key = serialization.load_pem_private_key(plain.read_bytes(), None)
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
    )


def test_tls_for_nothing(only_line: Callable[..., None]) -> None:
    only_line(
        FILE.format("{urls: ['http://a.example'], »tls: {server_name: a.example}}"),
        "upstreams.api.tls: warning: no URL of this upstream is https, so this has no effect, "
        "write https:// or remove it",
    )
