"""What a client is told when an attempt failed."""

import asyncio
from typing import cast

import pytest

from proxy import pipeline
from proxy.core.clock import SystemClock
from proxy.net.write_coalescer import WriteCoalescer
from proxy.observe.metrics.recorders import Metrics
from proxy.pipeline.deadlines import Deadlines
from proxy.pipeline.idempotency.in_flight import InFlightKeys, ResultMemory
from proxy.pipeline.retry_waits import RetryWaits
from proxy.pipeline.services import RouteServices
from proxy.pipeline.single_attempt import NO_LIMIT, SingleAttempt
from proxy.policy.attempt import FailureKind
from proxy.policy.failure_answers import ANSWERS
from proxy.policy.settings import (
    Match,
    MemorySettings,
    Origin,
    RouteSettings,
    UpstreamSettings,
)
from proxy.stores.dead_letters import DeadLetterStore
from proxy.stores.deliveries import FileDeliveryStore
from proxy.stores.memory import MemoryIdempotencyStore
from proxy.upstream.upstream import Upstream
from tests.pipeline.twins import outcomes
from tests.support import virtual_time

pytestmark = virtual_time


ENDS_WITHOUT_AN_ANSWER = {FailureKind.TRUNCATED, FailureKind.CANCELLED}
"""The head was relayed already, or nobody is there to be told."""


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        pytest.param(FailureKind.CONNECT, 502, id="no connection is a bad gateway"),
        pytest.param(FailureKind.RESET, 502, id="a connection that ended is a bad gateway"),
        pytest.param(FailureKind.TIMEOUT, 504, id="silence is a gateway timeout"),
        pytest.param(FailureKind.PROTOCOL, 502, id="a broken answer is a bad gateway"),
        pytest.param(FailureKind.CERTIFICATE, 502, id="a stranger is a bad gateway"),
        pytest.param(FailureKind.BUSY, 503, id="too many at once are told to come back"),
        pytest.param(FailureKind.UNKNOWN, 502, id="anything else is a bad gateway"),
    ],
)
def test_each_kind_has_its_answer(kind: FailureKind, status: int) -> None:
    refusal = ANSWERS[kind]
    assert (refusal.reason.value, refusal.status) == (kind.value, status)
    assert refusal.detail
    assert not refusal.close, "the client's connection is as good as before"


def test_no_kind_is_without_one() -> None:
    assert set(ANSWERS) == set(FailureKind) - ENDS_WITHOUT_AN_ANSWER


@pytest.mark.parametrize("limit", [None, 30.0], ids=["without a timeout", "with a timeout"])
async def test_a_route_without_policies_is_the_bare_upstream_call(limit: float | None) -> None:
    clock = SystemClock()
    settings = UpstreamSettings("a", (Origin("http", "127.0.0.1", 9),))
    upstream = Upstream(settings, None, clock, WriteCoalescer())
    asked: list[float] = []

    def deadlines(seconds: float) -> Deadlines:
        asked.append(seconds)
        return Deadlines(seconds, clock)

    dead_letters = DeadLetterStore("nowhere", clock, Metrics(version="", parser="", loaded_at=0.0))
    store = MemoryIdempotencyStore(
        MemorySettings(), clock, Metrics(version="", parser="", loaded_at=0.0)
    )
    in_flight = InFlightKeys(store, clock, cast("ResultMemory", None))
    deliveries = FileDeliveryStore("nowhere", clock, entries=1, size=1)
    services = RouteServices(
        upstreams={"a": upstream},
        budgets={},
        deadlines=deadlines,
        throttles={},
        keyed=(),
        in_flight=in_flight,
        dead_letters=dead_letters,
        deliveries=deliveries,
        delivery_status=None,
        retry_waits=RetryWaits(),
        clock=clock,
    )
    handler = pipeline.build(RouteSettings("a", Match(), "a", timeout=limit), services)
    forward = getattr(handler, "__self__", None)
    assert isinstance(forward, SingleAttempt)
    assert handler == forward.handle
    assert asked == [NO_LIMIT if limit is None else limit]
    upstream.endpoints.close()
    await asyncio.sleep(0)


# Twins: what is said twice for speed comes to the same.


@pytest.mark.parametrize(
    ("route", "options"),
    [
        ("timeout: 2s", ""),
        ("timeout: 50ms", "breaker: {min_requests: 2, open_for: 1s}"),
        ("timeout: 50ms\nthrottle: 10/s", ""),
        ("timeout: 2s\nthrottle: {rate: 10/s, max_wait: 10s}", "throttle: {concurrency: 1}"),
        ("timeout: 2s\nthrottle: 10/s", "breaker: {min_requests: 2, open_for: 1s}"),
    ],
)
async def test_handle_comes_to_the_same_as_its_parts(
    monkeypatch: pytest.MonkeyPatch, route: str, options: str
) -> None:
    in_one = await outcomes(route, options)
    monkeypatch.setattr(SingleAttempt, "handle", SingleAttempt.make_one)
    assert await outcomes(route, options) == in_one
