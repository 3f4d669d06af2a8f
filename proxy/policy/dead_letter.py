"""Dead letters: requests that failed for good, kept for an operator to inspect and replay.

Here is decided which failures become dead letters, what is kept of the request, and when a
dead letter may be replayed without ``force``. A dead letter says itself whether its request may
have run: an operator should not have to find that out from a list of attempts at three in the
morning.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from proxy.http.fields import RawHeaders
from proxy.http.refusal import RefusalReason
from proxy.policy.attempt import FIRST_FAILURE, Attempt, FailureKind
from proxy.policy.failure_answers import ANSWERS
from proxy.policy.failure_category import FailureCategory
from proxy.policy.retry.verdict import AttemptResult, is_listed
from proxy.policy.settings import REFUSALS, DeadLetterSettings, UpstreamSettings

FAILED = {refusal.reason: kind for kind, refusal in ANSWERS.items()}
"""Answers of the proxy's own that stand for a failed attempt, with its failure kind.

All others are refusals: the request was not wanted, now or at all, and its client knows."""

REFUSED = frozenset(
    {
        RefusalReason.THROTTLED,
        RefusalReason.BREAKER_OPEN,
        RefusalReason.STORE,
        RefusalReason.OVERLOAD,
        RefusalReason.DRAINING,
        # Before any attempt: the whole timeout passed while it waited in the proxy.
        RefusalReason.TIMEOUT,
    }
)
"""Refusals that say nothing against the request: at another time it would have been sent.

Not among them: what is wrong with the request itself, and what a duplicate is answered."""


class DeadLetterRules:
    """Which requests of a route become dead letters."""

    def __init__(self, settings: DeadLetterSettings, upstream: UpstreamSettings) -> None:
        self._methods = settings.methods
        self._on = settings.on
        self._refused = upstream.refused
        self.keeps_refusals = REFUSALS in settings.on.names
        """Whether a request that the proxy refused without an attempt becomes one, too."""

    def may_want(self, method: str, *, is_tunnel: bool) -> bool:
        """Whether a request of this kind becomes a dead letter if it fails."""
        return method in self._methods and not is_tunnel

    def heeds_hint(self, status: int) -> bool:
        """Whether the retry hint of a response with *status* matters for the decision."""
        return status in self._on.hinted

    def wants(self, result: AttemptResult) -> bool:
        """Whether a request that :meth:`may_want` admits becomes one after its last *result*."""
        kind = result.kind
        if kind is None:
            return result.status >= FIRST_FAILURE and is_listed(self._on, result, self._refused)
        return kind not in {FailureKind.CANCELLED, FailureKind.TRUNCATED}


class DeadLetterState(StrEnum):
    """The state of a dead letter."""

    WAITING = "waiting"  # for an operator
    REPLAYING = "replaying"  # a replay is under way
    UNCERTAIN = "uncertain"  # its replay died with the process: it may or may not have been sent


class Missing(StrEnum):
    """Why a dead letter has no body, though its request had one."""

    TOO_LARGE = "body_too_large"
    BUFFER_FULL = "buffer_full"
    INCOMPLETE = "incomplete"  # the request failed before all of its body had arrived


class ReplayResult(StrEnum):
    """How a replay ended; the values are metric labels, too."""

    SUCCEEDED = "succeeded"  # the dead letter is deleted
    ALREADY_DONE = "already_done"  # its key has a good result: nothing was sent, and it is deleted
    FAILED = "failed"  # the upstream did not do it, or it is unknown whether it did
    REFUSED = "refused"  # by the proxy, before anything was sent: a limit, a breaker, a key
    INTERRUPTED = "interrupted"  # the proxy was shut down

    @property
    def is_good(self) -> bool:
        """Whether the dead letter is deleted: its request is done."""
        return self in {ReplayResult.SUCCEEDED, ReplayResult.ALREADY_DONE}


class Obstacle(StrEnum):
    """Why a dead letter is not replayed; the values are problem types of the admin listener."""

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
    """A dead letter as a list shows it: everything but headers, body and attempts."""

    id: str
    created: float
    """Seconds since the epoch, like all times of a dead letter."""
    expires: float
    route: str
    method: str
    target: str
    request_id: str
    error: str
    """How the request failed: a failure kind or a status; if it was refused, the reason."""
    category: FailureCategory
    verdict: str
    """Why no further attempt was made, as in the access log; empty on a route without retries."""
    used: int
    """Attempts of the last run."""
    allowed: int
    """Attempts that the route allowed."""
    may_have_run: bool
    state: DeadLetterState
    replays: int
    """Number of replays that failed."""
    size: int
    """Bytes of the body that is kept."""
    missing: Missing | None
    """Why the body is missing; None if it is kept, or if there was none."""
    caller: str = ""
    """Tells callers apart: a digest of the values of the *credentials* that the request was sent
    with; empty if it had none of them."""
    credentials: tuple[str, ...] = ()
    """Names, in lower case, of the fields by which the route tells callers apart: those that are
    not kept, and those of the scope of its idempotency keys."""

    def obstacle(self, *, force: bool) -> Obstacle | None:
        """Return why it must not be replayed, now or without *force*; None if it may be."""
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
    """The first run of a request, or one replay: all its attempts, never merged with others."""

    time: float
    result: str
    """``failed`` or ``refused`` for the first run; else how the replay ended."""
    attempts: tuple[Mapping[str, object], ...]
    """One record per attempt, as in the access log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Everything that is kept of a request that failed for good."""

    summary: DeadLetterSummary
    headers: RawHeaders
    """End-to-end fields as received, less those that are not kept."""
    dropped: tuple[str, ...]
    """Names of the received fields that were not kept."""
    body: bytes
    peer: str
    """The client's address."""
    scheme: str
    """The scheme of the client's connection: http or https."""
    record: str
    """The name of the record of its idempotency key; empty without one. A replay goes under this
    name, whichever operator sends it: a key belongs to the caller that sent it first."""
    fallback: str
    """The fallback upstream that was tried afterwards; ``-``: a fixed answer was given."""
    runs: tuple[ReplayRun, ...]
    holder: str = ""
    """The caller whose fair share of the disk it takes (:mod:`proxy.policy.fair_share`)."""

    @property
    def id(self) -> str:
        return self.summary.id


@dataclass(frozen=True, slots=True)
class Replayed:
    """The outcome of one replay of a dead letter."""

    dead_letter_id: str
    route: str
    result: ReplayResult
    error: str
    """How the replay failed: a failure kind, a status, or a refusal's reason; empty if it did
    not."""
    status: int
    """Status of the upstream's response, or of the answer that a client would have got instead."""
    detail: str
    """What the operator can do about it."""
    record: str
    """The name of the idempotency record that refused the replay; empty if none did."""
    attempts: int
    may_have_run: bool


@dataclass(frozen=True, slots=True)
class DeadLetterCounts:
    """Counts of the dead letters of one route."""

    waiting: int
    """All dead letters."""
    replayable: int
    """Those that may be replayed without ``force``."""
    size: int
    """Bytes that all of them take."""
    oldest: float
    """When the oldest one was written, in seconds since the epoch."""


def dead_letter_id(milliseconds: int, random_bits: int, latest: str = "") -> str:
    """Make an id of twenty hexadecimal digits: ids sort by time, and no two are alike.

    *random_bits* is a random number of 36 bits. Of *latest*, which was made before, the id is the
    successor if both are of one millisecond: by a step of up to 24 bits, which cannot be guessed.
    """
    if latest and 0 <= (int(latest, 16) >> 36) - milliseconds <= 1:  # a step may reach the next one
        return f"{int(latest, 16) + 1 + (random_bits >> 12):020x}"
    return f"{milliseconds:011x}{random_bits:09x}"


DELIVERY_PREFIX = "d_"
"""What the id of a delivery begins with, and that of its dead letter if it fails."""
_DELIVERY_ID = 24
_BASE64_URL = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def read_dead_letter_id(text: str) -> str | None:
    """Parse an id that an operator typed, in any case; None if it cannot be one.

    That of a delivery is taken as it is: its letters have two cases.
    """
    if text.startswith(DELIVERY_PREFIX):
        return read_delivery_id(text)
    name = text.lower()
    is_one = len(name) == 20 and all(digit in "0123456789abcdef" for digit in name)
    return name if is_one else None


def read_delivery_id(text: str) -> str | None:
    """Return the id of a delivery as it is; None if *text* cannot be one."""
    is_long_enough = text.startswith(DELIVERY_PREFIX) and len(text) == _DELIVERY_ID
    return text if is_long_enough and _BASE64_URL.issuperset(text) else None


def attempts_of(dead_letter: DeadLetter, offset: float) -> tuple[Attempt, ...]:
    """Restore the attempts of all runs of *dead_letter*, as far as they matter for its replay.

    *offset* converts seconds since the epoch to those of the clock by which it is replayed.
    """
    records = (record for run in dead_letter.runs for record in run.attempts)
    return tuple(restored_attempt(record, offset) for record in records)


def restored_attempt(record: Mapping[str, object], offset: float = 0.0) -> Attempt:
    """Restore an attempt from its *record*, as far as it matters for the next one."""
    start, status, outcome = record.get("start"), record.get("status"), record.get("outcome")
    # An unreadable time counts as long past: no upstream is trusted to remember the key.
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
    """Return the fields that a dead letter keeps, and the names of those in *drop* that it had.

    *never* are hop-by-hop fields, in lower case: neither kept nor listed as dropped.
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


def credentials_sent(headers: RawHeaders, names: frozenset[str]) -> bytes:
    """Return the values that *headers* have for *names* (in lower case), in a comparable form."""
    found = [
        (name.lower(), value)
        for name, value in headers
        if name.lower().decode("latin-1") in names and value
    ]
    return b"\n".join(b"%b:%b" % field for field in sorted(found))


def with_headers(headers: RawHeaders, given: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return *headers* with the *given* fields in place of those of the same names."""
    given = tuple(given)
    names = {name.lower() for name, _ in given}
    return (*(field for field in headers if field[0].lower() not in names), *given)
