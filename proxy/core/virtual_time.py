"""Virtual time: an event loop in which waiting costs nothing, and a clock that reads it.

The loop's time is a number. While something is ready to run it stands still; when everything waits,
it jumps to the next timer. So the real stages of a route run through minutes in milliseconds, and
always in the same order: nothing depends on the machine. Connections are in memory
(``memory_transport.py``). What would bring real time in, such as a thread, a socket or a process,
is refused; and where nothing is left to wait for, the loop says so instead of waiting for ever.

For tests, ``explain`` and other simulations. Nothing that serves requests imports it.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from contextvars import Context
from heapq import heappush
from itertools import count
from math import ulp
from typing import Any, NoReturn, TypeVarTuple

from proxy.core.memory_transport import Address, MemoryServer, ProtocolFactory, connect

_Arguments = TypeVarTuple("_Arguments")

START = 1000.0
"""The time at which a virtual loop starts: as on a machine that has been up for a while. Code may
take a moment of 0 for none."""
START_OF_WALL = 1_700_000_000.0
"""Seconds since the epoch at which a virtual wall clock starts, unless it is told another."""
_FIRST_FREE_PORT = 49152
_ANYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound


class NotInVirtualTime(RuntimeError):
    """Something was asked of the loop that happens in real time."""


class NothingToWaitFor(RuntimeError):
    """All tasks wait, and nothing that could wake one is left: they would wait for ever."""


class _Timer(asyncio.TimerHandle):
    """A timer of a virtual loop: those of one moment are called in the order they were set in."""

    __slots__ = ("number",)

    number: int

    def __lt__(self, other: "_Timer") -> bool:  # type: ignore[override]  # a loop has no others
        return (self.when(), self.number) < (other.when(), other.number)


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose time jumps to the next timer whenever nothing is ready to run."""

    # Of the base class, which runs what is in it.
    _scheduled: list[_Timer]
    _check_thread: Callable[[], None]

    def __init__(self) -> None:
        super().__init__()
        self._selector = self
        """Asked for events by the base class, once a turn: see :meth:`select`."""
        self._set_time(START)
        self._timer_numbers = count()
        self._free_ports = count(_FIRST_FREE_PORT)
        self._servers: dict[Address, MemoryServer] = {}
        self.names: dict[str, list[str]] = {"localhost": ["127.0.0.1"]}
        """Addresses of host names; there are no others."""
        self.latencies: dict[Address, float] = {}
        """Seconds that bytes take on connections to an address, either way; 0 unless listed."""
        self.unreachable: set[Address] = set()
        """Addresses where a connect is neither accepted nor refused."""

    # Time.

    def time(self) -> float:
        """Return the present time, in seconds; the loop was made at ``START``."""
        return self._now

    def _set_time(self, now: float) -> None:
        self._now = now
        # The base class calls timers that are due before the present time and this together.
        self._clock_resolution = ulp(now)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call *callback* at *when*, after all that was set for the same moment before."""
        self._check_closed()  # type: ignore[attr-defined]  # of the base class
        timer = _Timer(when, callback, args, self, context)
        timer.number = next(self._timer_numbers)
        timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001 - its cancel() looks at it
        heappush(self._scheduled, timer)
        return timer

    def select(self, timeout: float | None) -> list[NoReturn]:
        """Jump to the next timer instead of waiting for it: nothing comes from outside."""
        if timeout is None:
            raise NothingToWaitFor(self._waiting_tasks())
        if timeout:
            # To the timer's own time: a difference added to the present one would be rounded.
            self._set_time(self._scheduled[0].when())
        return []

    def _process_events(self, event_list: list[NoReturn]) -> None:
        """Do nothing: there are no events but timers."""

    def _waiting_tasks(self) -> str:
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        lines = ["nothing is left to wait for, and not everything is done:"]
        for task in tasks:
            stack = task.get_stack(limit=1)
            where = f"{stack[0].f_code.co_filename}:{stack[0].f_lineno}" if stack else "nowhere"
            lines.append(f"  {task.get_name()} ({task.get_coro()!r}) waits in {where}")
        return "\n".join(lines)

    # Connections in memory.

    async def getaddrinfo(  # type: ignore[override]  # what of its arguments has a meaning here
        self, host: str | None, port: int | None, **_: object
    ) -> list[Any]:
        """Resolve a name of ``names``, or an address literal; raises ``socket.gaierror``."""
        name = host or "127.0.0.1"
        literal = ":" in name or name.replace(".", "").isdigit()
        found = [name] if literal else self.names.get(name, [])
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

    async def create_server(  # type: ignore[override]  # what of its arguments has a meaning here
        self,
        protocol_factory: ProtocolFactory,
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **_: object,
    ) -> MemoryServer:
        """Accept connections to *port* of *host*; port 0 is a free one. Raises OSError if taken."""
        _refuse_if(ssl, "TLS")
        _refuse_if(sock, "a socket")
        number = port or next(self._free_ports)
        addresses: list[Address] = [(host or "0.0.0.0", number)]  # noqa: S104 - of this loop alone
        if host not in (None, *_ANYWHERE):
            found = await self.getaddrinfo(host, number)
            addresses = [(answer[4][0], number) for answer in found]
        for address in addresses:
            if address in self._servers:
                raise OSError(errno.EADDRINUSE, f"address already in use: {address}")

        def forget() -> None:
            for address in addresses:
                del self._servers[address]

        server = MemoryServer(protocol_factory, addresses, forget)
        self._servers.update(dict.fromkeys(addresses, server))
        return server

    async def create_connection(
        self,
        protocol_factory: ProtocolFactory,
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        local_addr: Address | None = None,
        **_: object,
    ) -> tuple[asyncio.Transport, Any]:
        """Connect to a server of this loop. Raises OSError if none accepts."""
        _refuse_if(ssl, "TLS")
        _refuse_if(sock, "a socket")
        refusal: OSError | None = None
        for answer in await self.getaddrinfo(host, port):
            address: Address = answer[4]
            latency = self.latencies.get(address, 0.0)
            if address in self.unreachable:
                await self.create_future()
            # A round trip: until then the client does not know.
            await asyncio.sleep(2 * latency)
            server = self._server_at(address)
            if server is None:
                refusal = ConnectionRefusedError(
                    errno.ECONNREFUSED, f"Connect call failed {address}"
                )
                continue
            own_host, own_port = local_addr or (_own_host(address), 0)
            own = (own_host, own_port or next(self._free_ports))
            protocol = protocol_factory()
            return connect(self, protocol, server, (own, address), latency), protocol
        raise refusal or OSError("no address")

    def _server_at(self, address: Address) -> MemoryServer | None:
        anywhere = ((host, address[1]) for host in _ANYWHERE)
        found = (self._servers.get(candidate) for candidate in (address, *anywhere))
        return next(filter(None, found), None)

    # What there is none of.

    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call *callback* soon; refused from another thread, which comes at a time of its own."""
        try:
            self._check_thread()
        except RuntimeError:
            _refuse("a call from another thread")
        return self.call_soon(callback, *args, context=context)


def _own_host(address: Address) -> str:
    return "::1" if ":" in address[0] else "127.0.0.1"


def _refuse(what: str) -> NoReturn:
    raise NotInVirtualTime(
        f"{what} lives in real time, which this loop does not wait for; "
        "use a loop of asyncio or uvloop"
    )


def _refuse_if(given: object, what: str) -> None:
    if given:
        _refuse(what)


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        _refuse(f"{name}()")

    return refuse


for _name in (
    *("add_reader", "add_writer", "remove_reader", "remove_writer"),
    *("add_signal_handler", "remove_signal_handler"),
    *("sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall"),
    *("sock_sendto", "sock_connect", "sock_accept", "sock_sendfile", "sendfile", "start_tls"),
    *("connect_accepted_socket", "create_datagram_endpoint", "getnameinfo"),
    *("create_unix_connection", "create_unix_server"),
    *("run_in_executor", "set_default_executor"),
    *("connect_read_pipe", "connect_write_pipe", "subprocess_exec", "subprocess_shell"),
):
    setattr(VirtualLoop, _name, _refusing(_name))


class VirtualClock:
    """Time and random numbers of a simulation; implements :class:`proxy.core.clock.Clock`."""

    def __init__(
        self, loop: VirtualLoop, roll: Callable[[], float], wall: float = START_OF_WALL
    ) -> None:
        """*roll* is the source of random numbers; *wall* the date at which the loop began."""
        self.monotonic = loop.time
        self.roll = roll
        self._start_of_wall = wall

    def wall(self) -> float:
        return self._start_of_wall + self.monotonic() - START
