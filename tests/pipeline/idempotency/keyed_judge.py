"""Judges from outside what became of a key. It shares no code with the proxy.

It knows what the upstream read and said, what the proxy logged of its attempts, and what the test
did meanwhile to the store and to the clocks. A second call is right only where a window of *What
is promised* (``docs/explanation/promises.md``) was open, and of these the scripts can enter:

-   ``on_ambiguous: release`` after a call that may have run (:func:`may_have_run`), be it that its
    answer came too late for its attempt (:attr:`Facts.gave_up`);
-   an instance that stood still, or was cut off from the store, for longer than ``lease``
    (:meth:`_Pair.lease_may_have_ended`);
-   a request that took longer than ``ttl`` (:attr:`_Pair.lost_its_key_to_ttl`);
-   a ``ttl`` that is over, by the date as it was set (:attr:`_Pair.is_forgotten`).

Times are those that the upstream and the access log noted, with a margin of 0.1 s; how long
something should take decides only the second of these, which a very busy machine may widen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

from tests.pipeline.idempotency.keyed_scripts import (
    ATTEMPT_TIMEOUT,
    TIMEOUT,
    Arrival,
    Policy,
    Script,
)

NOT_KEPT = {304, 401, 403, 407, 408, 409, 421, 425, 429}
"""Statuses below 500 after which the key is free: nothing was done."""
NOT_IMPLEMENTED = {501, 505}

RENEWED_WITHIN = 0.4
"""Of a lease: it does not end unless two renewals fail, each a third of it after the last."""
MARGIN = 0.1
"""Seconds between two timers of one loop that are surely served in their order."""

Span = tuple[float, float]
"""From when to when."""


@dataclass
class Hardships:
    """What was done to all scripts together."""

    leases_end: bool = True
    """Whether another instance could have a key whose lease was not renewed."""
    date_counts: bool = True
    """Whether the store goes by the date of this machine."""
    dates: list[tuple[float, float]] = field(default_factory=list)
    """When the date was set, and by how much it was wrong from then on."""
    cut_off: list[Span] = field(default_factory=list)
    """The store answered nobody."""
    hard: list[Span] = field(default_factory=list)
    """It may not have answered, or nothing ran in this process."""
    down: list[Span] = field(default_factory=list)
    """An instance took it for down, so it renewed nothing before it looked again."""

    def longest_step(self, begin: float, end: float) -> float:
        """Seconds by which the store's date moved on at most between two moments of this span."""
        lowest = error = self.dates_error(begin)
        moved = end - begin
        most = moved
        if self.date_counts:
            for at, error in self.dates:
                if begin < at <= end:
                    most = max(most, moved + error - lowest)
                    lowest = min(lowest, error)
        return most

    def dates_error(self, moment: float) -> float:
        """By how much the date was wrong at that moment."""
        error = 0.0
        for at, new in self.dates:
            if at > moment:
                break
            error = new
        return error

    @cached_property
    def _spans(self) -> list[Span]:
        """All of them, once each, in order; asked for when nothing is done any more."""
        spans: list[Span] = []
        for since, until in sorted(self.hard + self.cut_off + self.down):
            if spans and since <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(until, spans[-1][1]))
            else:
                spans.append((since, until))
        return spans

    def hard_for(self, begin: float, end: float) -> float:
        """Seconds of this span in which a lease may not have been renewed."""
        return sum(max(0.0, min(end, until) - max(begin, since)) for since, until in self._spans)

    def hardest(self, begin: float, end: float, length: float) -> float:
        """The same for the worst *length* seconds of a span."""
        ends = [until for _, until in self._spans if begin < until < end]
        return max(self.hard_for(max(until - length, begin), until) for until in (*ends, end))


@dataclass
class Facts:
    """What is known besides what the upstream noted."""

    hardships: Hardships = field(default_factory=Hardships)
    attempts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By X-Request-Id: what the proxy logged of them; nothing of requests without any trouble."""

    def gave_up(self, script: Script, arrival: Arrival) -> bool:
        """Whether the proxy may have stopped waiting for the answer, its time being over."""
        made = self._attempts_at(script, arrival)
        return any(_ran_out_of_time(attempt) for attempt in made)

    def heard(self, script: Script, arrival: Arrival) -> int:
        """The status that the proxy heard; 0: none. That of the script, where that is not known."""
        made = self._attempts_at(script, arrival)
        if len(made) == 1 and _ran_out_of_time(made[0]):
            return 0
        return arrival.fate.status

    def _attempts_at(self, script: Script, arrival: Arrival) -> list[dict[str, Any]]:
        """The attempt that arrived, as it was logged; several, if it may be any of them."""
        made = [one for one in self.attempts.get(arrival.caller, []) if one["sent"]]
        came = [one for one in script.arrivals if one.caller == arrival.caller]
        return [made[came.index(arrival)]] if len(made) == len(came) else made


def _ran_out_of_time(attempt: dict[str, Any]) -> bool:
    """Whether an attempt ended in a timeout, and not before its time or its request's was over."""
    lasted: bool = attempt["ms"] >= 990 * ATTEMPT_TIMEOUT
    was_last: bool = attempt["start_ms"] + attempt["ms"] >= 990 * TIMEOUT
    return attempt["outcome"] == "timeout" and (lasted or was_last)


def was_kept(arrival: Arrival) -> bool:
    """Whether the upstream gave a whole answer that is the result for good."""
    return arrival.fate.whole and is_final(arrival)


def is_final(arrival: Arrival) -> bool:
    """Whether nothing may run afterwards: cut short it cannot be replayed, but it has run."""
    return 200 <= arrival.fate.status < 500 and arrival.fate.status not in NOT_KEPT


def may_have_run(policy: Policy, status: int) -> bool:
    """Whether nobody knows if the call had an effect, by the status that was heard."""
    if status in policy.refused or status in NOT_KEPT or status in NOT_IMPLEMENTED:
        return False
    return status == 0 or status >= 500


@dataclass(frozen=True)
class _Pair:
    """Two calls of one key, one after the other."""

    script: Script
    facts: Facts
    before: Arrival
    after: Arrival

    @property
    def policy(self) -> Policy:
        return self.script.policy

    @property
    def is_retry(self) -> bool:
        """Whether the proxy sent it again for the same caller."""
        return self.before.caller == self.after.caller

    @property
    def gave_up(self) -> bool:
        return self.facts.gave_up(self.script, self.before)

    @property
    def sent(self) -> float:
        """When the owner of the first call asked for it, at the earliest."""
        return self.script.sent.get(self.before.caller, self.before.at)

    @property
    def lease_may_have_ended(self) -> bool:
        """Whether nobody may have renewed the first one's lease for as long as it takes."""
        lease = self.policy.lease
        if not self.facts.hardships.leases_end:
            return False
        hard = self.facts.hardships.hardest(self.before.at - lease, self.after.at, lease)
        return hard >= lease * RENEWED_WITHIN

    @property
    def lost_its_key_to_ttl(self) -> bool:
        """Whether the time of the first one was over before its answer was there."""
        over = self.sent + self.policy.ttl
        late = self.facts.hardships.hard_for(self.before.at, self.after.at)
        return self.after.at >= over and self.before.over + MARGIN + late >= over

    @property
    def is_forgotten(self) -> bool:
        """Whether ``ttl`` has passed since the first one ended."""
        ended = min(self.before.over, self.sent + self.policy.ttl)
        if self.gave_up or self.lease_may_have_ended:
            ended = min(ended, self.before.at)
        ended = min(ended, self.after.at)
        moved = self.facts.hardships.longest_step(ended, self.after.at)
        return moved >= self.policy.ttl

    @property
    def is_free(self) -> bool:
        """Whether another may have had the key though the first one has a result, or is at it."""
        if self.is_forgotten:
            return True
        released = self.gave_up or self.lease_may_have_ended or self.lost_its_key_to_ttl
        return self.policy.releases and released

    def complaints(self) -> Iterator[str]:
        policy, before, after = self.policy, self.before, self.after
        may_repeat = policy.honours_key and self.is_retry
        if is_final(before) and not self.is_free:
            yield f"a call after {before.fate.status}"
        heard = self.facts.heard(self.script, before)
        if may_have_run(policy, heard) and not may_repeat:
            if self.is_retry:
                yield "sent again, though it may have run"
            elif not policy.releases and not self.is_forgotten:
                yield "a call after one that may have run, though the key is held"
        if after.at < before.over and not self.is_free:
            yield "two calls at once"
        if self.is_retry:
            yield from self._sent_too_late()

    def _sent_too_late(self) -> Iterator[str]:
        """Nothing is sent by an owner that has lost its key."""
        policy, before, after = self.policy, self.before, self.after
        first = next(one for one in self.script.arrivals if one.caller == before.caller)
        if before.over > first.at + policy.ttl + MARGIN:
            yield "sent again after its ttl"
        for since, until in self.facts.hardships.cut_off:
            if since + policy.lease < before.over and after.at < until:
                yield "sent again after its lease"


def complaints(script: Script, facts: Facts) -> Iterator[str]:
    """What is wrong with what the upstream saw of a key, and with what its callers got."""
    for before, after in combinations(script.arrivals, 2):
        yield from _Pair(script, facts, before, after).complaints()
    yield from _wrong_answers(script)


def _wrong_answers(script: Script) -> Iterator[str]:
    """Every caller who got an upstream's answer got one of this key's, and all the same one."""
    said = {(a.fate.status, a.receipt) for a in script.arrivals}
    kept = {(a.fate.status, a.receipt) for a in script.arrivals if was_kept(a)}
    for response in script.seen:
        if "proxy-status" in response.names:
            continue
        if response.status in {204, 205}:
            if response.body:
                yield "a body where none may be"
            continue
        if not response.complete:
            continue
        receipt = response.body.removeprefix(b"receipt ").partition(b" ")[0]
        if (response.status, receipt) not in said:
            yield f"somebody else's answer: {response.status} {response.body[:40]!r}"
        if response.status < 400 and kept and (response.status, receipt) not in kept:
            yield "a result that was not kept"
