"""Telling systemd how far we are, where it asks for it (``Type=notify``).

All that is needed of sd_notify(3): a line or two per datagram, to the socket that
``NOTIFY_SOCKET`` names. Nobody else hears of it, and nothing depends on its success.
"""

import logging
import socket

from proxy.core.clock import SystemClock

_log = logging.getLogger("holdfast")


class SystemdNotifier:
    """Speaks to the service manager; says nothing where there is none."""

    def __init__(self, address: str | None = None) -> None:
        """*address* is a path, or begins with ``@`` for an abstract socket."""
        self._address = address and (f"\0{address[1:]}" if address[0] == "@" else address)
        self._serving = False

    def ready(self) -> None:
        """Requests are taken."""
        self._serving = True
        self._tell("READY=1", "STATUS=serving")

    def reloading(self) -> None:
        """The configuration is being read again; :meth:`reloaded` follows."""
        if self._serving:
            # For Type=notify-reload: which of several signals this is the answer to.
            now = int(SystemClock().monotonic() * 1_000_000)
            self._tell("RELOADING=1", f"MONOTONIC_USEC={now}")

    def reloaded(self, *, succeeded: bool) -> None:
        """Requests are taken as before, or as the new configuration says."""
        if self._serving:
            rest = "" if succeeded else "; the last reload was refused"
            self._tell("READY=1", f"STATUS=serving{rest}")

    def stopping(self) -> None:
        """It is draining, and ends when that is over."""
        self._serving = False
        self._tell("STOPPING=1", "STATUS=draining")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
                sock.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            _log.warning("the service manager was not told %s (%s)", lines[0], error)
