"""The clock of the file: it goes on evenly, whoever sets the clock of the machine.

Due times must survive a restart, so they cannot be monotonic; but a wall clock that is set must
neither delay them nor fire them all at once. So the file has a time of its own. It began as the
date, and goes on with the monotonic clock, which all processes of a machine share until it is
booted again. What the machine's date differs by is kept beside it, and added where a date is shown.

After a boot the monotonic clock begins anew: the file's time goes on from the date then. A clock
that was set while the machine was down cannot be told from days that it was off.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from proxy.core.clock import Clock

_NOTICED = 1.0
"""Seconds of difference that are noticed: a clock that is slewed is never quite the same."""


def boot_name() -> str:
    """Return what tells boots of machines apart, and monotonic clocks of containers."""
    parts = []
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/time"))  # noqa: PTH115 - it is no path
    return " ".join(parts)


class FileClock:
    """The time of the file, for one connection to it; used within its transactions."""

    def __init__(self, db: sqlite3.Connection, clock: Clock, boot: str) -> None:
        self._db = db
        self._clock = clock
        self._boot = boot
        self._offset = 0.0
        """What the file's time is ahead of the monotonic clock: the same until the next boot."""

    def begin(self) -> None:
        """Read the file's time, or begin it; before all else."""
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        row = self._db.execute("SELECT boot, offset, correction FROM clock").fetchone()
        if row is None:
            self._offset = wall - monotonic
            self._db.execute("INSERT INTO clock VALUES (?, ?, 0.0)", (self._boot, self._offset))
        elif row[0] == self._boot and self._boot:
            self._offset = row[1]
        else:
            self._offset = wall - row[2] - monotonic
            self._db.execute("UPDATE clock SET boot = ?, offset = ?", (self._boot, self._offset))

    def now(self) -> float:
        """Return the file's time."""
        return self._clock.monotonic() + self._offset

    def correction(self) -> float:
        """Return what has to be added to the file's time for a date."""
        (correction,) = self._db.execute("SELECT correction FROM clock").fetchone()
        return float(correction)

    def notice(self) -> float:
        """Note that the machine's clock was set; return by how many seconds, or 0."""
        correction = self.correction()
        ahead = self._clock.wall() - self.now() - correction
        if abs(ahead) < _NOTICED:
            return 0.0
        self._db.execute("UPDATE clock SET correction = ?", (correction + ahead,))
        return ahead
