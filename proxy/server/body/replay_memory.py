"""Memory that all callers share, and uploads that give way where one holds too much of it.

Who wants a part asks first. One caller alone may have all of it; beside others it gets half
(``policy/fair_share.py``). A caller that comes when all is taken does not go without: uploads of
the caller that holds most give way, the oldest first, as long as that one holds more than the
newcomer. Where it does not, uploads that are below ``limits.body_rate`` just now give way, even its
own. What cannot be given up stays; it ends in a time of its own.
"""

from itertools import islice
from typing import Protocol

from proxy.policy.fair_share import FairShare

_LOOK_AT = 64
"""Uploads of one caller that are asked to give way, at most: others may need all they hold."""


class GiveWay(Protocol):
    """A method of an upload."""

    def __call__(self, *, if_slow: bool) -> bool:
        """Give back what it holds; False if that is needed, or *if_slow* and it is not."""


class FairMemory(FairShare[str]):
    """One count for the whole process, in bytes."""

    __slots__ = ("_uploads",)

    def __init__(self) -> None:
        super().__init__()
        self._uploads: dict[str, dict[GiveWay, None]] = {}
        """Of each caller those that can be asked, the oldest first."""

    def register(self, caller: str, upload: GiveWay) -> None:
        """Ask *upload* of *caller* if another needs room."""
        self._uploads.setdefault(caller, {})[upload] = None

    def unregister(self, caller: str, upload: GiveWay) -> None:
        """*upload* holds nothing any more, or needs what it holds."""
        uploads = self._uploads[caller]
        del uploads[upload]
        if not uploads:
            del self._uploads[caller]

    def make_room(self, caller: str, size: int, limit: int) -> bool:
        """Give *caller* *size* more bytes at the cost of those who hold more; False if none can."""
        while (largest := self.largest()) is not None:
            if_slow = largest == caller or self.used_by(largest) <= self.used_by(caller) + size
            oldest = tuple(islice(self._uploads.get(largest, ()), _LOOK_AT))
            if not any(give_way(if_slow=if_slow) for give_way in oldest):
                return False
            if self.take(caller, size, limit):
                return True
        return False
