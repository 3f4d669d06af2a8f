"""Noticing that the content of a file has changed.

By reading it, not by watching for events: a mounted ConfigMap is swapped through
a symbolic link, and a watch on the file itself would never hear of it.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

INTERVAL = 1.0
"""Seconds between two looks."""


async def content_changed(
    files: Callable[[], Iterable[Path]], on_change: Callable[[], None], interval: float = INTERVAL
) -> None:
    """Call *on_change* whenever what *files* hold differs from the last look. Never ends."""
    known = await asyncio.to_thread(_digest, files())
    while True:
        await asyncio.sleep(interval)
        seen = await asyncio.to_thread(_digest, files())
        if seen != known:
            known = seen
            on_change()


def _digest(files: Iterable[Path]) -> bytes:
    digest = hashlib.sha256()
    for path in files:
        try:
            content = path.read_bytes()
        except OSError:
            content = b""  # gone for a moment while it is being replaced
        digest.update(f"{path}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.digest()
