"""The file: made, recognised, and set up for several processes at once."""

import os
import sqlite3
from pathlib import Path
from threading import Event

from proxy.stores import StoreError

_APPLICATION = 0x486F6C64
"""Says "Hold" at a fixed place of the file: nobody else's is taken for ours."""
_FORMAT = 1
"""Of the tables. Another one is not read, and not changed."""

_TABLES = """
CREATE TABLE keys (
    name TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    owner TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    route TEXT NOT NULL,
    created REAL NOT NULL,
    boot TEXT NOT NULL,
    lease REAL NOT NULL,
    lease_until REAL NOT NULL,
    expires REAL NOT NULL,
    result BLOB NOT NULL
);
CREATE INDEX keys_by_expiry ON keys (expires);
CREATE TABLE outcomes (
    owner TEXT PRIMARY KEY,
    boot TEXT NOT NULL,
    until REAL NOT NULL,
    result BLOB NOT NULL
);
"""


def open_file(path: str, busy_timeout: float) -> sqlite3.Connection:
    """A connection to the file at *path*, which is made if there is none.

    It waits up to *busy_timeout* seconds for others. Raises :class:`StoreError` with what
    to do about it.
    """
    _make(path)
    for turn in range(_TURNS):
        try:
            return _connect(path, busy_timeout)
        except sqlite3.Error as error:
            # To change a file's mode SQLite does not wait for others: it asks to come again.
            if turn == _TURNS - 1 or _code(error) not in _LOCKED:
                raise StoreError(_explain(path, error)) from error
        Event().wait(_PAUSE)
    raise AssertionError("the last turn returns or raises")


_PATIENCE = 1.0
_TURNS = 5
_PAUSE = 0.05
"""Seconds to wait for other processes that start at the same time; how often, and between."""
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _connect(path: str, busy_timeout: float) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
    try:
        _set_up(db, path)
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


def _set_up(db: sqlite3.Connection, path: str) -> None:
    # Look first: what is not ours stays as it is.
    db.execute("BEGIN")
    is_new = _is_new(db, path)
    db.execute("COMMIT")
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(
            f"{path} is in a place where processes cannot share it: use a disk of this machine"
        )
    # What was committed survives the end of any process, and of the machine but for the
    # last moments. Waiting for the disk each time would cost milliseconds.
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA trusted_schema = OFF")
    if not is_new:
        # A write shows that the folder, too, is ours to write in.
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
        return
    db.execute("BEGIN IMMEDIATE")
    if _is_new(db, path):  # still: another process may have been faster
        for statement in _TABLES.split(";")[:-1]:
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {_APPLICATION}")
        db.execute(f"PRAGMA user_version = {_FORMAT}")
    db.execute("COMMIT")


def _is_new(db: sqlite3.Connection, path: str) -> bool:
    """Whether the file is empty. Raises StoreError if it is somebody else's.

    Within a transaction: another process may be about to make it ours.
    """
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if not application and not version and not tables:
        return True
    if application != _APPLICATION:
        raise StoreError(f"{path} belongs to another application: name another file")
    if version != _FORMAT:
        raise StoreError(
            f"{path} was written by another version of Holdfast (format {version}, this one has"
            f" {_FORMAT}): use that version, or name another file"
        )
    return False


def _code(error: sqlite3.Error) -> int:
    """What is wrong, in SQLite's own numbers; 0 if it is not from there."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _explain(path: str, error: sqlite3.Error) -> str:
    code = _code(error)
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
        return (
            f"{path} is damaged, or no SQLite file ({error}): put a good copy in its place, or"
            " name another file if what it knew of keys may be forgotten"
        )
    if code in _LOCKED:
        return f"{path} is locked by another process: end that one, or name another file"
    return (
        f"{path} cannot be used ({error}): Holdfast needs a file of its own in a folder in"
        " which it may write"
    )
