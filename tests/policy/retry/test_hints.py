import math
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from proxy.policy.retry.hints import NO_HINT, RetryHint, read_hint
from tests.vectors.load import cases, group

NOW = float(group("meta")["fixed_now_epoch"])
CAP = group("retry_after")["cap_seconds"]
IN_30_S = "Thu, 15 Jan 2026 12:00:30 GMT"


def wait(status: int, *lines: str, wall: float = NOW) -> float | None:
    return read_hint(status, [line.encode() for line in lines], wall).wait


def as_the_vectors_say_it(seconds: float | None) -> float | str | None:
    """They ask together what we ask one after the other: is it usable, is it too long."""
    return "exceeds_cap" if seconds is not None and seconds > CAP else seconds


@pytest.mark.parametrize("case", cases("retry_after"))
def test_retry_after(case: dict[str, Any]) -> None:
    expected = None if case["lenient"] == "ignore" else case["lenient"]
    assert as_the_vectors_say_it(wait(503, f"Retry-After: {case['value']}")) == expected


@pytest.mark.parametrize("case", cases("retry_after_multi"))
def test_several_lines_of_retry_after(case: dict[str, Any]) -> None:
    expected = None if case["expect"] == "ignore" else case["expect"]
    assert wait(429, *(f"Retry-After: {value}" for value in case["lines"])) == expected


@pytest.mark.parametrize("case", cases("rate_limit_headers"))
def test_rate_limit_headers(case: dict[str, Any]) -> None:
    lines = [f"{name}: {value}".encode() for name, value in case["headers"].items()]
    hint = read_hint(case["status"], lines, NOW)
    if case["expect"] == "do_not_retry":
        assert hint.should_retry is False
        return
    expected = None if case["expect"] == "none" else case["expect"]
    assert as_the_vectors_say_it(hint.wait) == pytest.approx(expected)
    assert hint.should_retry is None


@pytest.mark.parametrize(
    ("status", "lines", "expected"),
    [
        pytest.param(503, [], None, id="nothing said"),
        pytest.param(503, ["Date: " + IN_30_S, "Age: 7"], None, id="nothing said but the time"),
        pytest.param(503, ["RETRY-AFTER:7"], 7, id="a name in capitals, no blank"),
        pytest.param(399, ["Retry-After: 7"], None, id="no error, no hint"),
        pytest.param(400, ["Retry-After: 7"], 7, id="any error may carry one"),
        pytest.param(503, ["Retry-After: " + "9" * 500], 1e12, id="huge, yet finite"),
        pytest.param(503, ["Retry-After: 0." + "0" * 500], 0, id="a long way of saying zero"),
        pytest.param(503, ["Retry-After:" + "9" * 1024], 1e12, id="as long as can be"),
        pytest.param(503, ["Retry-After:" + "9" * 1025], None, id="too long to be meant"),
        pytest.param(503, ["Retry-After: x"] * 8 + ["Retry-After: 7"], None, id="too many lines"),
        pytest.param(503, ["Retry-After: x"] * 7 + ["Retry-After: 7"], 7, id="just not too many"),
        pytest.param(
            429, ["retry-after-ms: 250", "x-ms-retry-after-ms: 500"], 0.5, id="the longer of two"
        ),
        pytest.param(
            429, ["retry-after-ms: soon", "RateLimit-Reset: 4"], 4, id="the first usable one"
        ),
        pytest.param(503, ["Retry-After: 5", "Age: 60"], 5, id="Retry-After of a cached response"),
        pytest.param(
            429,
            ['RateLimit: "a";r=0;t=30', "Age: 60"],
            None,
            id="a cached response knows nothing of quotas",
        ),
        pytest.param(429, ['RateLimit: "a";r=0;t=30', "Age: 0"], 30, id="a fresh one does"),
        pytest.param(
            429,
            ['RateLimit: "a";r=0;t=5', 'RateLimit: "b";r=0;t=60'],
            60,
            id="a list over several lines",
        ),
        pytest.param(
            503,
            ['RateLimit: "a";r=9;t=30', "X-RateLimit-Reset: 4"],
            4,
            id="a quota with something left yields to the next hint",
        ),
        pytest.param(503, ["X-RateLimit-Reset: 30"], 30, id="a reset without a count"),
        pytest.param(
            503,
            ["X-RateLimit-Reset: 30", "X-RateLimit-Remaining: 0"],
            30,
            id="a reset with nothing left",
        ),
        pytest.param(
            503,
            ["X-RateLimit-Reset: 30", "X-RateLimit-Remaining: 9"],
            None,
            id="a reset with something left",
        ),
        pytest.param(
            429,
            ["X-RateLimit-Reset: 30", "X-RateLimit-Remaining: 9"],
            30,
            id="a reset with something left, but a 429 knows better",
        ),
        pytest.param(
            503,
            ["X-RateLimit-Reset: 30", "X-RateLimit-Remaining: -2"],
            30,
            id="a reset with less than nothing left",
        ),
        pytest.param(
            503,
            ["X-RateLimit-Reset: 30", "X-RateLimit-Remaining: many"],
            None,
            id="a reset with a count that nobody can read",
        ),
        pytest.param(
            503, ["X-RateLimit-Remaining: 0"], None, id="nothing left, and no word about when"
        ),
        pytest.param(
            403,
            ["X-RateLimit-Reset-After: 1.5", "X-RateLimit-Remaining: 0"],
            1.5,
            id="Discord's float",
        ),
        pytest.param(
            403,
            ["X-RateLimit-Reset-After: 1.5", "X-RateLimit-Remaining: 1"],
            None,
            id="Discord's float with something left",
        ),
        pytest.param(
            429, ["X-RateLimit-Reset: 999999999"], 999_999_999, id="the longest that is a span"
        ),
        pytest.param(
            429, ["X-RateLimit-Reset: 1000000000"], 0, id="the first that is a moment, long past"
        ),
        pytest.param(
            429, ["X-RateLimit-Reset: 999999999999"], 1e12 - 1 - NOW, id="the last in seconds"
        ),
        pytest.param(
            429, ["X-RateLimit-Reset: 1000000000000"], 0, id="the first in milliseconds, long past"
        ),
        pytest.param(
            429,
            ["x-ratelimit-remaining-tokens: 7", "x-ratelimit-reset-tokens: 1s"],
            1,
            id="OpenAI says 429 and speaks of one quota, of which something is left",
        ),
        pytest.param(
            429,
            [
                "x-ratelimit-remaining-requests: 5",
                "x-ratelimit-reset-requests: 2s",
                "x-ratelimit-remaining-tokens: 7",
                "x-ratelimit-reset-tokens: 1s",
            ],
            2,
            id="OpenAI says 429 and admits to nothing: the longest",
        ),
        pytest.param(
            503,
            ["x-ratelimit-remaining-requests: 5", "x-ratelimit-reset-requests: 2s"],
            None,
            id="OpenAI has something left",
        ),
        pytest.param(
            429,
            ["x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 0"],
            None,
            id="Azure does not know",
        ),
        pytest.param(
            429,
            ["x-ratelimit-remaining-tokens: -1", "x-ratelimit-reset-tokens: -1"],
            None,
            id="Azure does not know either",
        ),
        pytest.param(
            429,
            ["x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 1.5\N{MICRO SIGN}s"],
            1.5e-6,
            id="Go's micro sign comes in UTF-8",
        ),
        pytest.param(
            529,
            ["anthropic-ratelimit-unified-7d-reset: 1768900000"],
            None,
            id="the end of Anthropic's week is no reason to wait",
        ),
        pytest.param(
            429, ["X-Shopify-Shop-Api-Call-Limit: 39/40"], None, id="room for one call at Shopify"
        ),
        pytest.param(
            429, ["X-Shopify-Shop-Api-Call-Limit: 43/40"], 2, id="four calls too many at Shopify"
        ),
    ],
)
def test_wait(status: int, lines: list[str], expected: float | None) -> None:
    assert wait(status, *lines) == expected


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        pytest.param("Thu, 15 Jan 2026 12:00:10 GMT", 20, id="a clock ahead of ours"),
        pytest.param("Thu, 15 Jan 2026 11:00:00 GMT", 3630, id="a clock behind ours"),
        pytest.param("Fri, 16 Jan 2026 12:00:00 GMT", 0, id="a day ahead"),
        pytest.param("Fri, 16 Jan 2026 12:00:01 GMT", 30, id="too far ahead to be a clock"),
        pytest.param("Wed, 14 Jan 2026 11:59:59 GMT", 30, id="too far behind"),
        pytest.param("now", 30, id="no date"),
    ],
)
@pytest.mark.parametrize("field", [f"Retry-After: {IN_30_S}", f"X-RateLimit-Reset: {NOW + 30:.0f}"])
def test_their_dates_are_by_their_clock(field: str, date: str, expected: float) -> None:
    assert wait(429, field, f"Date: {date}") == expected


def test_their_clock_does_not_touch_a_span() -> None:
    assert wait(429, "Retry-After: 30", "Date: Thu, 15 Jan 2026 11:00:00 GMT") == 30


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(["X-Should-Retry: true"], True, id="yes"),
        pytest.param(["X-Should-Retry: FALSE"], False, id="no, in capitals"),
        pytest.param(["Stripe-Should-Retry: false"], False, id="Stripe's no"),
        pytest.param(["Stripe-Should-Retry: true"], True, id="Stripe's yes"),
        pytest.param(["X-Should-Retry: true", "Stripe-Should-Retry: false"], False, id="no wins"),
        pytest.param(["X-Should-Retry: false", "X-Should-Retry: true"], False, id="in any order"),
        pytest.param(["X-Should-Retry: 1"], None, id="neither"),
        pytest.param(["X-Should-Retry:"], None, id="empty"),
        pytest.param(["Content-Length: 0"], None, id="not said"),
    ],
)
def test_should_retry(lines: list[str], expected: bool | None) -> None:  # noqa: FBT001 - the column of a table
    assert read_hint(500, [line.encode() for line in lines], NOW).should_retry is expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(["X-Should-Retry: true"], 7, id="yes"),
        pytest.param(["X-Should-Retry: false"], None, id="no"),
        pytest.param([], None, id="not said"),
    ],
)
def test_a_wait_that_is_not_wanted_is_read_only_beside_a_yes(
    lines: list[str], expected: float | None
) -> None:
    fields = [line.encode() for line in ("Retry-After: 7", *lines)]
    assert read_hint(404, fields, NOW, wants_wait=False).wait == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(["Idempotent-Replayed: true"], True, id="by its own word"),
        pytest.param(["idempotent-replayed:TRUE"], True, id="in any letters"),
        pytest.param(["Idempotent-Replayed: false", "Idempotent-Replayed: true"], True, id="once"),
        pytest.param(["Idempotent-Replayed: false"], False, id="not one"),
        pytest.param(["Idempotent-Replayed: 1"], False, id="no word that is known"),
        pytest.param(["Retry-After: 7"], False, id="not said"),
        pytest.param([], False, id="nothing said"),
    ],
)
@pytest.mark.parametrize("status", [200, 503])
def test_an_upstreams_own_replay_is_final(status: int, lines: list[str], *, expected: bool) -> None:
    assert read_hint(status, [line.encode() for line in lines], NOW).is_final is expected


def test_most_failures_say_nothing() -> None:
    assert read_hint(503, [b"Content-Type: text/plain", b"no colon"], NOW) is NO_HINT
    assert RetryHint(None, None) == NO_HINT


NAMES = st.sampled_from(
    [
        b"retry-after-ms",
        b"Retry-After",
        b"RateLimit",
        b"RateLimit-Reset",
        b"RateLimit-Remaining",
        b"X-RateLimit-Reset-After",
        b"X-RateLimit-Reset",
        b"X-RateLimit-Remaining",
        b"x-ratelimit-reset-tokens",
        b"anthropic-ratelimit-tokens-reset",
        b"X-Shopify-Shop-Api-Call-Limit",
        b"X-Should-Retry",
        b"Date",
        b"Age",
    ]
)
VALUES = st.binary(max_size=40) | st.from_regex(
    rb'[0-9]{1,400}(\.[0-9]+)?|("[a-z]";r=[0-9]+;t=[0-9]+,? ?){1,3}|[0-9]+/[0-9]+|([0-9]+(m|s|h))+',
    fullmatch=True,
)


@given(
    status=st.integers(100, 999),
    lines=st.lists(
        st.binary() | st.builds(lambda name, value: name + b": " + value, NAMES, VALUES)
    ),
    wall=st.floats(0, 1e11),
)
@example(status=429, lines=[b'RateLimit: "' + b"\\" * 20_000], wall=NOW)
@example(status=429, lines=[b'RateLimit: "a"' + b";a" * 20_000 + b"="], wall=NOW)
@example(status=429, lines=[b"Retry-After: " + b"1" * 60_000 + b"."], wall=NOW)
def test_whatever_comes_is_a_finite_wait_or_none(
    status: int, lines: list[bytes], wall: float
) -> None:
    hint = read_hint(status, lines, wall)
    assert hint.wait is None or (math.isfinite(hint.wait) and hint.wait >= 0)
    assert hint.should_retry in {None, True, False}
