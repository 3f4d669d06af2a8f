"""The handler that shows one request, attempt by attempt, to an operator."""

import re

from aiohttp import web

from proxy.admin.operations import Operations
from proxy.admin.responses import document, problem

_is_request_id = re.compile(r"[A-Za-z0-9._-]{1,128}").fullmatch


class AttemptsResource:
    """The handler of ``/attempts?request_id=ID``."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def show(self, request: web.Request) -> web.Response:
        """Answer with every recent notable request of this id; clients may use an id again."""
        request_id = request.query.get("request_id", "")
        if not _is_request_id(request_id):
            return problem(
                400,
                "bad_request",
                "Ask for /attempts?request_id=ID, with the X-Request-Id of an answer.",
            )
        found = await self._operations.find_attempts(request_id)
        if not found:
            return _unknown(request_id)
        return document({"request_id": request_id, "requests": found})


def _unknown(request_id: str) -> web.Response:
    return problem(
        404,
        "no_attempts",
        "Only the last notable requests are kept: those that access_log: notable has a line for. "
        "It was not one of them, is too long ago, or went to another instance; with access_log: "
        "none there are none.",
        request_id=request_id,
    )
