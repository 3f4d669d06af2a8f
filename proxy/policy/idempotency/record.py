"""The record of one idempotency key: its states, and the rules by which they change.

::

    nothing ──claim──► in flight ──settle──► done       duplicates get the result
       ▲                 │  ▲                unstored   it ran, and its result is not available
       │                 │  └──renew         held       it may have run: an operator decides
       └─────────────────┘
          settle: free again
          revoke: held, by an operator

An owner has a token of its own, and a lease that it renews. A request with another token
cannot change the record; a request that finds a lease that has ended takes the key over,
or leaves it to an operator.

A record is forgotten ``ttl`` after its end. While its lease lasts it has not ended, whatever
the date is; the record of an owner that died ended when its lease did.

Every store follows these rules. ``memory`` and ``sqlite`` call the functions below,
each in one atomic step; ``redis`` has them as scripts.

The values are named tuples, which are made four times as fast as frozen dataclasses: each
request with a key makes five of them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

make = tuple.__new__
"""Makes a named tuple, of all its fields, in a third of the time that calling its class takes."""

LEFT_FOR = 10.0
"""Seconds for which the outcome of a key that was set free is kept for the requests that waited for
it."""


ENQUEUES = "enqueues-"
"""Begins the token of an owner that sends nothing before its request is on disk as a delivery.

Whoever finds that its lease has ended takes the key over, whatever the terms: the file of the
deliveries tells whether there is one. Keys with such owners are never in Redis.
"""


class RecordState(StrEnum):
    """The state of a key's record."""

    IN_FLIGHT = "in_flight"
    DONE = "done"
    UNSTORED = "unstored"
    HELD = "held"


class ClaimAnswer(StrEnum):
    """The store's answer to a request that claims a key."""

    NEW = "new"
    """The key is the claimer's."""
    BUSY = "busy"
    """Another request owns the key."""
    DONE = "done"
    """The request has run, and the result comes with the answer."""
    UNSTORED = "unstored"
    """The request has run, and its result is not available."""
    HELD = "held"
    """The request may have run, and its outcome is not known."""
    MISMATCH = "mismatch"
    """The key was used for another request."""
    LEFT = "left"
    """The owner that the claimer waited for has set the key free; its outcome comes with the
    answer."""
    FULL = "full"
    """There is no space for another key."""


class Claim(NamedTuple):
    """A request's claim to a key: for which request, and on which terms."""

    name: str
    """Name of the record: a digest, in hexadecimal."""
    owner: str
    """Token of the claiming request."""
    fingerprint: bytes
    """Fingerprint of the request: 32 bytes."""
    route: str
    lease: float
    ttl: float
    takes_over: bool
    """Whether it may take over a key whose owner's lease has ended."""
    waited_for: str = ""
    """Token of the owner whose outcome the claimer has waited for, if it has."""
    caller: str = ""
    """Whose share of the space the record takes: a scope that is known, or an address."""
    scope: str = ""
    """Digest of the caller's scope; empty: the request states none."""


class Claimed(NamedTuple):
    """A store's answer to a claim."""

    answer: ClaimAnswer
    owner: str = ""
    """Token of the present owner, with BUSY."""
    lease_left: float = 0.0
    """Seconds until the present owner's lease ends, unless it is renewed."""
    result: bytes = b""
    """With DONE and LEFT; empty: it is large, and fetched apart from the claim."""


class Ending(NamedTuple):
    """What becomes of a key when its owner has finished."""

    state: RecordState | None
    """None: the key is free again."""
    ttl: float
    result: bytes = b""
    """With DONE, what all duplicates get. Else what the requests get that waited for the owner;
    empty: nothing, and they may claim the key themselves."""
    caller: str = ""
    """Whose share of the space the record takes from now on; empty: that does not change."""


class Record(NamedTuple):
    """The record of a key. Times are seconds of the store's own clocks."""

    state: RecordState
    owner: str
    fingerprint: bytes
    route: str
    created: float
    """When it was claimed."""
    lease_until: float
    expires: float
    result: bytes = b""
    caller: str = ""
    """Whose share of the space it takes."""
    waits: bool = False
    """Whether a request was told that the key is busy, and may wait for its outcome."""

    def is_leased(self, now: float) -> bool:
        """Tell whether the owner still counts as alive: its lease has not ended."""
        return self.state is RecordState.IN_FLIGHT and now < self.lease_until

    def has_expired(self, *, now: float, wall: float) -> bool:
        """Tell whether the record counts no longer. A lease keeps it, whatever *wall* is."""
        return self.expires <= wall and not self.is_leased(now)


@dataclass(frozen=True, slots=True)
class Shown:
    """A key's record as an operator sees it."""

    state: RecordState
    """HELD, too, for a key that was in flight when its owner's lease ended."""
    route: str
    created: float
    expires: float
    """Seconds since the epoch."""
    lease_left: float
    """Seconds; 0 unless it is in flight."""
    size: int
    """Bytes of the result that is kept."""


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Which records an operator asks for."""

    states: frozenset[RecordState]
    """As :class:`Shown` has them: a key whose owner's lease has ended is held."""
    route: str | None = None
    """None: those of all routes."""

    def accepts(self, shown: Shown) -> bool:
        """Tell whether the record is one of those."""
        return shown.state in self.states and self.route in {None, shown.route}


@dataclass(frozen=True, slots=True)
class KeyPage:
    """Some of the records that an operator asked for: a store looks at so many at a time."""

    records: tuple[tuple[str, Shown], ...]
    """Names and records. There may be none in a page that is not the last one."""
    after: str
    """Where the next page begins; empty: this is the last one."""


PAGE = 1_000
"""Records that a page has, more or less: some stores return a few more."""
LOOKED_AT = 10_000
"""Records that a store looks at for one page, more or less."""


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """How far back a store remembers, where it has a bound that makes it forget."""

    known: int
    """Keys that have a record."""
    held: int
    """Those of them whose outcome is not known."""
    oldest: float | None
    """Seconds since the oldest was claimed that has ended; None without one."""


def shown(record: Record, *, now: float) -> Shown:
    """Describe *record* for an operator."""
    is_leased = record.is_leased(now)
    lease_ended = record.state is RecordState.IN_FLIGHT and not is_leased
    return Shown(
        RecordState.HELD if lease_ended else record.state,
        record.route,
        record.created,
        record.expires,
        record.lease_until - now if is_leased else 0.0,
        len(record.result),
    )


@dataclass(frozen=True, slots=True)
class Released:
    """The result of an operator's command to set a key free."""

    was: Shown | None
    """None: the key had no record."""
    now: Shown | None
    """None: it is free. In flight, if it was and stays so."""


YOURS = Claimed(ClaimAnswer.NEW)

# speed: a name of the module instead of a member of an enum, 12 instead of 102 ns each with Python
# 3.11; no rule is said twice
_IN_FLIGHT, _DONE = RecordState.IN_FLIGHT, RecordState.DONE


def claim(record: Record | None, ask: Claim, *, now: float, wall: float) -> tuple[Record, Claimed]:
    """Return the record after the claim *ask*, and the answer to it.

    Leases are in seconds of *now*, the monotonic clock; the rest of a record's times are in seconds
    of *wall*, which can be set.
    """
    if record is None or record.has_expired(now=now, wall=wall):
        return new_record(ask, now=now, wall=wall), YOURS
    if record.fingerprint != ask.fingerprint:
        return record, Claimed(ClaimAnswer.MISMATCH)
    if record.state is not RecordState.IN_FLIGHT:
        return record, Claimed(ClaimAnswer(record.state.value), result=record.result)
    if record.is_leased(now):
        busy = Claimed(ClaimAnswer.BUSY, record.owner, record.lease_until - now)
        return record if record.waits else record._replace(waits=True), busy
    if ask.takes_over or record.owner.startswith(ENQUEUES):
        return new_record(ask, now=now, wall=wall), YOURS
    return record, Claimed(ClaimAnswer.HELD)


def new_record(ask: Claim, *, now: float, wall: float) -> Record:
    """Return the record of a key that *ask* is the owner of."""
    _, owner, fingerprint, route, lease, ttl, _, _, caller, _ = ask
    # The lease alone would not do: after a crash the key would look as if it had never been used.
    return make(
        Record,
        (
            _IN_FLIGHT,
            owner,
            fingerprint,
            route,
            wall,
            now + lease,
            wall + lease + ttl,
            b"",
            caller,
            False,
        ),
    )


def is_owned(record: Record | None, owner: str) -> bool:
    """Tell whether *owner* may still decide what becomes of the key."""
    return record is not None and record.state is RecordState.IN_FLIGHT and record.owner == owner


def settle(record: Record, ending: Ending, *, wall: float) -> Record | None:
    """Return the record once its owner has finished; None: there is none any more."""
    state, ttl, result, moves_to = ending
    if state is None:
        return None
    # The key has no owner any more: what was the owner's need not be kept.
    _, _, fingerprint, route, created, _, _, _, caller, _ = record
    return make(
        Record,
        (
            state,
            "",
            fingerprint,
            route,
            created,
            0.0,
            wall + ttl,
            result if state is _DONE else b"",
            moves_to or caller,
            False,
        ),
    )


def revoke(record: Record) -> Record:
    """Return the record of a key taken from its owner: how far that one got is not known."""
    return record._replace(state=RecordState.HELD, owner="", lease_until=0.0, waits=False)


def renew(record: Record, lease: float, ttl: float, *, now: float, wall: float) -> Record:
    """Return the record of an owner that is still alive: lease and ttl begin anew."""
    return record._replace(lease_until=now + lease, expires=wall + lease + ttl)
