"""A disk of a few hundred kilobytes, for tests of what happens when it is full."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of *size* bytes at *folder*; the test is skipped where we may not mount one."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)  # noqa: S607 - our own


def fill(folder: Path) -> Path:
    """Let a file take all that is left; it is returned."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as filler:
        for size in (4096, 1):
            try:
                while filler.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return file


def free(folder: Path) -> int:
    """Bytes that are left."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize
