"""Makes connections to the server: by TLS or in clear, and with a password."""

import asyncio
import ssl
from collections.abc import Callable

from proxy.core.clock import Clock
from proxy.net.tls import client_context
from proxy.policy.settings.store import RedisSettings
from proxy.stores.redis.connection import RedisConnection


class RedisConnector:
    """Makes connections to one server. Its text is the server's name, without any secret."""

    def __init__(self, settings: RedisSettings, clock: Clock) -> None:
        self._settings = settings
        self.timeout = settings.timeout
        """Seconds in which the server must answer."""
        self._clock = clock
        self._tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        host = self._settings.host
        return f"{f'[{host}]' if ':' in host else host}:{self._settings.port}"

    async def connect(self, lost: Callable[[str], None]) -> RedisConnection:
        """Return a new connection, logged in; *lost* is called if it ends. The caller closes it.

        Raises StoreFailure or OSError. How long it takes is for the caller to limit.
        """
        settings = self._settings
        tls = settings.tls
        if tls is not None and self._tls is None:
            self._tls = client_context(tls, protocols=())
        connection = RedisConnection(self._clock, settings.timeout, lost)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection,
                settings.host,
                settings.port,
                ssl=self._tls,
                server_hostname=None if tls is None else tls.server_name or settings.host,
            )
            if settings.password is not None:
                user = () if settings.username is None else (settings.username,)
                await connection.request("AUTH", *user, settings.password)
            if settings.database:
                await connection.request("SELECT", settings.database)
        except BaseException:
            connection.close()
            raise
        return connection
