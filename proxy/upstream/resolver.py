"""Resolves names to addresses: looked up when first needed, and again while in use.

An address literal is its own answer. For a name both families are asked; the
answer is kept for :data:`FRESH_FOR` seconds and then renewed in the background,
so no request waits for DNS but the very first. A look-up that fails leaves the
last good answer in force.
"""

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address

from proxy.core.clock import Clock

FRESH_FOR = 30.0
"""Seconds after which a name is looked up again (the design's 30 s)."""
AT_LEAST_BETWEEN = 1.0
"""Seconds between two look-ups, however many connects fail."""


class Resolver:
    """Resolves one host to its addresses."""

    def __init__(self, host: str, port: int, clock: Clock, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._host = host
        self._port = port
        self._clock = clock
        self._looked_up_at = float("-inf")
        self._lookup: asyncio.Task[None] | None = None
        self.is_fixed = _is_literal(host)
        """Whether the host is an address itself."""
        self.found: tuple[str, ...] = (host,) if self.is_fixed else ()
        """The addresses of the last good look-up, in its order."""

    def __repr__(self) -> str:
        return f"<addresses {self._host} {' '.join(self.found) or 'unknown'}>"

    def renew_if_old(self) -> None:
        """Look the name up again in the background once the answer is FRESH_FOR seconds old."""
        if not self.is_fixed and self._clock.monotonic() - self._looked_up_at >= FRESH_FOR:
            self.renew()

    def renew(self) -> asyncio.Task[None] | None:
        """Look the name up again in the background, unless that was done a moment ago.

        Returns the look-up that is under way, for callers that must wait for it: the task
        never fails, and ``found`` has its result.
        """
        now = self._clock.monotonic()
        if self._lookup is None and not self.is_fixed:
            if self.found and now - self._looked_up_at < AT_LEAST_BETWEEN:
                return None
            self._looked_up_at = now
            self._lookup = asyncio.get_running_loop().create_task(self._look_up())
        return self._lookup

    async def _look_up(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
        except (OSError, UnicodeError):  # no such name, or none that DNS could have
            return  # the last good answer stays in force
        finally:
            self._lookup = None
        found = tuple(dict.fromkeys(str(answer[4][0]) for answer in answers))
        if found and found != self.found:
            self.found = found
            self._changed()

    def close(self) -> None:
        """Cancel the look-up that is under way."""
        if self._lookup is not None:
            self._lookup.cancel()


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
