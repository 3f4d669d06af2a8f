"""A kit for tests over real sockets: a scripted upstream, the proxy, a raw client.

How to write one::

    from tests.support import ScriptedUpstream, answer, one_route, ok, running

    async def test_relays_what_the_upstream_says() -> None:
        async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
            upstream.script(answer(ok(b"hello", "X-Colour: red")))
            async with proxy.client() as client:
                response = await client.get("/path?q=1")
            assert (response.status, response.body) == (200, b"hello")
            assert upstream.requests[0].target == "/path?q=1"

- **ScriptedUpstream** records every request and treats it as scripted; beyond the
  script it does what is ``usual``. A behaviour is an async function of a
  :class:`Visit`, so a test may write its own; the ready-made ones are ``answer``,
  ``answer_and_close``, ``answer_and_reset``, ``answer_and_hang``, ``answer_early``,
  ``hang``, ``hang_up``, ``reset`` and ``stall``. ``greet`` treats a connection before
  its first request. To close an idle one: ``upstream.connections[0].wire.close()``.
- **running** starts the real ``App`` from the text of a configuration file, and fails
  the test if a task, a descriptor or a pooled connection outlives it, or if an error
  was logged; **running_together** starts several. **subprocess_proxy** is for signals and
  exit codes.
- **RawClient** (``proxy.client()``) sends bytes as told and reads strictly. How a
  connection ended is ``await client.ended()``: ``End.CLOSED`` or ``End.RESET``.
- Both sides read with ``messages``, which takes only canonical HTTP/1.1: what anybody
  could read in two ways fails the test.
- ``records.last_logged`` reads the access log and checks that the metrics say the same;
  ``clock.FakeClock`` is a clock to push forward, ``names.Names`` a name service,
  ``ports`` has ports that refuse and ports that say nothing, ``throttles`` tells who
  waits in the queue and what was decided.
- Wait with ``eventually(lambda: …)``, never by sleeping. Deadlines are generous; what must not
  take long is measured with ``witness.Stopwatch`` or ``witness.soon``, which take off the time that
  others had the cores. A store is patient (``RedisServer.line``) unless a test is about its outage.
- Tests run on uvloop; ``@both_loops`` runs one on asyncio's own loop as well.
- ``@virtual_time`` (or ``pytestmark = virtual_time``) runs the same kit in virtual time: the
  whole proxy, the upstream and the client over connections in memory. Waits cost nothing, so
  a test may sleep there; ``now()`` and ``wall()`` tell the time. What needs a socket, a thread,
  a file of SQLite, Redis, TLS or another process is refused there, and stays in real time.

Other folders build on these names: extend, do not rename.
"""

import pytest

from tests.support.certificates import Certificates
from tests.support.client import RawClient, request
from tests.support.messages import Message, NotCanonical, Request, Response
from tests.support.proxies import (
    REFUSES_503,
    Metrics,
    ProxyProcess,
    RunningProxy,
    one_route,
    running,
    running_together,
    subprocess_proxy,
)
from tests.support.upstream import (
    Behaviour,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_close,
    answer_and_hang,
    answer_and_reset,
    answer_early,
    chunked,
    close_at_once,
    hang,
    hang_up,
    ok,
    reset,
    reset_at_once,
    response,
    stall,
)
from tests.support.virtual import in_virtual_time, now, wall
from tests.support.waiting import PATIENCE, eventually
from tests.support.wire import End, Wire, WireEnded

both_loops = pytest.mark.asyncio(loop_factories=["uvloop", "asyncio"])
"""Runs a test on uvloop and on the loop that is used where there is none."""
virtual_time = pytest.mark.virtual_time
"""Runs a test in virtual time: ``pytestmark = virtual_time`` for a whole module.

Of such a module a test that asks for ``both_loops`` or ``real_time`` stays in real time.
"""
real_time = pytest.mark.asyncio(loop_factories=["uvloop"])
"""Runs one test of a module in virtual time on uvloop."""

__all__ = [
    "PATIENCE",
    "REFUSES_503",
    "Behaviour",
    "Certificates",
    "End",
    "Message",
    "Metrics",
    "NotCanonical",
    "ProxyProcess",
    "RawClient",
    "Request",
    "Response",
    "RunningProxy",
    "ScriptedUpstream",
    "Visit",
    "Wire",
    "WireEnded",
    "answer",
    "answer_and_close",
    "answer_and_hang",
    "answer_and_reset",
    "answer_early",
    "both_loops",
    "chunked",
    "close_at_once",
    "eventually",
    "hang",
    "hang_up",
    "in_virtual_time",
    "now",
    "ok",
    "one_route",
    "real_time",
    "request",
    "reset",
    "reset_at_once",
    "response",
    "running",
    "running_together",
    "stall",
    "subprocess_proxy",
    "virtual_time",
    "wall",
]
