"""Which of the processes that share a file are alive.

Each process has a small file of its own beside it, with a lock that lasts as long as the
process does, however that ends. Process ids would not do: containers that share a folder
have the same ones.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path


class Presence:
    """The lock by which other processes see that this one is alive."""

    def __init__(self, path: str, token: str) -> None:
        """Lock a file beside *path*, the shared file; *token* is unique to this process."""
        self._path = path
        self.token = token
        self._fd = self._appear()
        self._clear_away()

    def _appear(self) -> int:
        file = self._file(self.token)
        while True:
            fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            # Before it was locked another process may have taken it for what a dead one left, and
            # removed it.
            if file.exists() and file.stat().st_ino == os.fstat(fd).st_ino:
                return fd
            os.close(fd)

    def is_alive(self, token: str) -> bool:
        """Tell whether the process with that *token* is alive."""
        if token == self.token:
            return True
        try:
            fd = os.open(self._file(token), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            # Shared: two processes that ask at once must not take each other for the owner.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def close(self) -> None:
        """Remove the file and release the lock."""
        with suppress(OSError):
            self._file(self.token).unlink()
        os.close(self._fd)

    def _file(self, token: str) -> Path:
        return Path(f"{self._path}-alive-{token}")

    def _clear_away(self) -> None:
        """Remove the files of dead processes. Their dead letters do not need them."""
        beside = Path(self._path)
        for file in beside.parent.glob(f"{beside.name}-alive-*"):
            if not self.is_alive(file.name.rpartition("-alive-")[2]):
                with suppress(OSError):
                    file.unlink()
