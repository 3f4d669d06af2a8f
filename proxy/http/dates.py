"""Dates in header fields: the forms that RFC 9110 5.6.7 requires a recipient to read, and two more.

========================================  =========================================
``Sun, 06 Nov 1994 08:49:37 GMT``         the form that senders must write
``Sunday, 06-Nov-94 08:49:37 GMT``        RFC 850: two digits of the year
``Sun Nov  6 08:49:37 1994``              C's asctime: no zone, and means UTC
``Sun, 06 Nov 1994 09:49:37 +0100``       RFC 5322: a zone, seen in the wild
``1994-11-06T08:49:37Z``                  RFC 3339: seen in reset headers
========================================  =========================================

The standard library's parsers place two-digit years by a fixed table, take asctime
for local time and refuse the leap second. They also read a clock, which this
package must not. So the calendar is computed here, in one line.
"""

import re

_LONGEST_TEXT = 64
_SECONDS_OF_A_YEAR = 31_556_952  # on average
_AHEAD = 50

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]

_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_OFFSET = r"(?P<sign>[+-])(?P<zone_hour>[0-9]{2}):?(?P<zone_minute>[0-9]{2})"
# The name of the day is not checked against the date: the date decides.
_RFC_5322_OR_850 = (
    rf"(?:[a-z]{{3,9}}, *)?(?P<day>[0-9]{{1,2}})(?P<dash>[ -]){_MONTH}(?P=dash)"
    rf"(?P<year>[0-9]{{4}}|[0-9]{{2}}) +{_TIME} +(?:GMT|UTC?|Z|{_OFFSET})"
)
_ASCTIME = rf"[a-z]{{3,9}} +{_MONTH} +(?P<day>[0-9]{{1,2}}) +{_TIME} +(?P<year>[0-9]{{4}})"
_RFC_3339 = (
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})[T ]"
    rf"{_TIME}(?P<fraction>\.[0-9]{{1,12}})?(?:Z|{_OFFSET})"
)
_FORMS = tuple(
    re.compile(form, re.IGNORECASE | re.ASCII) for form in (_RFC_5322_OR_850, _ASCTIME, _RFC_3339)
)


def parse_date(text: str, now: float) -> float | None:
    """Parse *text* to seconds since the epoch; None if it is no date.

    *now*, in seconds since the epoch too, decides the century of a two-digit year.
    """
    text = text.strip(" \t")
    if len(text) > _LONGEST_TEXT:
        return None
    for form in _FORMS:
        found = form.fullmatch(text)
        if found is not None:
            return _seconds_since_epoch(found.groupdict("0"), now)
    return None


def _seconds_since_epoch(part: dict[str, str], now: float) -> float | None:
    named = part["month"].lower()
    month = _MONTHS.index(named) + 1 if named in _MONTHS else int(named)
    day, hour, minute, second = (int(part[name]) for name in ("day", "hour", "minute", "second"))
    zone_hour, zone_minute = int(part.get("zone_hour", 0)), int(part.get("zone_minute", 0))
    # 60 is the leap second.
    if hour > 23 or minute > 59 or second > 60 or zone_hour > 23 or zone_minute > 59:
        return None
    ahead_of_utc = (zone_hour * 60 + zone_minute) * (-60 if part.get("sign") == "-" else 60)
    into_the_day = (
        hour * 3600 + minute * 60 + second + float(part.get("fraction", 0)) - ahead_of_utc
    )
    year = int(part["year"])
    if len(part["year"]) == 2:
        year = _full_year(year, month, day, into_the_day, now)
    if not 1 <= month <= 12 or not 1 <= day <= _days(year, month + 1, 1) - _days(year, month, 1):
        return None
    return _days(year, month, day) * 86400 + into_the_day


def _full_year(digits: int, month: int, day: int, into_the_day: float, now: float) -> int:
    """Return the latest year with these last two *digits* that is at most 50 years ahead.

    RFC 9110 5.6.7: a date "that appears to be more than 50 years in the future"
    is meant to be in "the most recent year in the past that had the same last
    two digits".
    """
    beyond = 1970 + int(now // _SECONDS_OF_A_YEAR) + _AHEAD + 1
    year = beyond - (beyond - digits) % 100
    too_far = _days(year - _AHEAD, month, day) * 86400 + into_the_day > now
    return year - 100 if too_far else year


def _days(year: int, month: int, day: int) -> int:
    """Count the days from the epoch to a date; month 13 is the next January.

    The year is taken to begin in March, so that the leap day comes last and moves no
    other month (``153 * month // 5`` is the length of the months before it).
    """
    year, month = (year - 1, month + 9) if month < 3 else (year, month - 3)
    return (
        365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719469
    )
