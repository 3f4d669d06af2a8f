"""A disk of a few hundred kilobytes, for tests of a full one; and a disk that lasts."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from proxy.config.source import files


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of *size* bytes at *folder*; the test is skipped where we may not mount one."""
    with small_disk_if_possible(folder, size) as fault:
        if fault:
            pytest.skip(fault)
        yield folder


@contextmanager
def small_disk_if_possible(folder: Path, size: int) -> Iterator[str]:
    """The same, or a usual folder; the result says why it is one, else it is empty."""
    folder.mkdir(exist_ok=True)
    fault = _mount(folder, size)
    try:
        yield fault
    finally:
        if not fault:
            subprocess.run(["umount", "-l", str(folder)], check=True)  # noqa: S607 - our own


def _mount(folder: Path, size: int) -> str:
    """Mount a file system; why that cannot be done, or nothing."""
    if os.geteuid() != 0:
        return "only root can mount a small file system"
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"no small file system can be mounted here: {done.stderr.strip()}"
    return ""


def fill(folder: Path) -> Path:
    """Let a file take all that is left; it is returned."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as filler:
        with suppress(OSError):  # others may be faster: then the rest below is more
            os.posix_fallocate(filler.fileno(), 0, free(folder))
            filler.seek(0, os.SEEK_END)
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


@pytest.fixture(autouse=True)
def lasting_disk(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say that everything is on a disk: what a file gets does not depend on the machine.

    For a whole folder: its ``conftest.py`` imports this.
    """
    table = tmp_path_factory.getbasetemp() / "mountinfo"
    table.write_text("36 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    monkeypatch.setattr(files, "MOUNT_TABLE", table)
