"""Write lines to a descriptor without ever making the event loop wait.

A pipe can be full, so can a disk, and a terminal can be gone. Then lines are dropped and
counted; serving goes on. The loop only appends to a list; a few milliseconds
later the whole batch goes to a thread, and the thread may block as long as it
likes. Every counter is written by one of the two sides alone, so no lock is needed.
"""

import asyncio
import fcntl
import os
import selectors
import threading
from queue import SimpleQueue

_BATCH_DELAY = 0.02
"""Seconds during which lines gather before the thread is woken: one wake-up for many lines."""

_MOST_WAITING = 4 * 1024 * 1024
"""Bytes that may wait for a slow reader."""


class LineWriter:
    """Writes ASCII lines to a file descriptor; never blocks, never raises."""

    def __init__(self, fd: int, lock_fd: int | None = None) -> None:
        """*lock_fd* is a file that is locked while lines are written, if other processes write too.

        A pipe takes 4 KiB in one piece; of longer lines, and of several, one process could
        write into another's. The system drops the lock when the process ends, however it ends.
        """
        # A copy of our own: no other code can close it, and its number cannot come
        # to mean a client's socket. With a closed stdout there is nothing to copy,
        # and every write to -1 fails, which is counted like any other failure.
        try:
            self._fd = os.dup(fd)
        except OSError:
            self._fd = -1
        self._lock_fd = lock_fd
        self._lines: list[str] = []
        self._batches: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._scheduled = False
        self._closed = False
        self._torn = False
        self._accepted = self._settled = 0
        """Bytes taken by the loop; bytes that the thread has written or given up."""
        self._overflowed = self._failed = 0
        """Lines dropped by the loop; lines dropped by the thread."""

    @property
    def dropped(self) -> int:
        """Lines that were lost so far."""
        return self._overflowed + self._failed

    def write(self, line: str) -> None:
        """Add *line* (ASCII, ending in a newline) to the next batch."""
        size = len(line)
        if self._closed or self._accepted - self._settled + size > _MOST_WAITING:
            self._overflowed += 1
            return
        self._accepted += size
        self._lines.append(line)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_later(_BATCH_DELAY, self._hand_over)

    def close(self, within: float = 1.0) -> None:
        """Write what is waiting, for at most *within* seconds; later lines are dropped.

        For the end of the process, because it waits for the thread. A thread that is still
        stuck then is left to die with the process.
        """
        if self._closed:
            return
        self._hand_over()
        self._closed = True
        if self._thread is not None:
            self._batches.put(None)
            self._thread.join(within)
            if self._thread.is_alive():
                return
        if self._fd >= 0:
            os.close(self._fd)

    def _hand_over(self) -> None:
        self._scheduled = False
        if not self._lines:
            return
        self._batches.put("".join(self._lines).encode("ascii"))
        self._lines.clear()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._write_batches, name="holdfast-access-log", daemon=True
            )
            self._thread.start()

    def _write_batches(self) -> None:
        while (batch := self._batches.get()) is not None:
            if self._lock_fd is None:
                self._write_batch(batch)
            else:
                fcntl.lockf(self._lock_fd, fcntl.LOCK_EX)
                try:
                    self._write_batch(batch)
                finally:
                    fcntl.lockf(self._lock_fd, fcntl.LOCK_UN)
            self._settled += len(batch)

    def _write_batch(self, batch: bytes) -> None:
        # A line that broke off in the middle must not swallow the one after it.
        rest = b"\n" + batch if self._torn else batch
        while rest:
            try:
                written = os.write(self._fd, rest)
            except BlockingIOError:
                self._wait_until_writable()
            except OSError:  # full, gone or closed: give this batch up, try the next
                self._failed += rest.count(b"\n") - rest.startswith(b"\n")
                return
            else:
                self._torn = rest[written - 1 : written] != b"\n"
                rest = rest[written:]

    def _wait_until_writable(self) -> None:
        # Only a descriptor that was made non-blocking elsewhere comes here.
        with selectors.DefaultSelector() as selector:
            selector.register(self._fd, selectors.EVENT_WRITE)
            selector.select()
