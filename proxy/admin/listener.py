"""Open and close the admin site's socket."""

from pathlib import Path

from aiohttp import web

from proxy.admin.operations import Operations
from proxy.admin.site import AdminSite
from proxy.net.listen_socket import address_of, explained, remove_stale_socket
from proxy.policy.settings import Listen


class AdminListener:
    """The admin site on its address."""

    def __init__(self, operations: Operations, listen: Listen) -> None:
        self._listen = listen
        self._runner = AdminSite(operations, listen).runner()
        self._file: Path | None = None
        """The file of the unix socket once it is bound, to be removed at the end."""

    async def start(self) -> None:
        """Listen on the address. Raises CannotListen."""
        listen = self._listen
        await self._runner.setup()
        with explained(listen):
            if listen.path:
                remove_stale_socket(listen.path)
                await web.UnixSite(self._runner, listen.path).start()
                self._file = Path(listen.path)
            else:
                await web.TCPSite(self._runner, listen.host, listen.port).start()

    @property
    def bound(self) -> list[str]:
        """The addresses in use, with the ports that the system chose."""
        return [address_of(name) for name in self._runner.addresses]

    async def close(self) -> None:
        """Close the socket and its connections."""
        await self._runner.cleanup()
        if self._file is not None:
            self._file.unlink(missing_ok=True)
            self._file = None
