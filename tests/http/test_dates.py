from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given, strategies as st

from proxy.http.dates import parse_date

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC).timestamp()


def epoch(*moment: int) -> float:
    return datetime(*moment, tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc] # as many as given


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("Sun, 06 Nov 1994 08:49:37 GMT", 784111777, id="the usual form"),
        pytest.param("Sunday, 06-Nov-94 08:49:37 GMT", 784111777, id="the form of RFC 850"),
        pytest.param("Sun Nov  6 08:49:37 1994", 784111777, id="asctime is UTC"),
        pytest.param("Sun Nov 16 08:49:37 1994", 784975777, id="asctime, day of two digits"),
        pytest.param("06 Nov 1994 08:49:37 GMT", 784111777, id="without the day's name"),
        pytest.param("Mon, 06 Nov 1994 08:49:37 GMT", 784111777, id="with the wrong day's name"),
        pytest.param("sun, 06 nov 1994 08:49:37 gmt", 784111777, id="in lower case"),
        pytest.param("Sun, 6 Nov 1994 08:49:37 GMT", 784111777, id="a day of one digit"),
        pytest.param("Sun, 06-Nov-1994 08:49:37 GMT", 784111777, id="as in cookies"),
        pytest.param(" \tSun, 06 Nov 1994 08:49:37 GMT ", 784111777, id="blanks around it"),
        pytest.param("Sun, 06 Nov 1994 08:49:37 UTC", 784111777, id="UTC by name"),
        pytest.param("Sun, 06 Nov 1994 09:49:37 +0100", 784111777, id="a zone east of us"),
        pytest.param("Sun, 06 Nov 1994 03:19:37 -0530", 784111777, id="a zone west of us"),
        pytest.param("1994-11-06T08:49:37Z", 784111777, id="RFC 3339"),
        pytest.param("1994-11-06t08:49:37z", 784111777, id="RFC 3339 in lower case"),
        pytest.param("1994-11-06 08:49:37Z", 784111777, id="RFC 3339 with a blank"),
        pytest.param("1994-11-06T08:49:37.25Z", 784111777.25, id="RFC 3339 with a fraction"),
        pytest.param("1994-11-06T09:49:37+01:00", 784111777, id="RFC 3339 with a zone"),
        pytest.param("Thu, 01 Jan 1970 00:00:00 GMT", 0, id="the epoch"),
        pytest.param("Wed, 31 Dec 1969 23:59:59 GMT", -1, id="before the epoch"),
        pytest.param("Fri, 31 Dec 9999 23:59:59 GMT", 253402300799, id="the last second"),
        pytest.param("Sat, 31 Dec 2016 23:59:60 GMT", 1483228800, id="a leap second"),
        pytest.param("Thu, 29 Feb 2024 00:00:00 GMT", epoch(2024, 2, 29), id="a leap day"),
        pytest.param("Tue, 29 Feb 2000 00:00:00 GMT", epoch(2000, 2, 29), id="that of 2000"),
        pytest.param("Sun, 31 Dec 2023 00:00:00 GMT", epoch(2023, 12, 31), id="the last of a year"),
    ],
)
def test_a_date(text: str, seconds: float) -> None:
    assert parse_date(text, NOW) == seconds


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("tomorrow", id="a word"),
        pytest.param("120", id="a number"),
        pytest.param("Sun, 32 Jan 2026 12:00:00 GMT", id="the 32nd"),
        pytest.param("Sun, 00 Jan 2026 12:00:00 GMT", id="day zero"),
        pytest.param("Sun, 31 Apr 2026 12:00:00 GMT", id="the 31st of a month with 30 days"),
        pytest.param("Sun, 29 Feb 2026 12:00:00 GMT", id="a leap day in a common year"),
        pytest.param("Mon, 29 Feb 2100 12:00:00 GMT", id="a leap day in 2100"),
        pytest.param("2026-13-01T00:00:00Z", id="month 13"),
        pytest.param("2026-00-01T00:00:00Z", id="month 0"),
        pytest.param("Sun, 06 Foo 1994 08:49:37 GMT", id="no month"),
        pytest.param("Sun, 06 Nov 1994 24:00:00 GMT", id="hour 24"),
        pytest.param("Sun, 06 Nov 1994 08:60:00 GMT", id="minute 60"),
        pytest.param("Sun, 06 Nov 1994 08:49:61 GMT", id="second 61"),
        pytest.param("Sun, 06 Nov 1994 08:49:37", id="no zone"),
        pytest.param("Sun, 06 Nov 1994 08:49:37 CEST", id="a zone that nobody defined"),
        pytest.param("Sun, 06 Nov 1994 08:49:37 +2400", id="a zone a day away"),
        pytest.param("Sun, 06 Nov 1994 08:49:37 +0060", id="a zone with minute 60"),
        pytest.param("Sun, 06 Nov 194 08:49:37 GMT", id="a year of three digits"),
        pytest.param("Sun, 06 Nov-1994 08:49:37 GMT", id="half a dash"),
        pytest.param("1994-11-06T08:49:37", id="RFC 3339 without a zone"),
        pytest.param("1994-11-06T08:49:37Z\n", id="a line break"),
        pytest.param(
            "Sun, \N{ARABIC-INDIC DIGIT ONE}6 Nov 1994 08:49:37 GMT", id="digits of another script"
        ),
        pytest.param("Sun," + " " * 100 + "06 Nov 1994 08:49:37 GMT", id="blanks without end"),
    ],
)
def test_no_date(text: str) -> None:
    assert parse_date(text, NOW) is None


@pytest.mark.parametrize(
    ("now", "text", "year"),
    [
        pytest.param(2026, "01-Jan-26", 2026, id="this year"),
        pytest.param(2026, "01-Jan-75", 2075, id="49 years ahead"),
        pytest.param(2026, "01-Jan-76", 2076, id="50 years ahead to the second"),
        pytest.param(2024, "01-Jan-74", 2074, id="also where an average year ends late"),
        pytest.param(2026, "02-Jan-76", 1976, id="a day more than 50 years ahead"),
        pytest.param(2026, "01-Jan-77", 1977, id="51 years ahead"),
        pytest.param(2026, "31-Dec-99", 1999, id="73 years ahead"),
        pytest.param(2080, "01-Jan-10", 2110, id="across the turn of a century"),
        pytest.param(1999, "01-Jan-00", 2000, id="the year after 1999"),
        pytest.param(2050, "29-Feb-00", 2000, id="a leap day that only 2000 had"),
    ],
)
def test_two_digits_of_a_year(now: int, text: str, year: int) -> None:
    seconds = parse_date(f"Anyday, {text} 00:00:00 GMT", epoch(now, 1, 1))
    assert seconds is not None
    assert datetime.fromtimestamp(seconds, UTC).year == year


@given(st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(microsecond=0)))
def test_every_date_is_read_as_the_standard_library_writes_it(moment: datetime) -> None:
    for text in (
        format_datetime(moment, usegmt=True),
        format_datetime(moment),
        moment.isoformat(),
        moment.strftime("%a %b %e %H:%M:%S ") + f"{moment.year:04}",
    ):
        assert parse_date(text, NOW) == moment.timestamp()


DATE_LIKE = (
    r"([A-Z][a-z]{2,8}, )?[0-9]{1,2}[ -][A-Z][a-z]{2}[ -]([0-9]{2}){1,2}"
    r" [0-9]{2}:[0-9]{2}:[0-9]{2} (GMT|[+-][0-9]{4})"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)


@given(st.text() | st.from_regex(DATE_LIKE, fullmatch=True), st.floats(0, 1e11))
def test_no_text_is_too_odd(text: str, now: float) -> None:
    seconds = parse_date(text, now)
    assert seconds is None or abs(seconds) < 1e12
