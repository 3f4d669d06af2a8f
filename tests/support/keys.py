"""Requests with an idempotency key, and upstreams that take their time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from tests.support.messages import Response
from tests.support.proxies import RunningProxy, ServedBy, one_route, running
from tests.support.upstream import Behaviour, ScriptedUpstream, Visit, ok

KEY = "Idempotency-Key: 8e03978e-40d5-43e8-bc93-6894a57f9324"


@asynccontextmanager
async def keyed(
    settings: str = "true", route: str = "", *, options: str = "", top: str = ""
) -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    """An upstream, and a proxy with one route that heeds keys as *settings* say.

    More lines of YAML as in :func:`one_route`.
    """
    text = f"idempotency: {settings}\n{route}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, text, options=options, top=top)) as proxy,
    ):
        yield upstream, proxy


def new_key() -> str:
    """A field with a key that nobody has used."""
    return f"Idempotency-Key: {uuid4()}"


async def post(
    proxy: ServedBy, *fields: str, body: bytes = b"pay", target: str = "/", method: str = "POST"
) -> Response:
    """POST over a connection of its own, with :data:`KEY` unless *fields* has another one."""
    if not any(field.lower().startswith("idempotency-key:") for field in fields):
        fields = (KEY, *fields)
    async with proxy.client() as client:
        return await client.request(method, target, *fields, body=body)


class Gate:
    """An upstream's answer that waits until the test lets it go."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces or (ok(),)
        self._open = asyncio.Event()
        self.reached = asyncio.Event()
        """Set once a request has come."""

    def open(self) -> None:
        """Let it answer."""
        self._open.set()

    @property
    def behaviour(self) -> Behaviour:
        """For a script."""
        return self._behave

    async def _behave(self, visit: Visit) -> None:
        await visit.read_body()
        self.reached.set()
        await self._open.wait()
        await visit.send(*self._pieces)


def is_replayed(answer: Response) -> bool:
    """Whether it is marked as one that was given before."""
    return answer.all("Idempotent-Replayed") == ["true"]
