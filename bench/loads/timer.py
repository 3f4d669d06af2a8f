"""A timer that ``epoll`` can wait for to the microsecond; its own timeout counts milliseconds."""

import ctypes
import os
import time

_libc = ctypes.CDLL(None, use_errno=True)


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Time), ("value", _Time))


_ABSOLUTE = 1


class Timer:
    """timerfd_create(2), which Python has itself from 3.13 on."""

    def __init__(self) -> None:
        self._descriptor: int = _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def fileno(self) -> int:
        """The descriptor that becomes readable in time."""
        return self._descriptor

    def set(self, at: int) -> None:
        """Let it go off at *at* (nanoseconds of the monotonic clock), and not at another time."""
        setting = _Setting(value=_Time(*divmod(at, 1_000_000_000)))
        _libc.timerfd_settime(self._descriptor, _ABSOLUTE, ctypes.byref(setting), None)

    def clear(self) -> None:
        """Take note that it went off."""
        os.read(self._descriptor, 8)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)
