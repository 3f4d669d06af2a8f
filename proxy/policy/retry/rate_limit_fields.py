"""The ``RateLimit`` field: how much of a rate limit's quota is left, and when there is more.

Two forms are in use, and a field that is neither must be ignored as a whole:

- a List, by the present draft (draft-ietf-httpapi-ratelimit-headers-10):
  ``"burst";r=0;t=5, "daily";r=400;t=3600`` (remaining, seconds until reset);
- a Dictionary, by draft 07: ``limit=10, remaining=0, reset=7``.

Both are structured fields (RFC 9651). The values of unknown parameters are only
skipped, not checked.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class AdvertisedQuota(NamedTuple):
    """What a server says about one quota."""

    exhausted: bool
    """Whether nothing is left of the quota, or the server does not say how much is."""
    wait: float | None
    """Seconds until there is more; None if that is unknown."""


def longest_wait(quotas: Sequence[AdvertisedQuota], *, is_429: bool) -> float | None:
    """Return the seconds until all exhausted *quotas* have something left; None if unknown.

    A quota of which something is left does not count. But a 429 says that some quota
    is used up: if the server reports none as exhausted, each may be the one.
    """
    counting = [quota for quota in quotas if quota.exhausted] or (quotas if is_429 else ())
    return max((quota.wait for quota in counting if quota.wait is not None), default=None)


_STRING = r'"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"'
_KEY = r"[a-z*][a-z0-9_.*-]*"
_VALUE = rf"(?:{_STRING}|[!#-+\--:<-~]+)"
_PARAMETERS = rf"(?P<parameters>(?:; *{_KEY}(?:={_VALUE})?)*)"
_item = re.compile(_STRING + _PARAMETERS)
_member = re.compile(rf"(?P<key>{_KEY})(?:=(?P<value>{_VALUE}))?{_PARAMETERS}")
_comma = re.compile(r"[ \t]*,[ \t]*")
_parameter = re.compile(rf"; *({_KEY})(?:=({_VALUE}))?")
_is_whole_number = re.compile(r"[0-9]{1,15}").fullmatch


class _Malformed(Exception):
    pass


def parse_rate_limit(text: str) -> list[AdvertisedQuota]:
    """Parse *text*, all lines of the field, to quotas; an empty list if it is malformed."""
    if not text:
        return []
    for read in (_read_list, _read_dictionary):
        try:
            return read(text)
        except _Malformed:
            continue
    return []


def _read_list(text: str) -> list[AdvertisedQuota]:
    quotas = []
    for item in _members(_item, text):
        parameters = dict(_parameter.findall(item["parameters"]))
        if "r" not in parameters:
            raise _Malformed
        wait = _whole_number(parameters["t"]) if "t" in parameters else None
        quotas.append(AdvertisedQuota(_whole_number(parameters["r"]) == 0, wait))
    return quotas


def _read_dictionary(text: str) -> list[AdvertisedQuota]:
    values = {member["key"]: member["value"] or "" for member in _members(_member, text)}
    if "reset" not in values:
        raise _Malformed
    exhausted = "remaining" not in values or _whole_number(values["remaining"]) == 0
    return [AdvertisedQuota(exhausted, _whole_number(values["reset"]))]


def _members(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the members of a List or Dictionary, each matched by *pattern*."""
    position = 0
    while True:
        member = pattern.match(text, position)
        if member is None:
            raise _Malformed
        yield member
        position = member.end()
        if position == len(text):
            return
        comma = _comma.match(text, position)
        if comma is None:
            raise _Malformed
        position = comma.end()


def _whole_number(text: str) -> float:
    if not _is_whole_number(text):
        raise _Malformed
    return float(text)
