"""What is asked of the store for one bucket, as the scripts want it put."""

from proxy.stores.redis.lease_terms import LeaseTerms
from proxy.stores.redis.link import SILENCE, Answer, Link
from proxy.stores.redis.scripts import PERMITS, PLACES

TURN = 0.2
"""Seconds after which a place goes round for which several instances wait."""


class PermitCommands:
    """Puts the questions of one bucket to the link."""

    __slots__ = ("_bucket", "_channel", "_holder", "_instance", "_prefix", "link")

    def __init__(self, link: Link, prefix: str, bucket: str, instance: str, number: int) -> None:
        """*number* tells apart those that one instance had for the same bucket, in turn."""
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
        """Get so many permits, and hear of a pause."""
        self._permits("take", terms, answer, want=want)

    def own_up(self, sent: int, seconds: float, terms: LeaseTerms, answer: Answer) -> None:
        """Tell of calls that were sent without the store, in so many seconds."""
        self._permits("take", terms, answer, alone=(sent, _microseconds(seconds)))

    def pause(self, seconds: float, terms: LeaseTerms, answer: Answer) -> None:
        """Close the bucket, and tell everybody."""
        self._permits("pause", terms, answer, pause=seconds)

    def _permits(
        self,
        operation: str,
        terms: LeaseTerms,
        answer: Answer,
        *,
        want: int = 0,
        pause: float = 0.0,
        alone: tuple[int, int] = (0, 0),
    ) -> None:
        args: tuple[str | int, ...] = (want, _microseconds(pause))
        args += (_microseconds(terms.longest_pause), _microseconds(terms.ahead))
        args += (self._channel, self._instance, self._bucket, *alone, *terms.rates)
        self.link.call(operation, PERMITS, self._key, args, answer)

    def report(self, kept: int, wanted: int, limit: int, answer: Answer) -> None:
        """Say how many places we keep, and how many of all that there are we could use."""
        lease, turn = _microseconds(SILENCE), _microseconds(TURN)
        args = (self._holder, kept, wanted, limit, lease, turn)
        self.link.call("places", PLACES, self._key, args, answer)


def pause_channel(prefix: str) -> str:
    """Where pauses are announced, for all buckets."""
    return f"{prefix}:pauses"


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
