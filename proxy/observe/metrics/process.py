"""The system's numbers about this process: CPU, memory, descriptors. On Linux only."""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from proxy.observe.metrics import families
from proxy.observe.metrics.snapshot import Reading

_SELF = Path("/proc/self")
_BEFORE_STATE = b")"
"""Ends the name of the program, which may contain anything, in ``/proc/self/stat``."""


class ProcessNumbers:
    """Reads the usual ``process_*`` metrics."""

    def __init__(self) -> None:
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._booted = 0.0
        """When the machine was started, in seconds since the epoch; 0 where /proc is missing."""
        with suppress(OSError):
            for line in Path("/proc/stat").read_bytes().splitlines():
                if line.startswith(b"btime "):
                    self._booted = float(line.split()[1])

    def readings(self) -> Iterator[Reading]:
        """Yield what the system knows at this moment; nothing where it does not say."""
        if not self._booted:
            return
        with suppress(OSError):
            # The third field of proc(5) is the first one here.
            fields = (_SELF / "stat").read_bytes().rpartition(_BEFORE_STATE)[2].split()
            yield families.VIRTUAL_MEMORY.reading(float(fields[20]))
            yield families.RESIDENT_MEMORY.reading(float(fields[21]) * resource.getpagesize())
            yield families.START_TIME.reading(float(fields[19]) / self._ticks + self._booted)
            user, system = float(fields[11]) / self._ticks, float(fields[12]) / self._ticks
            yield families.CPU_SECONDS.reading(user + system)
        with suppress(OSError):
            yield families.OPEN_FDS.reading(float(sum(1 for _ in (_SELF / "fd").iterdir())))
            yield families.MAX_FDS.reading(float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
