"""Opening the file of deliveries and dead letters, in the state folder."""

import sqlite3
from pathlib import Path

from proxy.core.ids import new_owner_token
from proxy.stores import StoreError
from proxy.stores.dead_letters.layout import LAYOUT
from proxy.stores.sqlite_file.opening import open_file
from proxy.stores.sqlite_file.presence import Presence
from proxy.stores.sqlite_file.reserve import Reserve, empty_log

FILE = "letters.db"
"""Name of the file in the state folder."""
_LOCK_SHARE = 0.75
"""Share of a command's time for waiting until other processes are done with the file."""


def open_letters(
    folder: str, patience: float, reserve: Reserve
) -> tuple[sqlite3.Connection, Presence]:
    """Open the file in *folder*, and appear to other processes as one that has it.

    *patience*: seconds that a command may take. Raises StoreError, with a suggestion in its text.
    """
    place = Path(folder)
    path = str(place / FILE)
    try:
        place.mkdir(mode=0o700, exist_ok=True)  # another worker may be doing so now
        db = _open_file(path, patience * _LOCK_SHARE, reserve)
        presence = Presence(path, new_owner_token())
        reserve.set_aside()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreError(
            f"dead letters cannot be kept in {folder} ({reason}): set state_dir or "
            "HOLDFAST_STATE_DIR to a folder in which Holdfast may write"
        ) from error
    return db, presence


def _open_file(path: str, wait: float, reserve: Reserve) -> sqlite3.Connection:
    try:
        db = open_file(path, wait, LAYOUT)
    except StoreError:
        # Opening takes some space for the files beside it.
        if not reserve.release():
            raise
        db = open_file(path, wait, LAYOUT)
    empty_log(db)
    return db
