"""The commands about one bucket, with the arguments that the scripts take."""

from proxy.stores.redis.lease_terms import LeaseTerms
from proxy.stores.redis.link import HEARTBEAT_TIMEOUT, Answer, Link
from proxy.stores.redis.scripts import CONCURRENCY, PERMITS

ROTATE_AFTER = 0.2
"""Seconds after which a slot rotates for which several instances wait."""


class PermitCommands:
    """Sends the commands of one bucket over the link."""

    __slots__ = ("_bucket", "_channel", "_holder", "_instance", "_prefix", "link")

    def __init__(self, link: Link, prefix: str, bucket: str, instance: str, number: int) -> None:
        """Send them for *bucket*; *number* tells apart the limiters of one instance for it."""
        self.link = link
        self._prefix = prefix
        self._bucket = bucket
        self._instance = instance
        self._holder = f"{instance}.{number}"
        self._channel = pause_channel(prefix)

    def __repr__(self) -> str:
        return self._key

    @property
    def _key(self) -> str:
        return f"{self._prefix}:{self._bucket}"

    def take(self, want: int, terms: LeaseTerms, answer: Answer) -> None:
        """Request *want* permits; the answer tells of a pause, too."""
        self._permits("take", terms, answer, want=want)

    def report_sent(
        self, sent: int, seconds: float, last_ago: float, terms: LeaseTerms, answer: Answer
    ) -> None:
        """Report calls that were sent without the store, within *seconds*; *last_ago* the last."""
        alone = (sent, _microseconds(seconds), _microseconds(last_ago))
        self._permits("take", terms, answer, alone=alone)

    def pause(self, seconds: float, terms: LeaseTerms, answer: Answer) -> None:
        """Close the bucket, and publish that to all instances."""
        self._permits("pause", terms, answer, pause=seconds)

    def _permits(
        self,
        operation: str,
        terms: LeaseTerms,
        answer: Answer,
        *,
        want: int = 0,
        pause: float = 0.0,
        alone: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        args: tuple[str | int, ...] = (want, _microseconds(pause))
        args += (_microseconds(terms.longest_pause), _microseconds(terms.ahead))
        args += (self._channel, self._instance, self._bucket, *alone, *terms.rates)
        self.link.call(operation, PERMITS, self._key, args, answer)

    def report(self, kept: int, wanted: int, limit: int, answer: Answer) -> None:
        """Report how many slots we keep, and how many of the limit we could use."""
        lease, rotate_after = _microseconds(HEARTBEAT_TIMEOUT), _microseconds(ROTATE_AFTER)
        args = (self._holder, kept, wanted, limit, lease, rotate_after)
        self.link.call("places", CONCURRENCY, self._key, args, answer)


def pause_channel(prefix: str) -> str:
    """Return the channel on which pauses are published, for all buckets."""
    return f"{prefix}:pauses"


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
