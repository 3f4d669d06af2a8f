import pytest

from proxy.admin.access import host_is_ours, origin_is_ours, token_is_right
from proxy.policy.settings import Listen

LOOPBACK = Listen("127.0.0.1", 9901)
NAMED = Listen("admin.internal", 9901)
EVERYWHERE = Listen("::", 9901)
UNIX = Listen(path="/run/holdfast.sock")


@pytest.mark.parametrize(
    ("host", "listen", "ours"),
    [
        pytest.param("127.0.0.1:9901", LOOPBACK, True, id="the address itself"),
        pytest.param("127.0.0.1", LOOPBACK, True, id="without a port"),
        pytest.param("10.1.2.3:9901", LOOPBACK, True, id="any address: none can be rebound"),
        pytest.param("[::1]:9901", LOOPBACK, True, id="an IPv6 address"),
        pytest.param("localhost:9901", LOOPBACK, True, id="localhost"),
        pytest.param("LocalHost", LOOPBACK, True, id="names have no case"),
        pytest.param("evil.example:9901", LOOPBACK, False, id="a foreign name"),
        pytest.param("localhost.evil.example", LOOPBACK, False, id="a name that begins like ours"),
        pytest.param("127.0.0.1.evil.example", LOOPBACK, False, id="a name like an address"),
        pytest.param("127.0.0.1@evil.example", LOOPBACK, False, id="a name behind an at sign"),
        pytest.param("evil", LOOPBACK, False, id="on loopback not even a name without a dot"),
        pytest.param("evil", Listen("localhost", 9901), False, id="nor on localhost by name"),
        pytest.param("", LOOPBACK, False, id="an empty name"),
        pytest.param("[::1", LOOPBACK, True, id="a bracket left open is an address all the same"),
        pytest.param("[evil.example]", LOOPBACK, False, id="brackets do not make an address"),
        pytest.param("admin.internal:9901", NAMED, True, id="the configured name"),
        pytest.param("other.internal:9901", NAMED, False, id="a neighbour's name"),
        pytest.param("holdfast:9901", EVERYWHERE, True, id="containers use names without a dot"),
        pytest.param("evil.example", EVERYWHERE, False, id="a foreign name, open to the network"),
        pytest.param("", EVERYWHERE, False, id="an empty name, open to the network"),
        pytest.param("whatever.example", UNIX, True, id="no browser reaches a unix socket"),
    ],
)
def test_host(*, host: str, listen: Listen, ours: bool) -> None:
    assert host_is_ours(host, listen) == ours


@pytest.mark.parametrize(
    ("origin", "host", "ours"),
    [
        pytest.param("http://localhost:9901", "localhost:9901", True, id="the same"),
        pytest.param("http://LOCALHOST:9901", "localhost:9901", True, id="without case"),
        pytest.param("http://admin", "admin:80", True, id="the scheme's own port"),
        pytest.param("http://localhost:3000", "localhost:9901", False, id="another port"),
        pytest.param("https://localhost:9901", "localhost:9901", False, id="another scheme"),
        pytest.param("http://evil.example", "localhost:9901", False, id="another site"),
        pytest.param("null", "localhost:9901", False, id="a sandboxed page"),
        pytest.param("", "", False, id="an empty one"),
    ],
)
def test_origin(*, origin: str, host: str, ours: bool) -> None:
    assert origin_is_ours(origin, host) == ours


@pytest.mark.parametrize(
    ("authorization", "right"),
    [
        pytest.param("Bearer s3cret", True, id="the token"),
        pytest.param("bearer s3cret", True, id="the scheme has no case"),
        pytest.param("Bearer  s3cret ", True, id="spaces around it do not count"),
        pytest.param("Bearer S3cret", False, id="the token has"),
        pytest.param("Bearer s3cre", False, id="a beginning is not enough"),
        pytest.param("Bearer s3cret2", False, id="nor is more"),
        pytest.param("Bearer", False, id="no token"),
        pytest.param("Bearer ", False, id="an empty token"),
        pytest.param("s3cret", False, id="no scheme"),
        pytest.param("Basic s3cret", False, id="another scheme"),
        pytest.param("Bearer s3crét", False, id="other letters do not raise"),
        pytest.param("Bearer \udcff", False, id="nor do bytes that are no UTF-8"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_token(*, authorization: str, right: bool) -> None:
    assert token_is_right(authorization, "s3cret") == right


def test_a_token_may_have_any_letters() -> None:
    assert token_is_right("Bearer gehe1m-ß", "gehe1m-ß")
