"""Opening the file: made, recognised, and set up for several processes at once.

It has in it what callers sent and got, so no other user may read it: it is made with mode 0600,
one that was there gets that mode if it is ours, and a symbolic link is not followed.
"""

import os
import sqlite3
import stat
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from proxy.stores import StoreError


@dataclass(frozen=True, slots=True)
class Layout:
    """What a file is for, and how it is built."""

    application: int
    """SQLite's application id, by which the file of another application is recognised."""
    format: int
    """Version of the tables. A file with another one is not read, and not changed."""
    statements: tuple[str, ...]
    """Statements that make the tables."""
    content: str
    """What would be lost with the file, for the operator who has to decide."""
    waits_for_disk: bool = False
    """Whether what was committed survives the end of the machine too, and not only that of any
    process. It costs a wait for the disk, which is milliseconds, per transaction."""
    can_shrink: bool = False
    """Whether space that is free in the file can be given back to the disk (and is, by
    ``incremental_vacuum``)."""
    from_last_format: tuple[str, ...] = ()
    """Statements that convert the tables of the format before; none: that one is not read
    either."""


def open_file(path: str, busy_timeout: float, layout: Layout) -> sqlite3.Connection:
    """Return a connection to the file at *path*, which is made if there is none.

    The connection waits up to *busy_timeout* seconds for other processes. Raises
    :class:`StoreError` with a suggestion in its text.
    """
    _make(path)
    for attempt in range(_TRIES):
        try:
            return _connect(path, busy_timeout, layout)
        except sqlite3.Error as error:
            # To change a file's mode SQLite does not wait for others: it asks to try again.
            if attempt == _TRIES - 1 or _code(error) not in _LOCKED:
                raise StoreError(_explain(path, error, layout)) from error
        Event().wait(_RETRY_WAIT)
    raise AssertionError("the last turn returns or raises")


_PATIENCE = 1.0
_TRIES = 5
_RETRY_WAIT = 0.05
"""Seconds to wait for other processes that start at the same time; how often, and between."""
_LONGEST_LOG = 1024**2
"""Bytes of the write-ahead log that stay on disk once they are in the file, where that can shrink:
what a large transaction needed is given back. At half of that it is moved into the file."""
_PAGE = 4096
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _connect(path: str, busy_timeout: float, layout: Layout) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
    try:
        _set_up(db, path, layout)
        db.execute(f"PRAGMA busy_timeout = {max(round(busy_timeout * 1000), 1)}")
    except BaseException:
        db.close()
        raise
    return db


def _make(path: str) -> None:
    """Make the file, for no other user to read; SQLite gives those beside it the same rights.

    A file that exists is not opened here: another connection of this process may have it, and
    closing any descriptor of a file ends all locks that a process has on it. Other processes would
    take the file for abandoned then, and remove what is in use.
    """
    if not Path(path).parent.is_dir():
        raise StoreError(f"the folder of {path} does not exist: create it, or name another file")
    for name in _files(path):
        if Path(name).is_symlink():
            raise StoreError(
                f"{name} is a symbolic link, which may lead anywhere: name the file itself,"
                f" {Path(name).resolve()}"
            )
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    reason = ""
    try:
        os.close(os.open(path, flags, 0o600))
    except FileExistsError:
        if not Path(path).is_file():
            reason = "it is no file"
        elif not os.access(path, os.R_OK | os.W_OK):
            reason = "its rights do not allow it"
    except OSError as error:
        reason = error.strerror or type(error).__name__
    if reason:
        raise StoreError(
            f"{path} cannot be opened for writing ({reason}): Holdfast needs a file of its own"
            " in a folder in which it may write"
        )


def _make_private(path: str) -> None:
    """Make the file, and those that SQLite has beside it, unreadable for other users.

    By name, not by descriptor: closing one would end the locks that SQLite has on the file. Raises
    StoreError if others can read it and the mode cannot be changed.
    """
    for name in _files(path):
        try:
            found = os.lstat(name)
        except FileNotFoundError:
            continue
        if not found.st_mode & _OF_OTHERS:
            continue
        if found.st_uid != os.geteuid():
            raise StoreError(
                f"others can read {name} (mode {stat.S_IMODE(found.st_mode):04o}) and it belongs to"
                f" user {found.st_uid}: run chown {os.geteuid()} and chmod 600 on it, or name"
                " another file"
            )
        Path(name).chmod(0o600)


_OF_OTHERS = 0o077
"""The rights of all users but the owner."""


def _files(path: str) -> tuple[str, ...]:
    """Return the file at *path*, and those that SQLite has beside it."""
    return path, f"{path}-wal", f"{path}-shm"


def _set_up(db: sqlite3.Connection, path: str, layout: Layout) -> None:
    # Look first: a file that is not ours stays as it is.
    db.execute("BEGIN")
    is_new = _is_new(db, path, layout)
    db.execute("COMMIT")
    _make_private(path)
    if is_new and layout.can_shrink:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # it cannot be changed later
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(
            f"{path} is in a place where processes cannot share it: use a disk of this machine"
        )
    # In either case what was committed survives the end of any process.
    db.execute(f"PRAGMA synchronous = {'FULL' if layout.waits_for_disk else 'NORMAL'}")
    db.execute("PRAGMA trusted_schema = OFF")
    if layout.can_shrink:
        # Some builds write zeroes over all that is deleted, and on a full disk nothing could be.
        db.execute("PRAGMA secure_delete = FAST").fetchone()
        db.execute(f"PRAGMA journal_size_limit = {_LONGEST_LOG}")
        db.execute(f"PRAGMA wal_autocheckpoint = {_LONGEST_LOG // 2 // _PAGE}")
    if not is_new and not _is_of_last_format(db, layout):
        # A write shows that the folder, too, is ours to write in.
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
        return
    db.execute("BEGIN IMMEDIATE")
    # Checked again: another process may have been faster.
    if _is_new(db, path, layout):
        _build(db, layout, layout.statements)
    elif _is_of_last_format(db, layout):
        _build(db, layout, layout.from_last_format)
    db.execute("COMMIT")


def _build(db: sqlite3.Connection, layout: Layout, statements: tuple[str, ...]) -> None:
    for statement in statements:
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {layout.application}")
    db.execute(f"PRAGMA user_version = {layout.format}")


def _is_of_last_format(db: sqlite3.Connection, layout: Layout) -> bool:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return bool(layout.from_last_format) and version == layout.format - 1


def _is_new(db: sqlite3.Connection, path: str, layout: Layout) -> bool:
    """Tell whether the file is empty. Raises StoreError if it belongs to another application.

    Call it within a transaction: another process may be about to build the tables.
    """
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if not application and not version and not tables:
        return True
    if application != layout.application:
        raise StoreError(f"{path} belongs to another application: name another file")
    if version != layout.format and not _is_of_last_format(db, layout):
        raise StoreError(
            f"{path} was written by another version of Holdfast (format {version}, this one has"
            f" {layout.format}): use that version, or name another file"
        )
    return False


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary error code; 0 if the error is not from there."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _explain(path: str, error: sqlite3.Error, layout: Layout) -> str:
    code = _code(error)
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
        return (
            f"{path} is damaged, or no SQLite file ({error}): put a good copy in its place, or"
            f" name another file if {layout.content} may be forgotten"
        )
    if code in _LOCKED:
        return f"{path} is locked by another process: end that one, or name another file"
    return (
        f"{path} cannot be used ({error}): Holdfast needs a file of its own in a folder in"
        " which it may write"
    )
