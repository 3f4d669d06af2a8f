"""The stages of a configuration without a server: many requests at once, in virtual time."""

import asyncio
import random
import subprocess
import sys

import pytest

from proxy.core.client_identity import ClientIdentity
from proxy.core.clientless import ClientlessExchange
from proxy.core.virtual_time import START, VirtualClock, VirtualLoop
from proxy.http.refusal import Refusal
from proxy.http.request_head import read_request_head
from proxy.policy.attempt import FailureKind
from proxy.policy.settings import (
    Backoff,
    Match,
    Origin,
    Rate,
    RetrySettings,
    RouteSettings,
    Settings,
    ThrottleSettings,
    UpstreamSettings,
)
from proxy.simulation.proxy import SimulatedProxy
from proxy.simulation.scripted_peer import ScriptedOutcome, ScriptedPeer, accept

OUTCOMES = [
    ScriptedOutcome(status=200),
    ScriptedOutcome(status=200),
    ScriptedOutcome(status=503),
    ScriptedOutcome(status=429, fields=(b"Retry-After: 2",)),
    ScriptedOutcome(FailureKind.RESET),
    ScriptedOutcome(FailureKind.CONNECT),
]
UPSTREAM = UpstreamSettings("up", (Origin("https", "api.example", 443),), budget=None)
ROUTE = RouteSettings(
    "all",
    Match(),
    "up",
    timeout=None,
    retry=RetrySettings(attempts=4, backoff=Backoff(base=1.0)),
    throttle=ThrottleSettings((Rate(1, 1.0),), burst=5, max_wait=3600.0, max_queue=2000),
)


def simulate(requests: int, seed: int) -> tuple[float, list[object]]:
    """When the last of *requests* ended, and what became of each."""
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(run_all(loop, requests, random.Random(seed)))


async def run_all(
    loop: VirtualLoop, requests: int, chance: random.Random
) -> tuple[float, list[object]]:
    clock = VirtualClock(loop, chance.random)
    proxy = SimulatedProxy(Settings(upstreams=(UPSTREAM,), routes=(ROUTE,)), loop, clock)

    def next_peer() -> ScriptedPeer:
        return accept(chance.choice(OUTCOMES), lambda: None)

    await proxy.start(next_peer)
    head = read_request_head((), http_1_0=False)
    assert not isinstance(head, Refusal)
    exchanges = [
        ClientlessExchange(
            "GET",
            f"/{number}",
            head,
            proxy.routes[0],
            clock,
            settings=proxy.settings,
            request_id=str(number),
            identity=ClientIdentity("127.0.0.1", "http"),
            body=None,
        )
        for number in range(requests)
    ]
    await asyncio.gather(*(proxy.serve(exchange) for exchange in exchanges))
    proxy.close()
    return loop.time() - START, [
        (
            exchange.code,
            exchange.duration,
            [(a.started, a.queued, a.outcome, str(a.verdict)) for a in exchange.attempts],
        )
        for exchange in exchanges
    ]


def test_a_thousand_retried_and_throttled_gets() -> None:
    took, record = simulate(1000, seed=5)
    assert took > 1000
    codes = [entry[0] for entry in record]  # type: ignore[index]  # a tuple
    assert set(codes) <= {200, 429, 502, 503}
    assert codes.count(200) > 700
    assert record == simulate(1000, seed=5)[1]


def test_another_seed_is_another_course() -> None:
    assert simulate(30, seed=1)[1] != simulate(30, seed=2)[1]


@pytest.mark.parametrize("module", ["proxy.runtime.main", "proxy.runtime.workers.worker_main"])
def test_nothing_that_serves_loads_a_simulation(module: str) -> None:
    program = (
        f"import {module}, sys\n"
        "print([name for name in sys.modules if name.startswith(("
        "'proxy.simulation', 'proxy.explain', 'proxy.core.virtual', 'proxy.core.memory'))])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert result.stdout.decode().strip() == "[]"
