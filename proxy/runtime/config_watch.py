"""Hot reload: notice that the content of a configuration file has changed.

The files are read and compared, not watched for events: a mounted ConfigMap is swapped through
a symbolic link, and a watch on the file itself would never notice.
"""

import asyncio
import hashlib
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

from proxy.config import Loaded

INTERVAL = 1.0
"""Seconds between two comparisons."""

OnRead = Callable[[Path], object]


class WatchedLoad:
    """Loads a configuration, and knows whether to load it again.

    What counts are the files of the latest load, whether it succeeded or not: a file that
    is missing is waited for. Their content is noted just before they are read,
    never after, so a change in between is noticed once more rather than not at all.
    """

    def __init__(self, load: Callable[[OnRead], Loaded]) -> None:
        """*load* reads the configuration, and calls its argument before it reads a file."""
        self._load = load
        self._noted: dict[Path, bytes | None] = {}

    def __call__(self) -> Loaded:
        """Load the configuration, and note the content of its files."""
        noted: dict[Path, bytes | None] = {}

        def note(path: Path) -> None:
            if path not in noted:
                noted[path] = _digest(path)

        try:
            return self._load(note)
        finally:
            self._noted = noted

    def is_outdated(self) -> bool:
        """Whether a file has other content than when it was last read."""
        return any(_digest(path) != before for path, before in self._noted.items())


async def reload_when_outdated(
    watched: WatchedLoad, reload: Callable[[], Awaitable[object]], interval: float = INTERVAL
) -> None:
    """Reload whenever a file has changed, looking every *interval* seconds. Never ends."""
    while True:
        await asyncio.sleep(interval)
        if await asyncio.to_thread(watched.is_outdated):
            await reload()


def _digest(path: Path) -> bytes | None:
    """Digest the content of a file; None if there is no such file."""
    try:
        # The content of a pipe or a device is gone once it is read, or never ends.
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except (OSError, ValueError):  # ValueError: a NUL in its name
        return None
