"""The file: made, recognised, and set up for several processes at once."""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from proxy.stores import StoreError


@dataclass(frozen=True, slots=True)
class Layout:
    """What a file is for, and how it is built."""

    application: int
    """Stands at a fixed place of the file: nobody else's is taken for ours."""
    format: int
    """Of the tables. Another one is not read, and not changed."""
    statements: tuple[str, ...]
    """Make the tables."""
    content: str
    """What would be lost with it, for the person who has to decide."""
    waits_for_disk: bool = False
    """Whether what was committed survives the end of the machine too, and not only that of
    any process. It costs a wait for the disk, which is milliseconds, per transaction."""


def open_file(path: str, busy_timeout: float, layout: Layout) -> sqlite3.Connection:
    """A connection to the file at *path*, which is made if there is none.

    It waits up to *busy_timeout* seconds for others. Raises :class:`StoreError` with what
    to do about it.
    """
    _make(path)
    for turn in range(_TURNS):
        try:
            return _connect(path, busy_timeout, layout)
        except sqlite3.Error as error:
            # To change a file's mode SQLite does not wait for others: it asks to come again.
            if turn == _TURNS - 1 or _code(error) not in _LOCKED:
                raise StoreError(_explain(path, error, layout)) from error
        Event().wait(_PAUSE)
    raise AssertionError("the last turn returns or raises")


_PATIENCE = 1.0
_TURNS = 5
_PAUSE = 0.05
"""Seconds to wait for other processes that start at the same time; how often, and between."""
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
    """Make the file, for nobody else to read; SQLite gives those beside it the same rights."""
    if not Path(path).parent.is_dir():
        raise StoreError(f"the folder of {path} does not exist: create it, or name another file")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreError(
            f"{path} cannot be opened for writing ({reason}): Holdfast needs a file of its own"
            " in a folder in which it may write"
        ) from error


def _set_up(db: sqlite3.Connection, path: str, layout: Layout) -> None:
    # Look first: what is not ours stays as it is.
    db.execute("BEGIN")
    is_new = _is_new(db, path, layout)
    db.execute("COMMIT")
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(
            f"{path} is in a place where processes cannot share it: use a disk of this machine"
        )
    # In either case what was committed survives the end of any process.
    db.execute(f"PRAGMA synchronous = {'FULL' if layout.waits_for_disk else 'NORMAL'}")
    db.execute("PRAGMA trusted_schema = OFF")
    if not is_new:
        # A write shows that the folder, too, is ours to write in.
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
        return
    db.execute("BEGIN IMMEDIATE")
    if _is_new(db, path, layout):  # still: another process may have been faster
        for statement in layout.statements:
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {layout.application}")
        db.execute(f"PRAGMA user_version = {layout.format}")
    db.execute("COMMIT")


def _is_new(db: sqlite3.Connection, path: str, layout: Layout) -> bool:
    """Whether the file is empty. Raises StoreError if it is somebody else's.

    Within a transaction: another process may be about to make it ours.
    """
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if not application and not version and not tables:
        return True
    if application != layout.application:
        raise StoreError(f"{path} belongs to another application: name another file")
    if version != layout.format:
        raise StoreError(
            f"{path} was written by another version of Holdfast (format {version}, this one has"
            f" {layout.format}): use that version, or name another file"
        )
    return False


def _code(error: sqlite3.Error) -> int:
    """What is wrong, in SQLite's own numbers; 0 if it is not from there."""
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
