"""A name service that says what the test wants."""

import asyncio
import socket
from typing import Any


class Names:
    """Answers for host names, given in place of the system's by the running loop.

    It stands where our code meets the system (``loop.getaddrinfo``), so nothing of
    ours is replaced.
    """

    def __init__(self, **answers: list[str]) -> None:
        self._answers = answers
        self.asked: list[str] = []
        """Every look-up, in order."""
        self._silent = asyncio.Event()
        self._silent.set()
        # An attribute of this one loop, which ends with the test.
        asyncio.get_running_loop().getaddrinfo = self._look_up  # type: ignore[method-assign,assignment]  # the loop is the test's own

    def set(self, name: str, *addresses: str) -> None:
        """From now on *name* stands for these; for none: there is no such name."""
        self._answers[name] = list(addresses)

    def fall_silent(self) -> None:
        """Give no answer at all, until :meth:`speak`."""
        self._silent.clear()

    def speak(self) -> None:
        """Answer everything that was asked meanwhile."""
        self._silent.set()

    async def _look_up(self, host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        found = [host] if _is_literal(host) else await self._answer(host)
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                socket.IPPROTO_TCP,
                "",
                (address, port),
            )
            for address in found
        ]

    async def _answer(self, name: str) -> list[str]:
        self.asked.append(name)
        await self._silent.wait()
        return self._answers.get(name, [])


def _is_literal(host: str) -> bool:
    """Whether it is an address, which no name service is asked about."""
    return ":" in host or host.replace(".", "").isdigit()
