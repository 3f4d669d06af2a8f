"""Disk space that is set aside, so that a full disk can be cleared.

To delete a dead letter SQLite has to write, and so has a replay, which is marked first. On a full
disk neither would work, and an operator could not free space with the very command for it. So a
file beside the dead letters takes some space while there is any, and is removed when a command
that frees space finds none. The thread that has the file (``thread.py``) does so.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

_SIZE = 1024**2
"""Bytes: as much as the write-ahead log takes at most, but for a single large transaction."""
_SHARE = 3
"""Of what is free on a small disk only a third is set aside."""
_LEAST = 64 * 1024
"""Less would not do: to delete one dead letter takes a dozen pages."""
_TRIES = 2
_PAGES = 200
"""Pages that are given back to the disk at once: with more of them SQLite's memory would run over,
into the log. Other processes wait for the file meanwhile."""


class Reserve:
    """The disk space that is set aside, and its use in the thread that has the file."""

    def __init__(self, path: str) -> None:
        """Set space aside beside *path*, the file of the dead letters."""
        self._path = f"{path}-reserve"
        self._tried = 0
        """How often space was freed for the present command."""
        self.file_is_to_shrink = False
        """Set by a command if much of the file is free."""

    def set_aside(self) -> None:
        """Take the space, if there is enough and no process has done so before."""
        with suppress(OSError):
            if Path(self._path).exists():
                return
            disk = os.statvfs(Path(self._path).parent)
            free = disk.f_bavail * disk.f_frsize
            size = min(_SIZE, max(free // _SHARE, _LEAST))
            if size > free // 2:
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._path, flags, 0o600)
            try:
                _allocate(descriptor, size)
            except OSError:
                self.release()
            finally:
                os.close(descriptor)

    def release(self) -> bool:
        """Give up the space that is set aside; False if there is none."""
        try:
            Path(self._path).unlink()
        except OSError:
            return False
        return True

    # On a full disk.

    def make(self, db: sqlite3.Connection, *, gives_back: bool) -> bool:
        """Find space: empty the log, then give up the reserve for a command that *gives_back*.

        Called again, and again, until the command succeeds or the answer is False: there is nothing
        left to try. A command that *gives_back* frees more space than it takes.

        The reserve is needed even to empty the log: the file may have to grow for what is in there,
        and only then can the log be truncated.
        """
        self._tried += 1
        if self._tried > 1 and not (self._tried == _TRIES and gives_back and self.release()):
            return False
        empty_log(db)
        return True

    def restore(self, db: sqlite3.Connection) -> None:
        """Give back what is free in the file, and set the reserve aside: the command is over."""
        self._tried = 0
        shrink(db)
        empty_log(db)
        self.set_aside()

    def tidy(self, db: sqlite3.Connection) -> None:
        """Give back some of what is free in the file, if a command has asked for it.

        That can only be done between two transactions.
        """
        if self.file_is_to_shrink:
            self.file_is_to_shrink = False
            shrink(db)
            empty_log(db)


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.write(descriptor, bytes(size))


def shrink(db: sqlite3.Connection) -> None:
    """Give some free pages back to the disk, if that can be done now."""
    with suppress(sqlite3.Error):
        # Each page is a row of the answer, without columns: execute() takes the first for all.
        db.executescript(f"PRAGMA incremental_vacuum({_PAGES})")


def empty_log(db: sqlite3.Connection) -> None:
    """Move the write-ahead log into the file and truncate it, if other processes allow it."""
    with suppress(sqlite3.Error):
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
