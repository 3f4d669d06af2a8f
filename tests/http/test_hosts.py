import pytest

from proxy.http.hosts import host_name


@pytest.mark.parametrize(
    ("host", "name"),
    [
        pytest.param("a.example", "a.example", id="a name"),
        pytest.param("A.Example", "a.example", id="in lower case"),
        pytest.param("a.example:8080", "a.example", id="without its port"),
        pytest.param("a.example:", "a.example", id="without an empty port"),
        pytest.param("a.example.", "a.example", id="without the final dot"),
        pytest.param("a.example.:443", "a.example", id="without final dot and port"),
        pytest.param("my_service", "my_service", id="an underscore"),
        pytest.param("127.0.0.1:80", "127.0.0.1", id="an IPv4 address"),
        pytest.param("[::1]:80", "[::1]", id="an IPv6 address keeps its brackets"),
        pytest.param("[2001:DB8::1]", "[2001:db8::1]", id="an IPv6 address in lower case"),
        pytest.param("caf%C3%A9.example", "caf%c3%a9.example", id="an escape"),
        pytest.param("", "", id="empty: the client has no name for us"),
        pytest.param("a" * 255 + ":65535", "a" * 255, id="as long as a name gets"),
    ],
)
def test_valid(host: str, name: str) -> None:
    assert host_name(host) == host_name(host.encode()) == name


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("a.example, b.example", id="two values joined"),
        pytest.param("a.example,b.example", id="two values joined without a space"),
        pytest.param("a b", id="a space"),
        pytest.param("a.example\r\nX: 1", id="a line break"),
        pytest.param("a.example\n", id="a line break at the end"),
        pytest.param("a\0", id="a NUL"),
        pytest.param("user@a.example", id="a user"),
        pytest.param("a.example/x", id="a path"),
        pytest.param("http://a.example", id="a URL"),
        pytest.param("a\\b", id="a backslash"),
        pytest.param('"a"', id="quotes"),
        pytest.param("a%zz", id="a broken escape"),
        pytest.param(":80", id="only a port"),
        pytest.param("a:http", id="a port by name"),
        pytest.param("a:65536", id="a port beyond the last"),
        pytest.param("a:80:80", id="two ports"),
        pytest.param("::1", id="an IPv6 address without brackets"),
        pytest.param("[::1", id="half of the brackets"),
        pytest.param("[::1]x", id="something behind the brackets"),
        pytest.param("[1:2]", id="no IPv6 address in the brackets"),
        pytest.param("[fe80::1%25eth0]", id="a zone"),
        pytest.param("caf\u00e9", id="a letter beyond ASCII"),
        pytest.param("\u212a.example", id="a letter that only becomes ASCII in lower case"),
        pytest.param("a" * 262, id="longer than a name gets"),
    ],
)
def test_not_valid(host: str) -> None:
    assert host_name(host) is None
    assert host_name(host.encode()) is None
