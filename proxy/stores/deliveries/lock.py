"""Which process of a machine delivers, and how the others wake it.

The lock is the kernel's: it is free as soon as the process that has it ends, however that comes.
Who inserts writes a byte into a named pipe beside the file, which the process with the lock reads.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress

_LOOK_EVERY = 0.2
"""Seconds after which a process without the lock tries again to get it."""
_READ = 4096


class DeliveryLock:
    """The lock of the process that delivers, and its bell."""

    def __init__(self, path: str, on_wake: Callable[[], object]) -> None:
        """Stand beside *path*, the file; *on_wake* is called in the process that has the lock."""
        self._lock_path = f"{path}-deliver"
        self._pipe_path = f"{path}-wake"
        self._on_wake = on_wake
        self._lock: int | None = None
        self._bell: int | None = None
        """For reading, in the process that has the lock; for writing in all others."""

    @property
    def is_held(self) -> bool:
        """Whether this process has the lock."""
        return self._lock is not None

    @property
    def can_wake(self) -> bool:
        """Whether other processes can wake this one: not on a disk without named pipes."""
        return self._lock is not None and self._bell is not None

    async def acquire(self) -> None:
        """Wait until this process has the lock."""
        while not self._try():  # noqa: ASYNC110 - the kernel tells nobody that a lock is free
            await asyncio.sleep(_LOOK_EVERY)

    def _try(self) -> bool:
        if self._lock is not None:
            return True
        try:
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False  # the disk is full, say: it may not be so the next time
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        self._close_bell()
        with suppress(OSError):
            # Also for writing, so that it is never at its end.
            self._bell = self._open_bell(os.O_RDWR)
            asyncio.get_running_loop().add_reader(self._bell, self._heard)
        return True

    def _open_bell(self, mode: int) -> int:
        with suppress(FileExistsError):
            os.mkfifo(self._pipe_path, 0o600)
        return os.open(self._pipe_path, mode | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _heard(self) -> None:
        if self._bell is not None:
            with suppress(BlockingIOError):
                os.read(self._bell, _READ)
        self._on_wake()

    def wake(self) -> None:
        """Wake the process that delivers, be it this one or another."""
        if self._lock is not None:
            self._on_wake()
            return
        try:
            if self._bell is None:
                self._bell = self._open_bell(os.O_WRONLY)
            os.write(self._bell, b"!")
        except BlockingIOError:
            pass  # it has not read what was written before
        except OSError:
            self._close_bell()  # no process has the lock now: the next one looks by itself

    def _close_bell(self) -> None:
        bell, self._bell = self._bell, None
        if bell is not None:
            if self._lock is not None:
                asyncio.get_running_loop().remove_reader(bell)
            os.close(bell)

    def release(self) -> None:
        """Give up the lock, if this process has it, and close all."""
        self._close_bell()
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)
