from typing import Any

import pytest
from hypothesis import given, strategies as st

from proxy.http.durations import parse_duration, parse_go_duration
from tests.vectors.load import cases


@pytest.mark.parametrize("case", cases("go_duration"))
def test_go_durations_of_the_vectors(case: dict[str, Any]) -> None:
    expected = None if case["expect"] == "ignore" else case["expect"]
    assert parse_go_duration(case["value"]) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("1.5\N{MICRO SIGN}s", 1.5e-6, id="microseconds with the micro sign"),
        pytest.param("1.5\N{GREEK SMALL LETTER MU}s", 1.5e-6, id="microseconds with a Greek mu"),
        pytest.param("2562047h47m16.854775807s", 9223372036.854776, id="the longest that Go has"),
        pytest.param("0.1s", 0.1, id="a tenth is a tenth"),
        pytest.param("1m1ms", 60.001, id="m and ms side by side"),
        pytest.param("00s", 0.0, id="zeros"),
    ],
)
def test_a_go_duration(text: str, seconds: float) -> None:
    assert parse_go_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("1", id="a number that is not zero needs a unit"),
        pytest.param("1d", id="Go has no days"),
        pytest.param("1S", id="a unit in capitals"),
        pytest.param("1s ", id="a blank behind it"),
        pytest.param("1s\n", id="a line break behind it"),
        pytest.param("1ss", id="two units"),
        pytest.param("1e3s", id="an exponent"),
        pytest.param("1_0s", id="an underscore"),
        pytest.param("\N{ARABIC-INDIC DIGIT ONE}s", id="digits of another script"),
        pytest.param("9" * 16 + "s", id="more digits than anyone needs"),
        pytest.param("1s" * 1000, id="parts without end"),
    ],
)
def test_no_go_duration(text: str) -> None:
    assert parse_go_duration(text) is None


def test_our_own_durations_have_days_but_nothing_below_a_millisecond() -> None:
    assert parse_duration("3d") == 259200
    assert parse_duration("1us") is None
    assert parse_duration("0") is None


@given(st.text(max_size=40) | st.from_regex(r"([0-9]{1,15}(\.[0-9]{1,9})?[a-z]{1,2}){1,3}"))
def test_any_text_is_a_finite_time_or_none(text: str) -> None:
    for seconds in (parse_duration(text), parse_go_duration(text)):
        assert seconds is None or 0 <= seconds < 1e21
