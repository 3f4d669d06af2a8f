"""Reading of the files that a configuration names, with errors that a user understands."""

import errno
import os
import re
import stat
from pathlib import Path

from proxy.config.diagnostics.diagnostics import InvalidValue

_REASONS = {
    errno.ENOENT: "no such file",
    errno.EACCES: "permission denied",
    errno.EISDIR: "it is a directory",
}


def reason_of(error: OSError | ValueError) -> str:
    """Return in plain words why a file could not be opened."""
    if isinstance(error, ValueError):  # a NUL in its name
        return "no such file"
    number = error.errno or 0
    return _REASONS.get(number, os.strerror(number).lower())


def read_file(path: Path, written: str, limit: int) -> str:
    """Return the text of a small regular file; raise :class:`InvalidValue` if it cannot be read.

    *written* is the path as the user knows it. Pipes and devices are refused:
    reading one may never end.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise InvalidValue(f"cannot read {written} (it is no regular file), correct the path")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise InvalidValue(
            f"cannot read {written} ({reason_of(error)}), mount it or correct the path"
        ) from None
    if len(data) > limit:
        raise InvalidValue(f"{written} is larger than {limit // 1024}KiB, write a smaller file")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidValue(f"{written} is not UTF-8 text, save it as UTF-8") from None


def is_folder(path: Path) -> bool:
    """Return whether there is a folder at *path*."""
    try:
        return path.is_dir()
    except OSError:  # such as a name that is too long
        return False


MOUNT_TABLE = Path("/proc/self/mountinfo")
"""Where Linux lists what is mounted where."""


def passing_storage(folder: Path) -> str:
    """Return what is known to go away with *folder*: ``memory``, ``a container``; else nothing.

    Told by the type of the file system that it is, or would be, on: tmpfs and ramfs are memory; an
    overlay at the root of the file tree is the scratch layer of a container. Other file systems,
    also those that a pod gets for its life only, cannot be told from lasting ones.
    """
    try:
        lines = MOUNT_TABLE.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        path = folder.resolve()
    except (OSError, ValueError, RuntimeError):
        return ""
    best, kind = Path(), ""
    for line in lines:
        # proc(5): id, parent, device, root, mount point, options, optional fields, -, type, …
        mounted, _, file_system = line.partition(" - ")
        fields, types = mounted.split(" "), file_system.split(" ")
        point = Path(_unescaped(fields[4])) if len(fields) > 4 else None
        # Of two at the same point the later one hides the other.
        if point is None or not path.is_relative_to(point) or len(point.parts) < len(best.parts):
            continue
        best, kind = point, types[0]
    if kind in {"tmpfs", "ramfs"}:
        return "memory"
    return "a container" if kind in {"overlay", "aufs"} and best == Path("/") else ""


def _unescaped(point: str) -> str:
    """Return a mount point as it is: blanks and backslashes stand as octal numbers in the table."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point)
