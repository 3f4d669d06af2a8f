"""Notify systemd of start, reload and shutdown, where it asks for it (``Type=notify``).

All that is needed of sd_notify(3): a line or two per datagram, to the socket that
``NOTIFY_SOCKET`` names. Nothing depends on the success of a notification, but for the watchdog:
where ``WatchdogSec`` is set, the event loop says that it is alive, and systemd restarts a process
whose loop does not.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

from proxy.core.clock import SystemClock

_log = logging.getLogger("holdfast")


class SystemdNotifier:
    """Notifies the service manager; does nothing where there is none."""

    def __init__(self, address: str | None = None, watchdog: float | None = None) -> None:
        """*address* is a path, or begins with ``@`` for an abstract socket.

        *watchdog* is after how many seconds of silence the service manager ends this process.
        """
        self._address = address and (f"\0{address[1:]}" if address[0] == "@" else address)
        self._serving = False
        self.watchdog = watchdog if address else None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "SystemdNotifier":
        """Make the notifier that the service manager asks for in the environment."""
        return cls(environ.get("NOTIFY_SOCKET"), _watchdog_seconds(environ))

    def keep_alive(self) -> None:
        """Notify from now on that the running event loop is alive, twice per interval."""
        if self.watchdog is not None:
            self._notify("WATCHDOG=1")
            asyncio.get_running_loop().call_later(self.watchdog / 2, self.keep_alive)

    def ready(self) -> None:
        """Notify that requests are taken."""
        self._serving = True
        self._notify("READY=1", "STATUS=serving")

    def reloading(self) -> None:
        """Notify that the configuration is being read again; :meth:`reloaded` follows."""
        if self._serving:
            # For Type=notify-reload: tells systemd which of several signals this answers.
            now = int(SystemClock().monotonic() * 1_000_000)
            self._notify("RELOADING=1", f"MONOTONIC_USEC={now}")

    def reloaded(self, *, succeeded: bool) -> None:
        """Notify that a reload is over: requests are taken by the new configuration or the old."""
        if self._serving:
            rest = "" if succeeded else "; the last reload was refused"
            self._notify("READY=1", f"STATUS=serving{rest}")

    def stopping(self) -> None:
        """Notify that the process drains, and ends when that is over."""
        self._serving = False
        self._notify("STOPPING=1", "STATUS=draining")

    def _notify(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
                sock.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            _log.warning("the service manager was not told %s (%s)", lines[0], error)


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Return the interval of the watchdog; None if there is none, or another process is meant."""
    microseconds, process = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or int(microseconds) == 0:
        return None
    return int(microseconds) / 1_000_000 if process in ("", str(os.getpid())) else None
