"""Retry hints: what a response says about the next attempt, when and whether at all.

Servers say when to come back in many ways. The first one in this order that can
be used decides; a malformed one is skipped:

1. ``retry-after-ms``, ``x-ms-retry-after-ms``, ``x-amz-retry-after``: milliseconds (OpenAI,
   Azure, AWS)
2. ``Retry-After``: seconds or a date (RFC 9110 10.2.3); of several the longest
3. ``RateLimit``: the IETF's drafts
4. ``RateLimit-Reset``: their early form
5. ``X-RateLimit-Reset-After`` (Discord), ``X-RateLimit-Retry-After`` (Braze)
6. ``X-RateLimit-Reset`` (GitHub and most others)
7. what single vendors do: OpenAI, Anthropic, Shopify

The first two are orders. A reset only tells when the quota of a rate limit is filled up
again, which is no reason to wait while something is left of it (``rate_limit_fields.py``).

Nothing here raises, whatever the upstream sends, and no wait is infinite. Whether
it is too long is for the caller to decide.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from proxy.http.dates import parse_date
from proxy.http.durations import parse_go_duration
from proxy.policy.attempt import FIRST_FAILURE
from proxy.policy.retry.rate_limit_fields import AdvertisedQuota, longest_wait, parse_rate_limit


@dataclass(frozen=True, slots=True)
class RetryHint:
    """What an upstream's response says about the next attempt."""

    wait: float | None = None
    """Seconds of the wait that the upstream asks for; None if it does not say."""
    should_retry: bool | None = None
    """The upstream's yes or no to another attempt; None if it does not say."""
    is_final: bool = False
    """Whether the response is, by its own word, that to an earlier request with the same key."""


NO_HINT = RetryHint()

_MOST_LINES = 8
_LONGEST_LINE = 1024
"""Characters of one field. No honest server sends more, and to read it would block the loop."""

_LONGEST = 1e12
"""Seconds, beyond the year 9999. A wait that would be infinite is cut to this."""
_DAY = 86400.0
_FIRST_EPOCH = 1e9
"""From here on a number is no span but a time: 31 years is no wait, and 2001 is past."""
_FIRST_EPOCH_IN_MS = 1e12

_Reader = Callable[[str], float | None]
"""Reads the text of a field as seconds from now; None if it is malformed."""

_MILLISECONDS = (b"retry-after-ms", b"x-ms-retry-after-ms", b"x-amz-retry-after")
_SHOULD_RETRY = (b"x-should-retry", b"stripe-should-retry")
_REPLAYED = b"idempotent-replayed"

# Reset and remaining count of each quota that a vendor has. Some are left out: a few of
# Anthropic's tell when a week is over, whether or not it is used up.
_RATE_LIMIT = (b"ratelimit-reset", b"ratelimit-remaining")
_DISCORD = (b"x-ratelimit-reset-after", b"x-ratelimit-remaining")
_X_RATE_LIMIT = (b"x-ratelimit-reset", b"x-ratelimit-remaining")
_OPENAI = tuple(
    (b"x-ratelimit-reset-" + of, b"x-ratelimit-remaining-" + of) for of in (b"requests", b"tokens")
)
_ANTHROPIC = tuple(
    (b"anthropic-ratelimit-" + of + b"-reset", b"anthropic-ratelimit-" + of + b"-remaining")
    for of in (b"requests", b"tokens", b"input-tokens", b"output-tokens")
)
_SHOPIFY = b"x-shopify-shop-api-call-limit"
_SHOPIFY_LEAKS_PER_SECOND = 2

_KNOWN = frozenset(
    {
        *_MILLISECONDS,
        b"retry-after",
        b"ratelimit",
        b"x-ratelimit-retry-after",
        *chain(_RATE_LIMIT, _DISCORD, _X_RATE_LIMIT, *_OPENAI, *_ANTHROPIC),
        _SHOPIFY,
        *_SHOULD_RETRY,
        _REPLAYED,
    }
)
_CONTEXT = frozenset({b"date", b"age"})
"""Fields that are worth reading only beside one of ``_KNOWN``."""

# ASCII digits. Python's float() would also take "1_000", "1e3", "nan" and other scripts.
_is_number = re.compile(r"[0-9]+(?:\.[0-9]+)?").fullmatch
_is_nothing = re.compile(r"-[0-9]+|0+(?:\.0+)?").fullmatch  # some servers count on below 0
_is_positive = re.compile(r"0*[1-9][0-9]*").fullmatch
_used_of_size = re.compile(r"([0-9]{1,9})/([0-9]{1,9})").fullmatch


def read_hint(
    status: int, lines: Sequence[bytes], wall: float, *, wants_wait: bool = True
) -> RetryHint:
    """Read the retry hint from the fields of a response, each as ``b"Name: value"``.

    *wall* is the proxy's own time, in seconds since the epoch. A response that is no
    error gives no wait: its ``Retry-After`` is for the client, who is to ask
    again later, or elsewhere. Unless the caller *wants_wait*, one is computed only
    for a response that asks to be retried: GitHub's on a plain 404 takes 35 µs.
    """
    fields: dict[bytes, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in _KNOWN or name in _CONTEXT:
            texts = fields.setdefault(name, [])
            if len(texts) < _MOST_LINES and len(value) <= _LONGEST_LINE:
                # Go writes a micro sign in UTF-8; all else that means something is ASCII.
                texts.append(value.strip(b" \t").decode("utf-8", "replace"))
    if fields.keys() <= _CONTEXT:
        return NO_HINT
    response = _Response(status, fields, wall)
    should_retry = response.should_retry()
    matters = status >= FIRST_FAILURE and (wants_wait or should_retry is True)
    return RetryHint(response.wait() if matters else None, should_retry, response.is_replayed())


class _Response:
    """The known fields of one response."""

    def __init__(self, status: int, fields: dict[bytes, list[str]], wall: float) -> None:
        self._is_429 = status == 429
        self._fields = fields
        self._wall = wall

    @cached_property
    def _now(self) -> float:
        """The present time by the server's Date, since dates in its fields go by its clock."""
        dates = self._fields.get(b"date")
        theirs = parse_date(dates[0], self._wall) if dates else None
        return theirs if theirs is not None and abs(theirs - self._wall) <= _DAY else self._wall

    def should_retry(self) -> bool | None:
        values = {text.lower() for name in _SHOULD_RETRY for text in self._fields.get(name, ())}
        if "false" in values:
            return False
        return True if "true" in values else None

    def is_replayed(self) -> bool:
        return "true" in map(str.lower, self._fields.get(_REPLAYED, ()))

    def wait(self) -> float | None:
        usable = next((wait for wait in self._waits() if wait is not None), None)
        # A time in the past is a wait of 0 seconds.
        return None if usable is None else min(max(usable, 0.0), _LONGEST)

    def _waits(self) -> Iterator[float | None]:
        """Yield the wait that each kind of field asks for, in order of precedence; None: none."""
        yield self._longest(_milliseconds, *_MILLISECONDS)
        yield self._longest(self._seconds_or_date, b"retry-after")
        if any(map(_is_positive, self._fields.get(b"age", ()))):
            return  # the response comes from a cache, and so do its quotas
        quotas = parse_rate_limit(", ".join(self._fields.get(b"ratelimit", ())))
        yield longest_wait(quotas, is_429=self._is_429)
        yield self._quotas(self._seconds_or_time, _RATE_LIMIT)
        yield self._quotas(_seconds, _DISCORD)
        yield self._longest(_seconds, b"x-ratelimit-retry-after")
        yield self._quotas(self._seconds_or_time, _X_RATE_LIMIT)
        yield self._quotas(_go_duration, *_OPENAI)
        yield self._quotas(self._seconds_or_time, *_ANTHROPIC)
        yield self._longest(_shopify, _SHOPIFY)

    def _longest(self, read: _Reader, *names: bytes) -> float | None:
        waits = (read(text) for name in names for text in self._fields.get(name, ()))
        return max((wait for wait in waits if wait is not None), default=None)

    def _quotas(self, read: _Reader, *names: tuple[bytes, bytes]) -> float | None:
        quotas = []
        for reset, remaining in names:
            if reset in self._fields or remaining in self._fields:
                left = self._fields.get(remaining)
                exhausted = left is None or any(map(_is_nothing, left))
                quotas.append(AdvertisedQuota(exhausted, self._longest(read, reset)))
        return longest_wait(quotas, is_429=self._is_429)

    def _seconds_or_date(self, text: str) -> float | None:
        seconds = _seconds(text)
        if seconds is not None:
            return seconds
        date = parse_date(text, self._now)
        return None if date is None else date - self._now

    def _seconds_or_time(self, text: str) -> float | None:
        """Read seconds or a date; a large number is a time, in (milli)seconds since the epoch."""
        number = _seconds(text)
        if number is None or number < _FIRST_EPOCH:
            return self._seconds_or_date(text)
        return (number if number < _FIRST_EPOCH_IN_MS else number / 1000) - self._now


def _seconds(text: str) -> float | None:
    return float(text) if _is_number(text) else None


def _milliseconds(text: str) -> float | None:
    return float(text) / 1000 if _is_number(text) else None


def _go_duration(text: str) -> float | None:
    # Azure sends 0 where the reset is unknown.
    return parse_go_duration(text) or None


def _shopify(text: str) -> float | None:
    """Read Shopify's leaky bucket, ``used/size``: seconds until one more call fits."""
    found = _used_of_size(text)
    too_many = int(found[1]) - int(found[2]) + 1 if found else 0
    return too_many / _SHOPIFY_LEAKS_PER_SECOND if too_many > 0 else None
