"""What becomes of a key when its request has ended, and what is kept of a response.

====================  ==================================================================
*kept*                duplicates get this response
*unstored*            it ran, but its response cannot be given again: too large, a stream
                      of events, or broken off after its head
*ambiguous*           it may have run, and there is nothing to keep: ``on_ambiguous``
*free*                it did not run, or the upstream rejected the message itself
====================  ==================================================================

``repeatable.py`` decides whether an attempt may have run.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from proxy.policy.attempt import FIRST_FAILURE, Attempt, FailureKind
from proxy.policy.idempotency.record import RecordState
from proxy.policy.repeatable import may_have_run
from proxy.policy.settings import AmbiguousKeys, IdempotencySettings


class KeyOutcome(StrEnum):
    """What becomes of a key."""

    KEPT = "kept"
    UNSTORED = "unstored"
    AMBIGUOUS = "ambiguous"
    FREE = "free"


def outcome_of_key(
    settings: IdempotencySettings,
    status: int,
    attempts: Sequence[Attempt],
    refused: Mapping[str, frozenset[int]],
    *,
    fell_back: bool = False,
) -> KeyOutcome:
    """Decide what becomes of the key when the client got *status*; 0 if it came from no upstream.

    All attempts count: one that was refused says nothing about the one before it, which timed out.
    *refused*: by the name of each upstream the statuses by which it says that it did not do the
    work. *fell_back*: what the client got came from elsewhere, and is never kept.
    """
    if fell_back:
        # The other upstream has done it if its status says so, and that is not kept either.
        last = attempts[-1] if attempts else None
        if last is not None and last.kind is None and last.status < FIRST_FAILURE:
            return KeyOutcome.AMBIGUOUS
    elif status in settings.keep:
        # A request that was handed off has its answer without an attempt.
        is_cut = bool(attempts) and attempts[-1].kind is FailureKind.TRUNCATED
        return KeyOutcome.UNSTORED if is_cut else KeyOutcome.KEPT
    ambiguous = any(may_have_run(attempt, refused[attempt.upstream]) for attempt in attempts)
    return KeyOutcome.AMBIGUOUS if ambiguous else KeyOutcome.FREE


def state_after(outcome: KeyOutcome, settings: IdempotencySettings) -> RecordState | None:
    """Return the state of the record from then on; None: the key is free."""
    if outcome is KeyOutcome.AMBIGUOUS and settings.on_ambiguous is _HOLD:
        return RecordState.HELD
    return _STATES.get(outcome)


_HOLD = AmbiguousKeys.HOLD
_STATES = {KeyOutcome.KEPT: RecordState.DONE, KeyOutcome.UNSTORED: RecordState.UNSTORED}


def is_stream_of_events(head: bytes) -> bool:
    """Tell whether a response with this head goes on for as long as the client listens."""
    return _events(head) is not None


_events = re.compile(rb"\r\ncontent-type:[ \t]*text/event-stream", re.IGNORECASE).search


def head_to_keep(head: bytes, *, lasts: bool) -> bytes:
    """Return the status line and those fields of *head* that a duplicate gets, too.

    A cookie belongs to one session, and is never given to another. A response that *lasts* for the
    time of a key also leaves out what was true of one moment.
    """
    return (_of_the_moment if lasts else _of_the_session)(b"", head)


def _fields(*names: bytes) -> Callable[[bytes, bytes], bytes]:
    """Return a substitution of all fields of these names, each of which may be a pattern."""
    # speed: same as without the look-ahead, held by tests/policy/idempotency/test_retention.py;
    # most fields are told from these by one letter, which saves a third of the time
    beginnings = bytes({name[0] for name in names})
    pattern = rb"\r\n(?=[%b])(?:%b):[^\r\n]*" % (beginnings, b"|".join(names))
    return re.compile(pattern, re.IGNORECASE).sub


_SESSION = (b"set-cookie2?", b"idempotent-replayed")
_of_the_session = _fields(*_SESSION)
_of_the_moment = _fields(
    *_SESSION,
    b"age",
    b"alt-svc",
    b"retry-after",
    b"server-timing",
    b"trace(?:parent|state|response)",
    b"ratelimit[^:\r\n]*",
    b"x-ratelimit[^:\r\n]*",
)
