"""Whose bucket a request belongs to."""

from time import process_time
from timeit import repeat
from urllib.parse import parse_qsl, quote_plus

import pytest
from hypothesis import given, strategies as st

from proxy.policy.settings import CallerSource, ThrottleKey
from proxy.policy.throttle.caller_key import count_of_parameter, digest, value_of
from tests.support.depth import FUZZ

Headers = tuple[tuple[bytes, bytes], ...]

BY_ADDRESS = ThrottleKey(CallerSource.CLIENT_IP)
BY_HEADER = ThrottleKey(CallerSource.HEADER, "x-tenant")
BY_QUERY = ThrottleKey(CallerSource.QUERY, "tenant")


@pytest.mark.parametrize(
    ("client_ip", "value"),
    [
        pytest.param("192.0.2.1", b"192.0.2.1", id="IPv4"),
        pytest.param("2001:db8::1", b"2001:db8::/64", id="IPv6, by its network"),
        pytest.param("2001:db8::ffff:1:2", b"2001:db8::/64", id="another address of it"),
        pytest.param("2001:db8:0:1::1", b"2001:db8:0:1::/64", id="another network"),
        pytest.param("::ffff:192.0.2.1", b"192.0.2.1", id="IPv4, as IPv6 spells it"),
        pytest.param("fe80::1", b"fe80::1", id="link-local, the whole of it"),
        pytest.param("", None, id="a unix socket has none"),
    ],
)
def test_by_address(client_ip: str, value: bytes | None) -> None:
    assert value_of(BY_ADDRESS, (), "/", client_ip) == value


@pytest.mark.parametrize(
    ("headers", "value"),
    [
        pytest.param(((b"X-Tenant", b"acme"),), b"acme", id="one"),
        pytest.param(((b"x-TENANT", b"acme"),), b"acme", id="in any case"),
        pytest.param(((b"X-Tenant", b"Acme"),), b"Acme", id="but its value as it is"),
        pytest.param(((b"X-Tenant", b"\xff\x00"),), b"\xff\x00", id="any bytes"),
        pytest.param(((b"X-Tenant", b"a, b"),), b"a, b", id="a list"),
        pytest.param(((b"X-Tenant", b"Bearer  a"),), b"Bearer  a", id="no credential, so as it is"),
        pytest.param(((b"X-Tenant", b""),), None, id="empty"),
        pytest.param(((b"X-Tenants", b"a"), (b"Tenant", b"b")), None, id="others"),
        pytest.param((), None, id="nothing"),
    ],
)
def test_by_header(headers: Headers, value: bytes | None) -> None:
    assert value_of(BY_HEADER, headers, "/?x-tenant=c", "192.0.2.1") == value


@pytest.mark.parametrize("name", ["authorization", "proxy-authorization"])
@pytest.mark.parametrize(
    ("sent", "value"),
    [
        (b"Bearer abC", b"bearer abC"),
        (b"BEARER abC", b"bearer abC"),
        (b"bearer \t  abC", b"bearer abC"),
        (b"Bearer a  b", b"bearer a  b"),
        (b'Digest username="A", realm="B"', b'digest username="A", realm="B"'),
        (b"abC", b"abC"),
        (b"", None),
    ],
)
def test_by_credentials(name: str, sent: bytes, value: bytes | None) -> None:
    headers = ((name.title().encode(), sent),)
    assert value_of(ThrottleKey(CallerSource.HEADER, name), headers, "/", "192.0.2.1") == value


@pytest.mark.parametrize(
    ("target", "value"),
    [
        pytest.param("/a?tenant=acme", b"acme", id="one"),
        pytest.param("/a?x=1&tenant=acme&y", b"acme", id="among others"),
        pytest.param("/a?tenant=a&tenant=b", b"a", id="the first of two"),
        pytest.param("/a?tenant=&tenant=b", None, id="the first of two, and it is empty"),
        pytest.param("/a?tenant=a=b", b"a=b", id="another = is data"),
        pytest.param("/a?tenant=a?b", b"a?b", id="another ? is data"),
        pytest.param("/a?tenant=a;tenant=b", b"a;tenant=b", id="a semicolon is data"),
        pytest.param("/a?tenant=a%26b+c%2Bd", b"a&b c+d", id="escapes are undone, + is a blank"),
        pytest.param("/a?tenant=%zz%", b"%zz%", id="broken escapes stay"),
        pytest.param("/a?tenant=%FF%00", b"\xff\x00", id="escaped bytes that are no text"),
        pytest.param("/a?tenant=\udcff", b"\xff", id="bytes that are no text"),
        pytest.param("/a?tenant=caf\u00e9", b"caf\xc3\xa9", id="raw letters"),
        pytest.param("/a?tenant=caf%c3%a9", b"caf\xc3\xa9", id="and the same escaped"),
        pytest.param("/a?t%65n%61nt=acme", b"acme", id="an escaped name"),
        pytest.param("/a?%74%65%6E%61%6e%74=acme", b"acme", id="an entirely escaped name"),
        pytest.param("/a?tenant", None, id="without a value"),
        pytest.param("/a?tenant=", None, id="with an empty one"),
        pytest.param("/a?tenants=a&xtenant=b&Tenant=c", None, id="others"),
        pytest.param("/tenant=a&tenant=b", None, id="in the path"),
        pytest.param("/a?b=?tenant=c", None, id="in another one's value"),
        pytest.param("/a?", None, id="an empty query"),
        pytest.param("*", None, id="the server as a whole"),
    ],
)
def test_by_query(target: str, value: bytes | None) -> None:
    assert value_of(BY_QUERY, ((b"Tenant", b"c"),), target, "192.0.2.1") == value


@pytest.mark.parametrize(
    ("name", "query", "value"),
    [
        pytest.param("a.b", "axb=1&a.b=2", b"2", id="a dot"),
        pytest.param("a[]", "a=1&a[]=2", b"2", id="brackets"),
        pytest.param("a[]", "a%5B%5d=2", b"2", id="escaped brackets"),
        pytest.param("a b", "a+b=2", b"2", id="a blank as a plus"),
        pytest.param("a b", "a%20b=2", b"2", id="an escaped blank"),
        pytest.param("a+b", "a+b=1&a%2bb=2", b"2", id="a plus"),
        pytest.param("a=b", "a=b=1&a%3Db=2", b"2", id="an equals sign"),
        pytest.param("a&b", "a&b=1&a%26b=2", b"2", id="an ampersand"),
        pytest.param("%41", "%41=1&%2541=2", b"2", id="what looks like an escape"),
        pytest.param("\u00e9", "%c3%a9=2", b"2", id="an escaped letter beyond ASCII"),
        pytest.param("\u00e9", "\u00e9=2", b"2", id="a raw one"),
    ],
)
def test_names_of_parameters(name: str, query: str, value: bytes) -> None:
    assert value_of(ThrottleKey(CallerSource.QUERY, name), (), f"/?{query}", "") == value


@FUZZ
@given(
    st.lists(
        st.tuples(st.sampled_from(["tenant", "tenants", "a b", ""]), st.text(max_size=5)),
        max_size=6,
    )
)
def test_a_form_is_read_as_others_read_it(fields: list[tuple[str, str]]) -> None:
    query = "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in fields)
    read = dict(reversed(parse_qsl(query, keep_blank_values=True)))
    expected = read.get("tenant", "").encode() or None
    assert value_of(BY_QUERY, (), f"/?{query}", "") == expected
    others_count = [name for name, _ in parse_qsl(query, keep_blank_values=True)].count("tenant")
    assert count_of_parameter("tenant", f"/?{query}") == others_count


@FUZZ
@given(st.lists(st.sampled_from([b"tenant", b"=", b"&", b"%", b"%7", b"+", b"\xff", b"?", b"e"])))
def test_nothing_in_a_target_is_too_much(pieces: list[bytes]) -> None:
    target = "/?" + b"".join(pieces).decode("utf-8", "surrogateescape")
    value = value_of(BY_QUERY, (), target, "")
    assert value is None or value


@pytest.mark.parametrize("piece", ["&", "&tenan", "tenant", "&tenant%", "%", "&t%65nan="])
def test_a_long_target_takes_no_more_than_its_length(piece: str) -> None:
    def seconds(length: int) -> float:
        target = "/?" + piece * (length // len(piece))

        def read() -> None:
            value_of(BY_QUERY, (), target, "")
            count_of_parameter("tenant", target)

        return min(repeat(read, number=1, repeat=5, timer=process_time))

    assert seconds(256_000) < 40 * max(seconds(32_000), 1e-5), "8 times, if it is not quadratic"


def test_a_digest_is_short_and_tells_values_apart() -> None:
    values = [b"", b"a", b"b", b"a" * 60_000, b"192.0.2.1"]
    assert len({digest(value) for value in values}) == len(values)
    assert {len(digest(value)) for value in values} == {16}
    assert digest(b"a") == digest(b"a")


def test_a_guess_of_a_value_is_not_confirmed_without_the_key() -> None:
    assert len({digest(b"a"), digest(b"a", b"one key"), digest(b"a", b"another")}) == 3
    assert digest(b"a", b"one key") == digest(b"a", b"one key")
