"""Keys, whose they are, and what makes two requests the same."""

from hashlib import blake2b, sha256
from typing import Any

import pytest
from hypothesis import given, strategies as st

from proxy.policy.idempotency.key import (
    LONGEST,
    KeyReader,
    fingerprint,
    read_key,
    read_record_name,
    record_name,
    scope_digest,
)
from tests.vectors.load import cases


@pytest.mark.parametrize("case", cases("idempotency_key_syntax"))
def test_the_vectors(case: dict[str, Any]) -> None:
    expected = None if case["lenient"] == "reject" else case["lenient"]["key"].encode()
    assert read_key([line.encode("latin-1") for line in case["lines"]]) == expected


def test_no_field_at_all_is_no_key() -> None:
    assert read_key([]) is None


@pytest.mark.parametrize(
    ("value", "key"),
    [
        pytest.param(b'"abc"; a; b=1; c="x;y"; d=tok', b"abc", id="parameters say nothing"),
        pytest.param(b'"abc" def', None, id="something behind it"),
        pytest.param(b'"abc";', None, id="a parameter without a name"),
        pytest.param(b'""', None, id="nothing in quotes"),
        pytest.param(rb'"a\"b"', b'a"b', id="an escaped quote"),
        pytest.param(b'"' + b"a" * LONGEST + b'"', b"a" * LONGEST, id="as long as can be"),
        pytest.param(b'"' + b"a" * (LONGEST + 1) + b'"', None, id="too long in quotes"),
        pytest.param(b"a" * 10_000, None, id="far too long"),
        pytest.param(b" \tabc\t ", b"abc", id="blanks around it"),
        pytest.param(b"XabcX", b"XabcX", id="nothing but blanks is cut off"),
        pytest.param(b"abc\x0c", None, id="a form feed is no blank"),
        pytest.param(b"a\nb", None, id="a line in a line"),
        pytest.param(b"\x00", None, id="a control character"),
    ],
)
def test_more_of_the_syntax(value: bytes, key: bytes | None) -> None:
    assert read_key([value]) == key


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40))
def test_whatever_is_quoted_is_read_back(key: str) -> None:
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    assert read_key([f'"{quoted}"'.encode()]) == key.encode()


@given(st.binary(max_size=40))
def test_any_bytes_are_a_key_of_visible_text_or_none(value: bytes) -> None:
    key = read_key([value])
    assert key is None or (0 < len(key) <= LONGEST and all(0x20 <= byte < 0x7F for byte in key))


READER = KeyReader(b"idempotency-key", [b"authorization", b"x-api-key"])


def test_fields_are_found_in_any_letters() -> None:
    headers = ((b"IDEMPOTENCY-key", b"a"), (b"Other", b"b"), (b"Idempotency-Key", b"c"))
    assert READER.read(headers).keys == [b"a", b"c"]
    assert READER.read(((b"X-Idempotency-Key", b"a"),)).keys == []


# Whose key it is.


def caller(*headers: tuple[bytes, bytes], reader: KeyReader = READER) -> list[bytes]:
    return reader.read(headers).caller


def test_a_caller_is_told_by_its_credentials() -> None:
    one = caller((b"Authorization", b"Bearer a"))
    assert one == caller((b"X-Other", b"x"), (b"authorization", b"Bearer a"))
    assert one != caller((b"Authorization", b"Bearer A"))
    assert one != caller((b"X-Api-Key", b"Bearer a"))
    assert one != caller((b"Authorization", b"Bearer a"), (b"X-Api-Key", b"k"))


def test_the_order_of_fields_does_not_matter() -> None:
    fields = ((b"X-Api-Key", b"k"), (b"Authorization", b"a"))
    assert caller(*fields) == caller(*fields[::-1])


@pytest.mark.parametrize("name", [b"Authorization", b"Proxy-Authorization"])
@pytest.mark.parametrize("spelling", [b"bearer x", b"BEARER x", b"Bearer  x", b"bEARer \t x"])
def test_credentials_are_the_same_however_their_scheme_is_spelled(
    name: bytes, spelling: bytes
) -> None:
    reader = KeyReader(b"idempotency-key", [b"authorization", b"proxy-authorization"])
    assert caller((name, spelling), reader=reader) == caller((name, b"Bearer x"), reader=reader)


@pytest.mark.parametrize(
    ("fields", "repeated"),
    [
        pytest.param([(b"X-Api-Key", b"a"), (b"x-api-key", b"b")], "x-api-key", id="two values"),
        pytest.param([(b"X-Api-Key", b"a"), (b"X-Api-Key", b"a")], "x-api-key", id="one twice"),
        pytest.param([(b"X-Api-Key", b""), (b"X-Api-Key", b"a")], "x-api-key", id="one is empty"),
        pytest.param([(b"X-Api-Key", b"a"), (b"Authorization", b"a")], "", id="two fields"),
        pytest.param([(b"X-Api-Key", b"a"), (b"X-Other", b""), (b"X-Other", b"")], "", id="others"),
    ],
)
def test_a_field_that_tells_callers_apart_comes_once(
    fields: list[tuple[bytes, bytes]], repeated: str
) -> None:
    assert READER.read(tuple(fields)).repeated == repeated


def test_an_empty_field_tells_nothing() -> None:
    assert caller((b"Authorization", b"")) == []
    assert caller((b"X-Api-Key", b""), (b"Authorization", b"")) == []
    one = caller((b"X-Api-Key", b"k"))
    assert one == caller((b"X-Api-Key", b"k"), (b"Authorization", b""))


def test_nobody_in_particular() -> None:
    assert caller((b"Cookie", b"a")) == []


def test_a_key_tells_no_callers_apart_unless_the_scope_names_it() -> None:
    found = READER.read(((b"Idempotency-Key", b"a"), (b"X-Api-Key", b"k")))
    assert found == ([b"a"], [b"x-api-key", b"k"], [], "")
    assert READER.read(((b"Idempotency-Key", b"a"),)).caller == []


def test_a_route_may_tell_callers_apart_by_something_else() -> None:
    reader = KeyReader(b"idempotency-key", [b"x-tenant"])
    one = caller((b"X-Tenant", b"acme"), (b"Authorization", b"a"), reader=reader)
    assert one == caller((b"X-Tenant", b"acme"), (b"Authorization", b"b"), reader=reader)


def test_a_field_may_be_the_key_and_the_caller_at_once() -> None:
    found = KeyReader(b"x-order", [b"x-order"]).read(((b"X-Order", b"7"),))
    assert found == ([b"7"], [b"x-order", b"7"], [], "")


def test_a_record_has_a_name_of_its_own_per_route_caller_and_key() -> None:
    names = {
        record_name(route, caller, key)
        for route in ("a", "b", "a1:")
        for caller in ((), (b"x",), (b"x", b""), (b"", b"x"), (b"1:x",))
        for key in (b"k", b"K", b"x", b"1:x")
    }
    assert len(names) == 3 * 5 * 4
    assert all(len(name) == 32 and int(name, 16) >= 0 for name in names)


def test_a_name_tells_nothing_and_stays_the_same() -> None:
    # Stored by one version, looked up by the next: it must not change.
    name = record_name("charges", (b"authorization", b"Bearer a"), b"8e03978e")
    assert name == "0ecdee3e7d9ed66ea44ebc5f160748ec"
    assert record_name("charges", (), b"8e03978e") == "5421f68d894c509f1899478cfbc15483"


def test_a_scope_has_a_digest_of_its_own_which_stays_the_same() -> None:
    scopes = [(b"x", b"a"), (b"x", b"b"), (b"y", b"a"), (b"x", b"a", b"y", b"b"), (b"xa", b""), ()]
    digests = {scope_digest(scope) for scope in scopes}
    assert len(digests) == len(scopes)
    assert scope_digest((b"authorization", b"Bearer a")) == "abce0220874514ac"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param("0ecdee3e" * 4, "0ecdee3e" * 4, id="as it is shown"),
        pytest.param("0ECDee3e" * 4, "0ecdee3e" * 4, id="in any case"),
        pytest.param("0ecdee3e" * 4 + "0", None, id="too long"),
        pytest.param("0ecdee3e" * 4 + "\n", None, id="a line end behind it"),
        pytest.param(" " + "0ecdee3e" * 4, None, id="a blank before it"),
        pytest.param("0ecdee3" * 4, None, id="too short"),
        pytest.param("0ecdee3g" * 4, None, id="a letter that is no digit"),
        pytest.param("\u0660" * 32, None, id="digits of another script"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_the_name_of_a_record_as_an_operator_types_it(text: str, name: str | None) -> None:
    assert read_record_name(text) == name


def joined(*parts: bytes) -> bytes:
    """All parts, each with its length before it."""
    return b"".join(b"%d:%b" % (len(part), part) for part in parts) + b"|"


@given(st.text(max_size=5), st.lists(st.binary(max_size=4), max_size=4), st.binary(max_size=9))
def test_however_many_parts_a_name_has_it_is_made_alike(
    route: str, caller: list[bytes], key: bytes
) -> None:
    whole = joined(route.encode(), key, *caller)
    expected = blake2b(whole, digest_size=16, person=b"holdfast key").hexdigest()
    assert record_name(route, caller, key) == expected


@given(st.text(max_size=5), st.lists(st.binary(max_size=4), max_size=5), st.binary(max_size=9))
def test_however_many_parts_a_fingerprint_has_it_is_made_alike(
    target: str, content: list[bytes], body: bytes
) -> None:
    whole = joined(b"POST", target.encode(), *content) + body
    assert fingerprint("POST", target, content, body) == sha256(whole).digest()


# What makes two requests the same.

Fields = tuple[tuple[bytes, bytes], ...]

POST = ("POST", "/v1/charges?x=1", ((b"Content-Type", b"application/json"),), b'{"a":1}')


def fingerprint_of(method: str, target: str, headers: Fields, body: bytes) -> bytes:
    return fingerprint(method, target, READER.read(headers).content, body)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(("PATCH", *POST[1:]), id="method"),
        pytest.param(("POST", "/v1/charges?x=2", *POST[2:]), id="query"),
        pytest.param(("POST", "/v1/Charges?x=1", *POST[2:]), id="path"),
        pytest.param(("POST", "/v1/charges?x=%31", *POST[2:]), id="spelling"),
        pytest.param((*POST[:2], ((b"Content-Type", b"text/plain"),), POST[3]), id="type"),
        pytest.param((*POST[:2], (), POST[3]), id="no type"),
        pytest.param(
            (*POST[:2], (*POST[2], (b"Content-Encoding", b"gzip")), POST[3]), id="encoding"
        ),
        pytest.param((*POST[:3], b'{"a": 1}'), id="body"),
        pytest.param((*POST[:3], b""), id="no body"),
    ],
)
def test_another_request(other: tuple[str, str, Any, bytes]) -> None:
    assert fingerprint_of(*POST) != fingerprint_of(*other)


def test_the_same_request() -> None:
    headers = ((b"X-Trace", b"7"), (b"content-type", b"application/json"))
    assert fingerprint_of(*POST) == fingerprint_of(POST[0], POST[1], headers, POST[3])


@pytest.mark.parametrize(
    ("headers", "same"),
    [
        pytest.param(
            ((b"Content-Type", b"a"), (b"Content-Encoding", b"b")),
            True,
            id="two fields, either way",
        ),
        pytest.param(
            ((b"Content-Type", b"a"), (b"Content-Encoding", b"a")),
            True,
            id="of the same value, too",
        ),
        pytest.param(
            ((b"Content-Encoding", b"gzip"), (b"Content-Encoding", b"br")),
            False,
            id="one field twice: the order says what was done first",
        ),
    ],
)
def test_the_order_of_fields_that_describe_the_content(headers: Fields, *, same: bool) -> None:
    one = fingerprint_of("POST", "/", headers, b"")
    assert (fingerprint_of("POST", "/", headers[::-1], b"") == one) is same


def test_a_fingerprint_stays_the_same_over_versions() -> None:
    assert fingerprint_of(*POST).hex() == (
        "333fc089456d2e4a2df858ef97657929a08d2bf15d31cd6c5af52af39d14f37c"
    )


def test_a_target_of_any_bytes() -> None:
    target = b"/caf\xe9".decode("utf-8", "surrogateescape")
    assert fingerprint_of("POST", target, (), b"") != fingerprint_of("POST", "/café", (), b"")


@given(
    st.tuples(st.text(max_size=3), st.text(max_size=3), st.binary(max_size=4)),
    st.tuples(st.text(max_size=3), st.text(max_size=3), st.binary(max_size=4)),
)
def test_parts_cannot_be_moved_from_one_to_the_next(
    one: tuple[str, str, bytes], other: tuple[str, str, bytes]
) -> None:
    prints = [fingerprint_of(method, target, (), body) for method, target, body in (one, other)]
    assert (prints[0] == prints[1]) == (one == other)
