"""Memory that all callers share, and uploads that yield theirs where one caller has too much.

A part is reserved before it is used. One caller alone may have all of it; beside others it gets
half (``policy/fair_share.py``). A caller that comes when all is taken does not go without: uploads
of the caller that has most yield, the oldest first, as long as that caller has more than the
newcomer. Where it has not, uploads that are below ``limits.body_rate`` just now yield, even the
newcomer's own. What cannot be yielded stays; it ends in a time of its own.
"""

from itertools import islice
from typing import Protocol

from proxy.policy.fair_share import FairShare

_MOST_ASKED = 64
"""Uploads of one caller that are asked to yield, at most: others may need all they have."""


class YieldMemory(Protocol):
    """A method of an upload that gives its memory back."""

    def __call__(self, *, if_slow: bool) -> bool:
        """Give the memory back; False if it is needed, or if *if_slow* and the upload is not."""


class FairMemory(FairShare[str]):
    """One count of bytes for the whole process, shared fairly by callers."""

    __slots__ = ("_uploads",)

    def __init__(self) -> None:
        super().__init__()
        self._uploads: dict[str, dict[YieldMemory, None]] = {}
        """The uploads of each caller that can be asked to yield, the oldest first."""

    def register(self, caller: str, upload: YieldMemory) -> None:
        """Ask *upload* of *caller* to yield if another caller needs memory."""
        self._uploads.setdefault(caller, {})[upload] = None

    def unregister(self, caller: str, upload: YieldMemory) -> None:
        """Do not ask *upload* any more: it has no memory, or needs what it has."""
        uploads = self._uploads[caller]
        del uploads[upload]
        if not uploads:
            del self._uploads[caller]

    def reclaim(self, caller: str, size: int, limit: int) -> bool:
        """Give *caller* *size* more bytes that others with more yield; False if none can."""
        while (largest := self.largest()) is not None:
            if_slow = largest == caller or self.used_by(largest) <= self.used_by(caller) + size
            oldest = tuple(islice(self._uploads.get(largest, ()), _MOST_ASKED))
            if not any(yield_memory(if_slow=if_slow) for yield_memory in oldest):
                return False
            if self.take(caller, size, limit):
                return True
        return False
