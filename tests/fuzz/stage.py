"""One upstream and one proxy for many random cases.

hypothesis calls a property hundreds of times; to start a proxy for each would
take longer than the cases. So all cases of a test share one, and what ``running``
asserts at the end (nothing left, nothing logged as an error) holds for all of them.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from threading import Thread
from typing import Any, Protocol, TypeVar

import uvloop

from tests.support import RunningProxy, ScriptedUpstream, running

T = TypeVar("T")

SOON = 0.06
"""Seconds of the short deadlines: a case that leaves something open ends after one or two."""


def _config(upstream: ScriptedUpstream, limits: str) -> str:
    """Short deadlines for everything but ``/patient``."""
    return f"""
limits: {limits}
upstreams: {{scripted: {upstream.url}}}
routes:
  - {{match: /patient/**, upstream: scripted}}
  - {{match: /**, upstream: scripted, timeout: {2 * SOON}s, idle_timeout: {SOON}s}}
"""


class Run(Protocol):
    """Runs a coroutine on the loop, and waits for it."""

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T: ...


class Stage:
    """The upstream, the proxy, and the loop on which both run."""

    def __init__(self, run: Run, upstream: ScriptedUpstream, proxy: RunningProxy) -> None:
        self._run = run
        self.upstream = upstream
        self.proxy = proxy

    def run(self, case: Callable[["Stage"], Coroutine[Any, Any, None]]) -> None:
        """Run one case to its end, and see that nothing went wrong meanwhile."""
        self.upstream.requests.clear()
        self.upstream.violations.clear()
        self.proxy.complaints.clear()
        self._run(case(self))
        assert self.upstream.violations == []
        assert self.proxy.complaints == []


@contextmanager
def stage(upstream: ScriptedUpstream, limits: str = "{}") -> Iterator[Stage]:
    """A proxy with short deadlines in front of *upstream*, for as many cases as one likes."""
    with in_a_loop() as run:
        scope = AsyncExitStack()

        async def enter() -> RunningProxy:
            await scope.enter_async_context(upstream)
            return await scope.enter_async_context(running(_config(upstream, limits)))

        proxy = run(enter())
        try:
            yield Stage(run, upstream, proxy)
        except BaseException:
            run(scope.__aexit__(*sys.exc_info()))
            raise
        run(scope.aclose())


@contextmanager
def in_a_loop() -> Iterator[Run]:
    """A loop in a thread of its own: it keeps turning between two cases, as it would in life."""
    loop = uvloop.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    try:
        yield run
    finally:
        run(loop.shutdown_default_executor())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
