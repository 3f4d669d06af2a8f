"""Reads the short JSON body that some operations are given."""

import asyncio
import json

from aiohttp import hdrs, web

from proxy.admin.responses import problem

BODY_WITHIN = 10.0
"""Seconds for the few bytes of it."""


async def read_object(request: web.Request, known: frozenset[str]) -> dict[str, object] | None:
    """Return the JSON object of a body, empty without one; None if it is anything else.

    A member that is not *known* makes it another one. Raises :class:`SlowBody`.
    """
    try:
        async with asyncio.timeout(BODY_WITHIN):
            body = await request.read()
    except TimeoutError:
        raise SlowBody from None
    if not body:
        return {}
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) and content.keys() <= known else None


class SlowBody(Exception):
    """The body did not arrive in time."""

    def response(self) -> web.Response:
        """Return the problem that says so."""
        return problem(408, "slow_client", "Send the body at once.", {hdrs.CONNECTION: "close"})
