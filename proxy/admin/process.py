"""The process: probes, metrics, status, recent requests, and its configuration."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from aiohttp import hdrs, web

from proxy.admin.declaration import Endpoint, WorkerRule
from proxy.admin.responses import data, document, problem

_is_request_id = re.compile(r"[A-Za-z0-9._-]{1,128}").fullmatch


def _by_time(parts: Sequence[Sequence[dict[str, object]]]) -> list[dict[str, object]]:
    """Merge the requests that workers remember."""
    return sorted((found for part in parts for found in part), key=lambda found: str(found["time"]))


@dataclass(frozen=True, slots=True)
class Reloaded:
    """How a reload ended."""

    faults: Sequence[str] = ()
    """Why the configuration before stays in force, in the lines that ``holdfast check`` prints."""
    warnings: Sequence[str] = ()
    """What is allowed and probably not meant, likewise."""
    changes: Sequence[dict[str, object]] = ()
    """What differs from the configuration before, ready for JSON."""
    files: Sequence[str] = ()
    """The files that were read; none where ``--upstream`` stands for a file."""

    @property
    def in_force(self) -> bool:
        """Whether the configuration that was read is in force."""
        return not self.faults


class ProcessOperations(Protocol):
    """What an operator may see and do of the process. A supervisor does most of it itself."""

    def token(self) -> str | None:
        """Return the token that requests must have at present; None if they need none."""

    def not_ready(self) -> str | None:
        """Say why no requests are taken (``starting``, ``draining``, ``switched_off``), or None."""

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format that *accept* asks for, and its content type."""

    async def status(self) -> dict[str, object]:
        """Return what goes on, in values that JSON can carry."""

    @WorkerRule(merge=_by_time)
    async def find_attempts(self, request_id: str) -> list[dict[str, object]]:
        """Return the recent notable requests with that id, the oldest first, ready for JSON."""

    def config(self) -> dict[str, object]:
        """Return the configuration in force with its secrets masked, ready for JSON."""

    async def reload(self) -> Reloaded:
        """Read the configuration again and put it in force, or leave all as it is."""


class ProcessResource:
    """The handlers of the process's own paths."""

    def __init__(self, operations: ProcessOperations) -> None:
        self._operations = operations

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield every endpoint of the process."""
        yield Endpoint("GET", "/status", self._status, "/status")
        yield Endpoint("GET", "/attempts", self._attempts, "/attempts?request_id=ID")
        yield Endpoint("GET", "/config", self._config, "/config")
        yield Endpoint("GET", "/metrics", self._metrics, "/metrics", needs_token=False)
        yield Endpoint("GET", "/healthz", _healthz, "/healthz", needs_token=False)
        yield Endpoint("GET", "/readyz", self._readyz, "/readyz", needs_token=False)
        yield Endpoint("POST", "/-/reload", self._reload)

    async def _status(self, _request: web.Request) -> web.Response:
        return document(await self._operations.status())

    async def _attempts(self, request: web.Request) -> web.Response:
        """Answer with every recent notable request of an id; clients may use an id again."""
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

    async def _config(self, _request: web.Request) -> web.Response:
        return document(self._operations.config())

    async def _metrics(self, request: web.Request) -> web.Response:
        accept = ",".join(request.headers.getall(hdrs.ACCEPT, []))
        return data(*await self._operations.metrics(accept))

    async def _readyz(self, _request: web.Request) -> web.Response:
        reason = self._operations.not_ready()
        if reason is None:
            return document({"ready": True})
        return document({"ready": False, "reason": reason}, status=503)

    async def _reload(self, _request: web.Request) -> web.Response:
        ended = await self._operations.reload()
        warnings = list(ended.warnings)
        if not ended.in_force:
            return problem(
                422,
                "config",
                "The configuration before it stays in force.",
                faults=list(ended.faults),
                warnings=warnings,
            )
        return document(
            {
                "result": "reloaded",
                "files": list(ended.files),
                "changes": list(ended.changes),
                "warnings": warnings,
            }
        )


async def _healthz(_request: web.Request) -> web.Response:
    return data(b"ok\n", "text/plain; charset=utf-8")


def _unknown(request_id: str) -> web.Response:
    return problem(
        404,
        "no_attempts",
        "Only the last notable requests are kept: those that access_log: notable has a line for. "
        "It was not one of them, is too long ago, or went to another instance; with access_log: "
        "none there are none.",
        request_id=request_id,
    )
