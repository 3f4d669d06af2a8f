"""A last trailer and a first field can be told apart by the bytes around them."""

from time import process_time

import pytest

from proxy.server.aiohttp_adapter.trailers import ends_with_trailer, is_first_field, worth_keeping

NEXT = b"GET /victim HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n\r\n"


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        pytest.param(b"1\r\nx\r\n0\r\n\r\n", False, id="none"),
        pytest.param(b"x\r\n000;a=b\r\n\r\n", False, id="none, with an extension"),
        pytest.param(b"0\r\n\r\n", False, id="none, and nothing else is known"),
        pytest.param(b"0\r\nX-A: 1\r\n\r\n", True, id="one"),
        pytest.param(b"0\r\nX-A: 1\r\n0: 0\r\n\r\n", True, id="one that looks like a chunk"),
        pytest.param(b"0\r\n\r\n\r\n", True, id="an empty line too many"),
    ],
)
def test_a_body_that_ends_with_a_trailer(received: bytes, *, expected: bool) -> None:
    assert ends_with_trailer(received) is expected


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        pytest.param(b"0\r\n\r\n" + NEXT, True, id="no trailer"),
        pytest.param(b"0\r\nX-T: 1\r\n\r\n" + NEXT, True, id="another trailer"),
        pytest.param(b"0\r\n\r\nGET / HTTP/1.0\r\nHost:  a \r\n\r\n", True, id="the only field"),
        pytest.param(b"0\r\nHost: a\r\n\r\n" + NEXT, False, id="a trailer that says the same"),
        pytest.param(b"Host: a\r\n\r\n" + NEXT, False, id="a trailer at the very beginning"),
        pytest.param(
            b"0\r\nX-T:x y HTTP/1.1\r\nHost: a\r\n\r\n" + NEXT,
            False,
            id="a trailer behind one that looks like a request line",
        ),
        pytest.param(
            b'0;a="b c HTTP/1.1"\r\nHost: a\r\n\r\n' + NEXT,
            False,
            id="a trailer behind extensions that look like a request line",
        ),
        pytest.param(b"0\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nX: y\r\n\r\n", False, id="no field"),
        pytest.param(b"", False, id="nothing is known"),
    ],
)
def test_a_first_field(received: bytes, *, expected: bool) -> None:
    assert is_first_field(b"Host", b"a", received) is expected


@pytest.mark.parametrize(
    ("value", "body"),
    [
        pytest.param(b"a", b"Host:a\r\n" * 120_000, id="a hundred thousand such lines"),
        pytest.param(b"", b"Host:" + b" " * 900_000, id="a line of blanks"),
    ],
)
def test_a_field_is_found_in_one_go_whatever_a_body_holds(value: bytes, body: bytes) -> None:
    received = b"1\r\n" + body + b"x\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost:" + value + b"\r\n\r\n"
    began = process_time()
    assert is_first_field(b"Host", value, received)
    assert process_time() - began < 1.0  # all others wait meanwhile; it took up to half an hour


def test_what_may_become_a_trailer_is_kept_however_it_is_cut() -> None:
    whole = b"5\r\n{}\r\n;\r\n0\r\nX-A: 1\r\nX-Bcd: some value\r\n\r\n"
    for first in range(len(whole)):
        for second in range(first, len(whole)):
            kept = worth_keeping(worth_keeping(whole[:first]) + whole[first:second])
            assert ends_with_trailer(kept + whole[second:])
            assert not is_first_field(b"X-Bcd", b"some value", kept + whole[second:] + NEXT)


def test_data_is_not_kept() -> None:
    assert worth_keeping(b"ffff\r\n" + b'{"some": "data"}' * 1000) == b""
    assert len(worth_keeping(b"\x00" * 9999 + b"\r\n0\r\nX-A: 1")) < 1000
    assert worth_keeping(b"fffff\r\n" + b"x" * 100_000) == b""


def test_a_trailer_too_long_to_be_kept_is_not_taken_for_a_field() -> None:
    kept = worth_keeping(b"0\r\nHost: a" + b" " * 100_000)
    rest = b"b\r\n\r\n"
    assert kept == b""
    assert ends_with_trailer(kept + rest)
    assert not is_first_field(b"Host", b"a" + b" " * 100_000 + b"b", kept + rest + NEXT)
