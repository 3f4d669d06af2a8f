"""Prefer (RFC 7240): what is honoured, what is passed on, and what is said about it."""

import pytest
from hypothesis import given, strategies as st

from proxy.http.prefer import AsyncPreference, read_prefer, without_honoured
from tests.support.depth import FUZZ

ASKED = AsyncPreference()


@pytest.mark.parametrize(
    ("lines", "expected", "passed_on"),
    [
        pytest.param([], None, [], id="absent"),
        pytest.param([b""], None, [b""], id="empty"),
        pytest.param([b"respond-async"], ASKED, [b""], id="asked"),
        pytest.param([b"Respond-Async"], ASKED, [b""], id="names are not case-sensitive"),
        pytest.param([b'respond-async=""'], ASKED, [b""], id="an empty value is none"),
        pytest.param([b"respond-async; a=1; b"], ASKED, [b""], id="with parameters"),
        pytest.param([b"respond-async;"], ASKED, [b""], id="with an empty parameter"),
        pytest.param([b"respond-async, wait=2"], AsyncPreference(2), [b""], id="with a wait"),
        pytest.param([b"wait=2, respond-async"], AsyncPreference(2), [b""], id="in any order"),
        pytest.param([b"wait = 2", b"respond-async"], AsyncPreference(2), [b"", b""], id="lines"),
        pytest.param([b'respond-async, wait="7"'], AsyncPreference(7), [b""], id="quoted"),
        pytest.param([b"respond-async, wait=0"], AsyncPreference(0), [b""], id="no time"),
        pytest.param([b"respond-async, wait=0005"], AsyncPreference(5), [b""], id="zeros"),
        pytest.param(
            [b"respond-async, wait=999999"], AsyncPreference(999_999), [b""], id="a long wait"
        ),
        pytest.param(
            [b"respond-async, wait=" + b"9" * 5000],
            AsyncPreference(999_999_999),
            [b""],
            id="a wait beyond reason",
        ),
        pytest.param([b"wait=5"], None, [b"wait=5"], id="a wait alone is no request for 202"),
        pytest.param(
            [b"respond-async, respond-async"], ASKED, [b""], id="twice: both are taken off"
        ),
        pytest.param(
            [b"wait=3, wait=9, respond-async"], AsyncPreference(3), [b""], id="the first wait"
        ),
        pytest.param(
            [b"respond-async, wait=-1"], ASKED, [b"wait=-1"], id="a malformed wait is ignored"
        ),
        pytest.param([b"respond-async, wait=1.5"], ASKED, [b"wait=1.5"], id="no whole number"),
        pytest.param([b"respond-async, wait"], ASKED, [b"wait"], id="a wait for nothing"),
        pytest.param(
            [b"wait=x, wait=4, respond-async"], AsyncPreference(4), [b"wait=x"], id="first usable"
        ),
        pytest.param([b"respond-async=1"], None, [b"respond-async=1"], id="a value it cannot have"),
        pytest.param([b"respond-async x"], None, [b"respond-async x"], id="no preference"),
        pytest.param([b"x-respond-async"], None, [b"x-respond-async"], id="another name"),
        pytest.param(
            [b"return=minimal, respond-async, handling=lenient"],
            ASKED,
            [b"return=minimal, handling=lenient"],
            id="others pass",
        ),
        pytest.param(
            [b'a = "x, respond-async" ;  b=1 ,respond-async'],
            ASKED,
            [b'a = "x, respond-async" ;  b=1'],
            id="byte for byte, and a comma in quotes is none",
        ),
        pytest.param(
            [b'a="x\\", respond-async"'],
            None,
            [b'a="x\\", respond-async"'],
            id="an escaped quote does not end it",
        ),
        pytest.param(
            [b'a="x, respond-async'], None, [b'a="x, respond-async'], id="a quote without end"
        ),
        pytest.param(
            [b'a="x\\'], None, [b'a="x\\'], id="a quote without end, and an escape of nothing"
        ),
        pytest.param(
            [b"a,  b", b"respond-async"], ASKED, [b"a,  b", b""], id="other lines are not touched"
        ),
        pytest.param([b", respond-async ,, "], ASKED, [b""], id="empty items"),
        pytest.param([b"\xe9, respond-async"], ASKED, [b"\xe9"], id="no ASCII"),
    ],
)
def test_what_is_honoured(
    lines: list[bytes], expected: AsyncPreference | None, passed_on: list[bytes]
) -> None:
    found = read_prefer(lines)
    assert found == expected
    rest = lines if found is None else [without_honoured(line, found) for line in lines]
    assert rest == passed_on


@pytest.mark.parametrize(
    ("preference", "waited", "text"),
    [
        (ASKED, None, b"respond-async"),
        (ASKED, 5, b"respond-async"),
        (AsyncPreference(5), 5, b"respond-async, wait=5"),
        (AsyncPreference(999_999), 30, b"respond-async, wait=30"),
        (AsyncPreference(5), None, b"respond-async"),
    ],
)
def test_what_is_said(preference: AsyncPreference, waited: int | None, text: bytes) -> None:
    assert preference.applied(waited) == text


@FUZZ
@given(st.lists(st.text('ar=",\\; \t5wait-respond-async', max_size=40).map(str.encode), max_size=3))
def test_what_is_passed_on_asks_for_nothing(lines: list[bytes]) -> None:
    found = read_prefer(lines)
    if found is not None:
        rest = [without_honoured(line, found) for line in lines]
        assert read_prefer(rest) is None
        assert all(len(after) <= len(line) for after, line in zip(rest, lines, strict=True))
