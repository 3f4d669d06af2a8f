"""Noticing that the content of a file has changed.

By reading it, not by watching for events: a mounted ConfigMap is swapped through
a symbolic link, and a watch on the file itself would never hear of it.
"""

import asyncio
import hashlib
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

from proxy.config import Loaded

INTERVAL = 1.0
"""Seconds between two looks."""

OnRead = Callable[[Path], object]


class WatchedLoad:
    """Loads a configuration, and knows whether to load it again.

    What counts are the files of the latest attempt, be it good or bad: a file that
    is missing is waited for. Their content is noted just before they are read,
    never after, so a change in between is noticed once more rather than not at all.
    """

    def __init__(self, load: Callable[[OnRead], Loaded]) -> None:
        """*load* reads the configuration, and tells of each file before it does."""
        self._load = load
        self._noted: dict[Path, bytes | None] = {}

    def __call__(self) -> Loaded:
        """Load."""
        noted: dict[Path, bytes | None] = {}

        def note(path: Path) -> None:
            if path not in noted:
                noted[path] = _digest(path)

        try:
            return self._load(note)
        finally:
            self._noted = noted

    def is_outdated(self) -> bool:
        """Whether a file holds something else than when it was last read."""
        return any(_digest(path) != before for path, before in self._noted.items())


async def reload_when_outdated(
    watched: WatchedLoad, reload: Callable[[], Awaitable[object]], interval: float = INTERVAL
) -> None:
    """Look every *interval* seconds, and reload if need be. Never ends."""
    while True:
        await asyncio.sleep(interval)
        if await asyncio.to_thread(watched.is_outdated):
            await reload()


def _digest(path: Path) -> bytes | None:
    """A print of what the file holds; None if there is no such file."""
    try:
        # What a pipe or a device holds is gone once it is read, or never ends.
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except (OSError, ValueError):  # ValueError: a NUL in its name
        return None
