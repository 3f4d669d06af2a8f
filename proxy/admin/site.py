"""The admin listener as an aiohttp application: an access check, then one handler per path."""

import logging

from aiohttp import hdrs, web

from proxy.admin.access import host_is_ours, origin_is_ours, token_is_right
from proxy.admin.dead_letters import DeadLettersResource
from proxy.admin.declaration import Handler
from proxy.admin.deliveries import DeliveriesResource
from proxy.admin.keys import KeysResource
from proxy.admin.operations import Operations
from proxy.admin.process import ProcessResource
from proxy.admin.responses import problem
from proxy.policy.settings import Listen

_log = logging.getLogger("holdfast.admin")

_LARGEST_BODY = 64 * 1024
"""Bytes of a request's body: only a replay has one, with a few header fields."""


class AdminSite:
    """Answers operators on one listener, whose socket :class:`AdminListener` opens."""

    def __init__(self, operations: Operations, listen: Listen) -> None:
        self._operations = operations
        self._listen = listen
        self._endpoints = (
            *ProcessResource(operations).endpoints(),
            *KeysResource(operations).endpoints(),
            *DeadLettersResource(operations).endpoints(),
            *DeliveriesResource(operations).endpoints(),
        )

    def runner(self) -> web.AppRunner:
        """Make the runner of the site, with its time limits."""
        return web.AppRunner(
            self.application(),
            access_log=None,
            # Bounds an idle connection, and one that never completes its first head.
            keepalive_timeout=15.0,
            # How long to read on the rest of a request that was answered early.
            lingering_time=1.0,
            # A client that does not take its answer must not delay the exit.
            shutdown_timeout=1.0,
        )

    def application(self) -> web.Application:
        """Make the application: the routes behind the access check."""
        application = web.Application(
            middlewares=[self._check_access], client_max_size=_LARGEST_BODY
        )
        for endpoint in self._endpoints:
            handler = endpoint.handler
            if endpoint.needs_token:
                handler = self._with_token(handler)
            if endpoint.method == hdrs.METH_GET:
                application.router.add_get(endpoint.path, handler, allow_head=endpoint.has_head)
            else:
                application.router.add_route(endpoint.method, endpoint.path, handler)
        return application

    @web.middleware
    async def _check_access(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests of other sites, and turn every error into a problem."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return problem(
                404,
                "not_found",
                f"See {', '.join(endpoint.hint for endpoint in self._endpoints if endpoint.hint)}.",
            )
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            return problem(405, "method", f"Allowed: {allowed}.", {hdrs.ALLOW: allowed})
        except web.HTTPRequestEntityTooLarge:
            return _too_large()  # in chunks, so that the length was not known before
        except Exception:  # noqa: BLE001 - whatever it was, the response must not show it
            _log.exception("admin request failed")
            return problem(500, "internal", "The log of the process has the details.")

    def _refusal(self, request: web.Request) -> web.Response | None:
        if (request.content_length or 0) > _LARGEST_BODY:
            return _too_large()
        # aiohttp lets Host be absent in HTTP/1.0 alone, and no browser speaks that any more.
        host = request.headers.get(hdrs.HOST)
        if host is not None and not host_is_ours(host, self._listen):
            return problem(
                403,
                "foreign_host",
                "Use an address, localhost, or the name in the admin setting as the host.",
            )
        origins = request.headers.getall(hdrs.ORIGIN, [])
        if request.headers.get("Sec-Fetch-Site") == "cross-site" or not all(
            origin_is_ours(origin, host or "") for origin in origins
        ):
            return problem(403, "foreign_origin", "Pages of other sites have no access.")
        return None

    def _with_token(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            token = self._operations.token()
            given = request.headers.get(hdrs.AUTHORIZATION, "")
            if token is not None and not token_is_right(given, token):
                return problem(
                    401,
                    "token",
                    "Send the admin token as Authorization: Bearer TOKEN.",
                    {hdrs.WWW_AUTHENTICATE: 'Bearer realm="holdfast"'},
                )
            return await handler(request)

        return guarded


def _too_large() -> web.Response:
    return problem(413, "body_too_large", "Send less, or no body.", {hdrs.CONNECTION: "close"})
