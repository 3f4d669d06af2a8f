from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import pytest

from proxy.core.exchange import Exchange
from proxy.core.recorders import ThrottleState
from proxy.http.refusal import Refusal
from proxy.observe.metrics import families
from proxy.observe.metrics.exposition import expose
from proxy.observe.metrics.recorders import UNMATCHED, Metrics
from proxy.observe.metrics.snapshot import ProcessSnapshot, Reading
from proxy.policy.attempt import Attempt, FailureKind, RetryDelay
from proxy.policy.breaker import BreakerState
from proxy.policy.dead_letter import DeadLetterCounts
from proxy.policy.delivery.counts import RouteDeliveries
from proxy.policy.delivery.line import LinePhase
from proxy.policy.delivery.words import DeliveryState
from proxy.policy.reasons import KeyResult, VerdictReason
from tests.support.exchanges import UnservedExchange


class AppMetrics(Metrics):
    """The metrics of an app that has these values; change the mappings to change them."""

    def __init__(self, readings: Callable[[], Iterable[Reading]]) -> None:
        super().__init__(version="1.2.3", parser="c", loaded_at=1700000000.5)
        self._readings = readings
        self.unmatched()

    def snapshot(self, *readings: Reading) -> ProcessSnapshot:
        return super().snapshot(*self._readings(), *readings)

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        return await expose(self.snapshot(), accept)


def metrics_of(
    *,
    lost_lines: int = 0,
    budgets: Mapping[str, float] | None = None,
    breakers: Mapping[str, int] | None = None,
    throttles: Mapping[tuple[str, str], ThrottleState] | None = None,
    store_state: str | None = None,
    transient: Mapping[tuple[str, str], frozenset[int]] | None = None,
) -> AppMetrics:
    """Metrics that ask for these values; change the mappings to change the answers."""

    def readings() -> Iterator[Reading]:
        states = {name: BreakerState(value) for name, value in (breakers or {}).items()}
        yield families.WORKERS.reading(1)
        yield families.LOST_LINES.reading(lost_lines)
        yield families.BUDGETS.reading(budgets or {})
        yield families.BREAKERS.reading(states)
        yield families.THROTTLES.reading(throttles or {})
        yield families.STORE_STATE.reading(store_state)
        yield families.TRANSIENT.reading(transient or {})
        counts = {"route-0": DeadLetterCounts(2, 1, 100, 1600000000.0)}
        yield families.DEAD_LETTERS.reading((0.0, counts))
        waiting = RouteDeliveries({DeliveryState.WAITING: 3}, 300, 1600000000.0, 1600000100.0)
        yield families.DELIVERIES.reading((0.0, {"route-0": waiting}))
        yield families.DELIVERY_LINES.reading({"upstream-0": LinePhase.CLOSED})

    return AppMetrics(readings)


def keep_only(
    metrics: Metrics,
    *,
    routes: Iterable[str],
    retrying: Iterable[str],
    upstreams: Iterable[str],
    throttles: Iterable[tuple[str, str]],
    with_keys: Iterable[str] = (),
    with_dead_letters: Iterable[str] = (),
) -> None:
    """Put a configuration in force that has these."""
    metrics.keep_only(
        {
            families.ROUTE: {(UNMATCHED,), *((name,) for name in routes)},
            families.RETRYING_ROUTE: {(name,) for name in retrying},
            families.KEYED_ROUTE: {(name,) for name in with_keys},
            families.DEAD_LETTER_ROUTE: {(name,) for name in with_dead_letters},
            families.UPSTREAM: {(name,) for name in upstreams},
            families.THROTTLE: set(throttles),
        }
    )


class MakeAttempt(Protocol):
    def __call__(
        self,
        number: int = 1,
        *,
        status: int = 200,
        kind: FailureKind | None = None,
        duration: float = 0.02,
        upstream: str = "payments",
        pause: RetryDelay | None = None,
        queued: float = 0.0,
        why: VerdictReason | None = None,
    ) -> Attempt: ...


class MakeExchange(Protocol):
    def __call__(
        self,
        *,
        method: str = "GET",
        target: str = "/v1/charges",
        code: int = 200,
        duration: float = 0.03,
        attempts: Iterable[Attempt] = (),
        refusal: Refusal | None = None,
        fallback: bool = False,
        key_result: KeyResult | None = None,
        record: str = "",
        dead_letter: str = "",
    ) -> Exchange: ...


@pytest.fixture
def attempt() -> MakeAttempt:
    def make(
        number: int = 1,
        *,
        status: int = 200,
        kind: FailureKind | None = None,
        duration: float = 0.02,
        upstream: str = "payments",
        pause: RetryDelay | None = None,
        queued: float = 0.0,
        why: VerdictReason | None = None,
    ) -> Attempt:
        made = Attempt(number, upstream, started=100.0 + number, delay=pause)
        made.queued = queued
        made.verdict = why
        made.address = "10.0.0.7:8443"
        made.status = status
        made.kind = kind
        made.duration = duration
        made.sent = kind is None or kind.may_have_run
        made.received = status != 0
        return made

    return make


@pytest.fixture
def exchange() -> MakeExchange:
    def make(
        *,
        method: str = "GET",
        target: str = "/v1/charges",
        code: int = 200,
        duration: float = 0.03,
        attempts: Iterable[Attempt] = (),
        refusal: Refusal | None = None,
        fallback: bool = False,
        key_result: KeyResult | None = None,
        record: str = "",
        dead_letter: str = "",
    ) -> Exchange:
        made = UnservedExchange(method, target, peer="192.0.2.9", started=100.0)
        made.set_request_id("0af7651916cd43dd8448eb211c80319c")
        made.duration = duration
        made.attempts = list(attempts)
        made.refusal = refusal
        made.fallback = fallback
        made.key_result = key_result
        made.record = record
        made.dead_letter = dead_letter
        made.code = code
        made.bytes_sent = 1234
        return made

    return make
