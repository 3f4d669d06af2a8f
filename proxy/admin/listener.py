"""Opening and closing the admin site's socket."""

import ssl

from aiohttp import web

from proxy.admin import Operations
from proxy.admin.site import AdminSite
from proxy.policy.settings import Listen


class AdminListener:
    """The admin site on its address."""

    def __init__(self, operations: Operations, listen: Listen) -> None:
        self._listen = listen
        self._runner = AdminSite(operations, listen).runner()
        self._context: ssl.SSLContext | None = None

    async def start(self) -> None:
        """Listen. Raises OSError."""
        listen = self._listen
        if listen.tls is not None:
            self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.read_certificate_again()
        await self._runner.setup()
        site: web.BaseSite = (
            web.UnixSite(self._runner, listen.path, ssl_context=self._context)
            if listen.path
            else web.TCPSite(self._runner, listen.host, listen.port, ssl_context=self._context)
        )
        await site.start()

    def read_certificate_again(self) -> None:
        """New handshakes use what the files hold now."""
        if self._context is not None and self._listen.tls is not None:
            self._context.load_cert_chain(self._listen.tls.cert, self._listen.tls.key)

    @property
    def bound(self) -> list[str]:
        """The addresses in use, with the ports that the system chose."""
        return [
            f"unix:{name}" if isinstance(name, str) else f"{name[0]}:{name[1]}"
            for name in self._runner.addresses
        ]

    async def close(self) -> None:
        """Close the socket and its connections."""
        await self._runner.cleanup()
