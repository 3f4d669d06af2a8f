"""A request that failed for good, kept for a person to look at and to send again.

Which failures become letters, what is kept of the request, and when a letter may be sent
again without asking twice. A letter says itself whether its request may have run: nobody
is to find that out from a list of attempts at three in the morning.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from proxy.http.fields import RawHeaders
from proxy.http.refusal import RefusalReason
from proxy.policy.attempt import FIRST_FAILURE, Attempt, FailureKind
from proxy.policy.failure_category import FailureCategory
from proxy.policy.retry.verdict import Result, is_listed
from proxy.policy.settings import REFUSALS, DeadLetterSettings, UpstreamSettings

FAILED = {
    RefusalReason.CONNECT: FailureKind.CONNECT,
    RefusalReason.RESET: FailureKind.RESET,
    RefusalReason.TIMEOUT: FailureKind.TIMEOUT,
    RefusalReason.PROTOCOL: FailureKind.PROTOCOL,
    RefusalReason.CERTIFICATE: FailureKind.CERTIFICATE,
    RefusalReason.BUSY: FailureKind.BUSY,
    RefusalReason.UNKNOWN: FailureKind.UNKNOWN,
}
"""Answers of ours in place of a response that no attempt brought.

All others are refusals: the request was not wanted, now or at all, and its client knows."""

REFUSED = frozenset(
    {
        RefusalReason.THROTTLED,
        RefusalReason.BREAKER_OPEN,
        RefusalReason.STORE,
        RefusalReason.OVERLOAD,
        RefusalReason.DRAINING,
        # Before any attempt: all its time went by while it waited for something of ours.
        RefusalReason.TIMEOUT,
    }
)
"""Those of them that say nothing against the request: it would have been sent at another time.

Not among them: what is wrong with the request itself, and what is said to a duplicate."""


class DeadLetterRules:
    """Which requests of a route become letters."""

    __slots__ = ("_methods", "_on", "_refused", "keeps_refusals")

    def __init__(self, settings: DeadLetterSettings, upstream: UpstreamSettings) -> None:
        self._methods = settings.methods
        self._on = settings.on
        self._refused = upstream.refused
        self.keeps_refusals = REFUSALS in settings.on.words
        """Whether what we refused without an attempt becomes a letter, too."""

    def may_want(self, method: str, *, is_tunnel: bool) -> bool:
        """Whether a request becomes a letter if it fails."""
        return method in self._methods and not is_tunnel

    def heeds_hint(self, status: int) -> bool:
        """Whether what a response with *status* says about waiting matters."""
        return status in self._on.hinted

    def wants(self, result: Result) -> bool:
        """Whether one that may becomes a letter, now that its last attempt ended like this."""
        kind = result.kind
        if kind is None:
            return result.status >= FIRST_FAILURE and is_listed(self._on, result, self._refused)
        return kind not in {FailureKind.CANCELLED, FailureKind.TRUNCATED}


class DeadLetterState(StrEnum):
    """What goes on with a letter."""

    WAITING = "waiting"  # for somebody to look at it
    REPLAYING = "replaying"  # it is being sent again
    UNCERTAIN = "uncertain"  # it was, by somebody who died: nobody knows how far that came


class Missing(StrEnum):
    """Why a letter has no body, though its request had one."""

    TOO_LARGE = "body_too_large"
    NO_ROOM = "buffer_full"
    INCOMPLETE = "incomplete"  # the failure came before the rest of it


class ReplayResult(StrEnum):
    """How a replay ended. Metric labels, too."""

    SUCCEEDED = "succeeded"  # the letter is gone
    FAILED = "failed"  # the upstream did not do it, or nobody knows whether it did
    REFUSED = "refused"  # by us, before anything was sent: a limit, a breaker, a key
    INTERRUPTED = "interrupted"  # we were told to end


class Obstacle(StrEnum):
    """Why a letter is not sent again. Problem types of the admin listener, too."""

    UNKNOWN = "no_letter"
    NO_ROUTE = "letter_without_route"
    BAD_HEADERS = "bad_request"
    DRAINING = "draining"
    REPLAYING = "letter_replaying"
    NO_BODY = "letter_without_body"
    UNCERTAIN = "letter_uncertain"
    MAY_HAVE_RUN = "letter_may_have_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSummary:
    """What a list shows of a letter."""

    id: str
    created: float
    """Seconds since the epoch, as are all its times."""
    expires: float
    route: str
    method: str
    target: str
    request_id: str
    error: str
    """How it failed: a kind, or a status; of what we refused, the reason."""
    category: FailureCategory
    why: str
    """Why no further attempt was made, as in the access log; empty on a route without retries."""
    used: int
    """Attempts of the last run."""
    allowed: int
    """Attempts that its route allowed."""
    may_have_run: bool
    state: DeadLetterState
    replays: int
    """How often it was sent again, in vain."""
    size: int
    """Bytes of the body that is kept."""
    missing: Missing | None
    """None: it is kept, or there was none."""
    caller: str = ""
    """Tells its caller from others: a digest of what it was sent with of *credentials*; empty if
    there was nothing of them."""
    credentials: tuple[str, ...] = ()
    """Names, in lower case, of the fields by which its route tells callers apart: those that are
    not kept, and those of the scope of its keys."""

    def obstacle(self, *, force: bool) -> Obstacle | None:
        """Why it is not to be sent again, now or without *force*; None if it may be."""
        if self.state is DeadLetterState.REPLAYING:
            return Obstacle.REPLAYING
        if self.missing is not None:
            return Obstacle.NO_BODY
        if force:
            return None
        if self.state is DeadLetterState.UNCERTAIN:
            return Obstacle.UNCERTAIN
        return Obstacle.MAY_HAVE_RUN if self.may_have_run else None


@dataclass(frozen=True, slots=True)
class ReplayRun:
    """The request as it first came, or one replay: all its attempts, never merged with others."""

    time: float
    result: str
    """``failed`` for the first one, or ``refused``; else how the replay ended."""
    attempts: tuple[Mapping[str, object], ...]
    """One for each, as the access log has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """All that is kept of a request that failed for good."""

    outline: DeadLetterSummary
    headers: RawHeaders
    """End-to-end fields as they came, less those that are not kept."""
    dropped: tuple[str, ...]
    """Names of fields that it came with and that were not kept."""
    body: bytes
    peer: str
    """The client's address."""
    scheme: str
    """How the client came: http or https."""
    record: str
    """The name of the record of its idempotency key; empty without one. A replay goes under
    this name, whoever sends it: keys belong to those who sent them first."""
    fallback: str
    """The upstream that was asked in its place afterwards; ``-``: a fixed answer was given."""
    runs: tuple[ReplayRun, ...]
    holder: str = ""
    """Whose share of the room it takes: see :mod:`proxy.policy.fair_share`."""

    @property
    def id(self) -> str:
        return self.outline.id


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a letter that was sent again."""

    letter: str
    route: str
    result: ReplayResult
    error: str
    """How it failed: a kind, a status, or the reason of a refusal; empty if it did not."""
    status: int
    """Of the upstream's response, or of what a client would have got in its place."""
    detail: str
    """What to do about it."""
    record: str
    """The idempotency record that is in the way, if that is what it is."""
    attempts: int
    may_have_run: bool


@dataclass(frozen=True, slots=True)
class DeadLetterCounts:
    """How many letters of one route there are."""

    waiting: int
    """All of them."""
    replayable: int
    """Those that may be sent again without more ado."""
    size: int
    """Bytes that they take."""
    oldest: float
    """When the oldest one was written, in seconds since the epoch."""


def dead_letter_id(milliseconds: int, chance: int) -> str:
    """Twenty hexadecimal digits: later letters sort behind earlier ones, and no two are alike.

    *chance* is a number of 36 bits.
    """
    return f"{milliseconds:011x}{chance:09x}"


def read_dead_letter_id(text: str) -> str | None:
    """The id that somebody typed, in any case; None if it cannot be one."""
    name = text.lower()
    is_one = len(name) == 20 and all(digit in "0123456789abcdef" for digit in name)
    return name if is_one else None


def attempts_of(letter: DeadLetter, offset: float) -> tuple[Attempt, ...]:
    """The attempts of all its runs, as far as they bear on sending it again.

    *offset*: from seconds since the epoch to those of the clock by which it is sent.
    """
    records = (record for run in letter.runs for record in run.attempts)
    return tuple(_attempt(record, offset) for record in records)


def _attempt(record: Mapping[str, object], offset: float) -> Attempt:
    start, status, outcome = record.get("start"), record.get("status"), record.get("outcome")
    # What cannot be read is long past: no key is trusted to be remembered.
    began = start + offset if isinstance(start, float | int) else -math.inf
    attempt = Attempt(0, str(record.get("upstream", "")), began)
    attempt.url = str(record.get("url", ""))
    attempt.sent = record.get("sent") is not False
    attempt.status = status if isinstance(status, int) else 0
    attempt.kind = _KINDS.get(str(outcome))
    return attempt


_KINDS = {kind.value: kind for kind in FailureKind}


def headers_to_keep(
    headers: RawHeaders, never: frozenset[bytes], drop: frozenset[str]
) -> tuple[RawHeaders, tuple[str, ...]]:
    """The fields that a letter keeps, and the names of those that are dropped.

    *never*: those between two hops, in lower case. Nobody is told of them.
    """
    kept, dropped = [], dict[str, None]()
    for name, value in headers:
        lower = name.lower()
        if lower in never:
            continue
        if lower.decode("latin-1") in drop:
            dropped[name.decode("latin-1")] = None
        else:
            kept.append((name, value))
    return tuple(kept), tuple(dropped)


def sent_of(headers: RawHeaders, names: frozenset[str]) -> bytes:
    """What *headers* have of the fields *names* (in lower case), in a form to compare."""
    found = [
        (name.lower(), value)
        for name, value in headers
        if name.lower().decode("latin-1") in names and value
    ]
    return b"\n".join(b"%b:%b" % field for field in sorted(found))


def with_headers(headers: RawHeaders, given: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """*headers* with those that are *given* in place of those of the same names."""
    given = tuple(given)
    names = {name.lower() for name, _ in given}
    return (*(field for field in headers if field[0].lower() not in names), *given)
