"""Where the proxy listens, and whom it believes. » marks the position to be reported."""

from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path

import pytest
import trustme

from proxy.config import Loaded
from proxy.policy.settings import Listen, ListenTls

REST = """
upstreams: {a: "http://127.0.0.1:9"}
routes: [{match: /**, upstream: a}]
"""


@pytest.mark.parametrize(
    ("written", "listen"),
    [
        ("127.0.0.1:8080", [Listen("127.0.0.1", 8080)]),
        ("0.0.0.0:0", [Listen("0.0.0.0", 0)]),  # noqa: S104 - is only read
        ("'[::1]:80'", [Listen("::1", 80)]),
        ("localhost:80", [Listen("localhost", 80)]),
        ("unix:/run/a.sock", [Listen(path="/run/a.sock")]),
        ("[127.0.0.1:1, unix:b]", [Listen("127.0.0.1", 1), Listen(path="b")]),
        ("{address: '127.0.0.1:1'}", [Listen("127.0.0.1", 1)]),
        ("[127.0.0.1:0, 127.0.0.1:0]", [Listen("127.0.0.1", 0), Listen("127.0.0.1", 0)]),
    ],
)
def test_an_address(loaded: Callable[..., Loaded], written: str, listen: list[Listen]) -> None:
    assert loaded(f"listen: {written}{REST}").settings.listen == tuple(listen)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (
            "listen: »:8080",
            (
                'listen: ":8080" has no address, write 127.0.0.1:8080, or 0.0.0.0:8080 to be '
                "reachable from outside"
            ),
        ),
        ("listen: »localhost", 'listen: "localhost" has no port, write localhost:8080'),
        ("admin: »localhost", 'admin: "localhost" has no port, write localhost:9901'),
        ("listen: »::1", 'listen: "::1" has no port, write [::1]:8080'),
        ("listen: »::1:http", "listen: an IPv6 address needs brackets, write [::1]:http"),
        (
            "listen: »'*:80'",
            "listen: * is no address, write 0.0.0.0:80 to be reachable from outside",
        ),
        (
            "listen: »http://127.0.0.1:80",
            'listen: "http://127.0.0.1:80" is a URL, write 127.0.0.1:8080 (say)',
        ),
        ("listen: »a b:80", 'listen: "a b" is no address, write 127.0.0.1:80 (say)'),
        ("listen: »127.1:80", 'listen: "127.1" is no address, write 127.0.0.1:80 (say)'),
        ("listen: »a:70000", 'listen: "70000" is no port, write a number from 0 to 65535'),
        (
            "listen: »'unix:'",
            "listen: a unix socket needs a path, write unix:/run/holdfast.sock (say)",
        ),
        (
            f"listen: »unix:/{'x' * 110}",
            "listen: a unix socket's path has at most 104 bytes, write a shorter one",
        ),
        ("listen: »[]", "listen: the list is empty, write an item or remove it"),
        (
            "listen: [127.0.0.1:1, »127.0.0.1:1]",
            "listen[1]: already the address of listen[0], write another",
        ),
        (
            "listen: 127.0.0.1:1\nadmin: »127.0.0.1:1",
            "admin: already the address of listen, write another",
        ),
        (
            "listen: {»adress: 'a:1', address: 'a:1'}",
            "listen.adress: unknown key, did you mean address?",
        ),
        (
            "listen: [{address: 'a:1', tls: {»cert: /dev/null}}]",
            "listen[0].tls: key is missing, write key: tls/ca.pem (say)",
        ),
        (
            "admin: »true",
            "admin: true is no address, write 127.0.0.1:9901 or false",
        ),
        (
            "admin: »'[::]:9901'",
            (
                "admin: :: is reachable from outside and there is no admin_token, write "
                "admin_token: ${HOLDFAST_ADMIN_TOKEN} or admin: 127.0.0.1:9901"
            ),
        ),
        (
            "admin_token: »''",
            "admin_token: the token is empty, write ${HOLDFAST_ADMIN_TOKEN}",
        ),
        (
            "admin: 0.0.0.0:1\nadmin_token: »'a b'",
            "admin_token: the token has spaces or other unusual characters, write one without",
        ),
        (
            "trusted_proxies: [»10.0.0.1/8]",
            'trusted_proxies[0]: "10.0.0.1/8" is an address within a network, write 10.0.0.0/8',
        ),
        (
            "trusted_proxies: [»proxy.example]",
            (
                'trusted_proxies[0]: "proxy.example" is no network, write 10.0.0.0/8 (say), an '
                "address, or unix"
            ),
        ),
        (
            "ready: »false",
            "ready: warning: this instance never becomes ready, write true to have it used",
        ),
        (
            "trusted_proxies: [»'::/0']",
            (
                "trusted_proxies[0]: warning: every client can claim to be another one, write the "
                "networks of your proxies"
            ),
        ),
    ],
)
def test_no_address(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked + REST, expected)


@pytest.mark.parametrize(
    "admin",
    ["127.0.0.1:1", "127.9.9.9:1", "'[::1]:1'", "localhost:1", "unix:/run/admin", "false"],
)
def test_an_admin_listener_that_needs_no_token(lines: Callable[..., list[str]], admin: str) -> None:
    assert lines(f"admin: {admin}{REST}") == []


def test_an_admin_listener_with_a_token(loaded: Callable[..., Loaded]) -> None:
    found = loaded("admin: 0.0.0.0:1\nadmin_token: ${T}" + REST, {"T": "secret"})
    assert found.settings.admin_token == "secret"
    assert found.warnings == ()
    assert "secret" not in repr(found)


def test_whom_to_believe(loaded: Callable[..., Loaded]) -> None:
    settings = loaded("trusted_proxies: [10.0.0.0/8, '2001:db8::1', unix]" + REST).settings
    assert settings.trusted_proxies == (ip_network("10.0.0.0/8"), ip_network("2001:db8::1/128"))
    assert settings.trust_unix


def test_tls(loaded: Callable[..., Loaded], folder: Path) -> None:
    issued = trustme.CA().issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(folder / "a.pem")
    issued.private_key_pem.write_to_path(folder / "a.key")
    found = loaded("listen: {address: '127.0.0.1:1', tls: {cert: a.pem, key: a.key}}" + REST)
    tls = ListenTls(cert=str(folder / "a.pem"), key=str(folder / "a.key"))
    assert found.settings.listen == (Listen("127.0.0.1", 1, tls=tls),)


def test_tls_without_its_files(only_line: Callable[..., None], folder: Path) -> None:
    (folder / "a.key").touch()
    only_line(
        "listen: {address: '127.0.0.1:1', tls: {cert: »a.pem, key: a.key}}" + REST,
        "listen.tls.cert: cannot read a.pem (no such file), mount it or correct the path",
    )


def test_a_name_of_its_own(loaded: Callable[..., Loaded]) -> None:
    assert loaded(REST).settings.name == "holdfast"
    assert loaded(f"name: egress-2.eu{REST}").settings.name == "egress-2.eu"
    assert loaded(f"name: ${{POD}}{REST}", {"POD": "pod_7"}).settings.name == "pod_7"


IN_VIA = "cannot stand in Via, write one word of letters, digits, - . and _ (name: egress, say)"


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("name: »my proxy", f'name: "my proxy" {IN_VIA}'),
        ("name: »gateway:8080", f'name: "gateway:8080" {IN_VIA}'),
        ("name: »a,b", f'name: "a,b" {IN_VIA}'),
        ("name: »bücher", f'name: "bücher" {IN_VIA}'),
        (f"name: »{'x' * 65}", "name: a name has at most 64 characters, write a shorter one"),
    ],
)
def test_what_is_no_name(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(f"{marked}{REST}", expected)
