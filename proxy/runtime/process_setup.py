"""Prepare a process for serving: its installation, descriptors, memory, garbage collector."""

import ctypes
import faulthandler
import gc
import os
import resource
from contextlib import suppress

from proxy.server.aiohttp_adapter.parser import parser_name

# glibc's numbers for mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP = 16 * 1024 * 1024
_MAP = 1024 * 1024

_STDERR = 2


def unfit_to_serve() -> str | None:
    """Say why this installation must not serve; None if it may."""
    if parser_name() == "c":
        return None
    return (
        "aiohttp's compiled request parser is missing, and its fallback has let requests be"
        " smuggled: install aiohttp's binary wheel and unset AIOHTTP_NO_EXTENSIONS"
    )


def prepare() -> None:
    """Set the process up for serving."""
    _occupy_standard_descriptors()
    # A process that is aborted because it hangs, or crashes, says where on stderr.
    faulthandler.enable(_STDERR)
    _keep_freed_memory()
    _raise_file_limit()


def settle() -> None:
    """Exempt what lives as long as the process from garbage collection; call after the start.

    A request makes no cycles, so that young garbage is rare and old garbage rarer
    still; looking for it every 700 objects costs 2 % of all time.
    """
    gc.unfreeze()  # what imports left behind is looked through here
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)


def _occupy_standard_descriptors() -> None:
    """Keep 0, 1 and 2 from becoming sockets where the parent process closed them.

    libuv aborts the process when it has to close one of these. They are open only for reading:
    a log line written to it fails and is counted, as it should be.
    """
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= _STDERR:
        pass
    os.close(descriptor)


def _keep_freed_memory() -> None:
    """Let glibc keep the memory that it frees.

    A read of uvloop's is up to 250 KiB. Giving each back to the system and
    asking for it again nearly doubles the cost of a large body (measured:
    590 instead of 400 µs per MiB). With 4 MiB eight bodies of 1 MiB each that are
    kept for another attempt were given back and asked for again: 1870 instead of
    940 µs per MiB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEEP)
        mallopt(_M_MMAP_THRESHOLD, _MAP)


def _raise_file_limit() -> None:
    """Allow as many connections as the system does; the soft limit is often 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems refuse their own hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
