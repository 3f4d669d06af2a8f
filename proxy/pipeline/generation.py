"""All that serves one configuration: upstreams, budgets, throttles, deadlines, routes.

A reload builds another generation from the one in force. State belongs to the name of
what it is about, and is carried over to the next generation where its settings stay the same:
connections, breakers, what was spent of a budget. A throttle is carried over in any case,
with the requests in its wait queue. Nothing of the old generation changes until the new one
is put in force.
"""

import hashlib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from proxy.core.clock import Clock
from proxy.core.ports import DeadLetterSink
from proxy.core.recorders import AddressState, ThrottleRecorder, ThrottleState
from proxy.core.route import Recorder, Route
from proxy.net.tls import client_context
from proxy.net.write_coalescer import WriteCoalescer
from proxy.pipeline import build, build_delivery
from proxy.pipeline.deadlines import Deadlines
from proxy.pipeline.hand_off.attempt import DeliveryRoute
from proxy.pipeline.idempotency.in_flight import InFlightKeys
from proxy.pipeline.retry_waits import RetryWaits
from proxy.pipeline.services import RouteServices
from proxy.pipeline.throttle.async_limiter import OpenBucket
from proxy.pipeline.throttle.throttle import Throttle
from proxy.policy.breaker import BreakerState
from proxy.policy.caller_fields import SingleFields, single_fields
from proxy.policy.failure_category import transient_statuses
from proxy.policy.retry.budget import Budget
from proxy.policy.settings import (
    BudgetSettings,
    RouteSettings,
    Settings,
    ThrottleSettings,
    UpstreamSettings,
    UpstreamTls,
)
from proxy.stores.deliveries.ports import DeliverySink
from proxy.upstream.breakers import Breakers
from proxy.upstream.upstream import Upstream

_UpstreamKey = tuple[UpstreamSettings, bytes]
"""Equal keys mean the same settings, and the same content of the files that they name.

The settings of its budget and its throttle are left out: they are no reason to close connections.
"""

_ThrottleLabel = tuple[str, str]
"""A throttle's scope (``route`` or ``upstream``) and the name in the configuration."""

TlsContexts = Mapping[_UpstreamKey, ssl.SSLContext | None]
"""What each upstream connects with; None for plain HTTP, and for an upstream that is kept."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What serves one configuration; the one before the first is empty."""

    upstreams: Mapping[_UpstreamKey, Upstream] = field(default_factory=dict)
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    """By upstream, where a route retries it and it has a budget."""
    throttles: Mapping[_ThrottleLabel, Throttle] = field(default_factory=dict)
    limits: Mapping[_ThrottleLabel, ThrottleSettings] = field(default_factory=dict)
    """The settings of each throttle once this generation is in force."""
    names: frozenset[_ThrottleLabel] = frozenset()
    """Every route and upstream, whether it has a throttle or not."""
    deadlines: Mapping[float, Deadlines] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    delivering: Mapping[str, DeliveryRoute] = field(default_factory=dict)
    """The routes that hand off, by name."""

    def read_tls_contexts(self, settings: Settings) -> TlsContexts:
        """Read the TLS files that the upstreams of *settings* name; may wait for a disk."""
        # Most upstreams have the same settings, and the system's authorities are many.
        context_for = cache(client_context)
        contexts = {}
        for wanted in settings.upstreams:
            key = (replace(wanted, budget=None, throttle=None), _fingerprint(wanted.tls))
            is_new = key not in self.upstreams
            speaks_tls = any(origin.scheme == "https" for origin in wanted.origins)
            contexts[key] = context_for(wanted.tls) if is_new and speaks_tls else None
        return contexts

    def succeed(self, old: "Generation") -> None:
        """Take over from *old*: apply the new limits, retire upstreams that are gone."""
        for label, throttle in self.throttles.items():
            throttle.change(self.limits[label])
        for label in old.throttles.keys() - self.throttles.keys():
            # Requests in the queue of a route or upstream that is not limited any more may go.
            # Where the route itself is gone, they go on under the limit they began with.
            if label in self.names:
                old.throttles[label].change(_NO_LIMIT)
        for key, upstream in old.upstreams.items():
            if key not in self.upstreams:
                upstream.endpoints.retire()

    def close(self) -> None:
        """Close every connection, throttle and timer at the end of the process."""
        for upstream in self.upstreams.values():
            upstream.endpoints.close()
        for throttle in self.throttles.values():
            throttle.close()
        for deadlines in self.deadlines.values():
            deadlines.close()

    def budgets_left(self, now: float) -> dict[str, float]:
        """Return how many retries the budget of each upstream allows now."""
        return {name: budget.remaining(now) for name, budget in self.budgets.items()}

    def throttle_states(self, now: float) -> dict[_ThrottleLabel, ThrottleState]:
        """Return the queue, the slots in use and the pauses of each throttle."""
        return {label: throttle.state(now) for label, throttle in self.throttles.items()}

    def breaker_states(self, now: float) -> dict[str, BreakerState]:
        """Return, for each upstream with breakers, the state of its best address."""
        return {
            upstream.settings.name: upstream.endpoints.best_state(now)
            for upstream in self.upstreams.values()
            if upstream.endpoints.breakers is not None
        }

    def address_states(self, now: float) -> dict[str, list[AddressState]]:
        """Return, for each upstream, its addresses with their connections and breakers."""
        return {
            upstream.settings.name: [
                AddressState(
                    address=pool.label,
                    open=pool.open_connections,
                    idle=pool.idle_connections,
                    failing=pool.is_unreachable(now),
                    breaker=None if pool.breaker is None else pool.breaker.state(now),
                )
                for pool in upstream.endpoints.pools
            ]
            for upstream in self.upstreams.values()
        }


@dataclass(frozen=True, slots=True)
class GenerationBuilder:
    """Builds generations from what the whole process shares."""

    clock: Clock
    coalescer: WriteCoalescer
    retry_waits: RetryWaits
    open_bucket: OpenBucket
    digest_key: bytes
    """The key of the digests of callers' values, in the names of their buckets."""
    in_flight_keys: InFlightKeys
    dead_letters: DeadLetterSink
    deliveries: DeliverySink

    def build(
        self,
        settings: Settings,
        contexts: TlsContexts,
        before: Generation,
        recorder: Callable[[RouteSettings], Recorder],
        throttle_recorder: Callable[[str, str], ThrottleRecorder],
    ) -> Generation:
        """Build the generation for *settings*, with all of *before* that stays the same."""
        upstreams = {
            key: before.upstreams.get(key) or self._upstream(key[0], context, before)
            for key, context in contexts.items()
        }
        retried = {route.upstream for route in settings.routes if route.retry is not None}
        budgets = {
            upstream.name: _budget(upstream.budget, before.budgets.get(upstream.name))
            for upstream in settings.upstreams
            if upstream.budget is not None and upstream.name in retried
        }
        scopes = [
            *(("route", route.name, route.throttle) for route in settings.routes),
            *(("upstream", up.name, up.throttle) for up in settings.upstreams),
        ]
        limits = {(scope, name): limit for scope, name, limit in scopes if limit is not None}
        throttles = {
            label: before.throttles.get(label)
            or Throttle(
                label,
                limit,
                self.open_bucket,
                throttle_recorder(*label),
                self.clock,
                digest_key=self.digest_key,
            )
            for label, limit in limits.items()
        }
        timeouts: dict[float, Deadlines] = {}

        def deadlines(seconds: float) -> Deadlines:
            if seconds not in timeouts:
                kept = before.deadlines.get(seconds)
                timeouts[seconds] = Deadlines(seconds, self.clock) if kept is None else kept
            return timeouts[seconds]

        services = RouteServices(
            upstreams={upstream.settings.name: upstream for upstream in upstreams.values()},
            budgets=budgets,
            throttles=throttles,
            keyed={label for label, limit in limits.items() if limit.key is not None},
            deadlines=deadlines,
            in_flight=self.in_flight_keys,
            dead_letters=self.dead_letters,
            deliveries=self.deliveries,
            delivery_status=settings.deliveries.status,
            retry_waits=self.retry_waits,
            clock=self.clock,
        )
        upstreams_by_name = {upstream.name: upstream for upstream in settings.upstreams}

        def single(route: RouteSettings) -> SingleFields | None:
            return single_fields(route, [upstreams_by_name[name] for name in upstreams_of(route)])

        routes = tuple(
            Route(route, build(route, services), recorder(route), single(route))
            for route in settings.routes
        )
        delivering = [build_delivery(route, services) for route in routes]
        names = frozenset((scope, name) for scope, name, _ in scopes)
        return Generation(
            upstreams,
            budgets,
            throttles,
            limits,
            names,
            timeouts,
            routes,
            {to.name: to for to in delivering if to is not None},
        )

    def _upstream(
        self, settings: UpstreamSettings, tls: ssl.SSLContext | None, before: Generation
    ) -> Upstream:
        """Make an upstream; one with the same breaker settings takes over its old breakers."""
        breakers = None
        if settings.breaker is not None:
            known = (
                upstream.endpoints.breakers
                for upstream in before.upstreams.values()
                if upstream.settings.name == settings.name
                and upstream.settings.breaker == settings.breaker
            )
            breakers = next(known, None) or Breakers(settings.name, settings.breaker)
        return Upstream(settings, tls, self.clock, self.coalescer, breakers)


_NO_LIMIT = ThrottleSettings(longest_pause=None)


def _budget(settings: BudgetSettings, before: Budget | None) -> Budget:
    """Keep the budget *before*, with what was spent of it, if its settings stay the same."""
    return Budget(settings) if before is None or before.settings != settings else before


def _fingerprint(tls: UpstreamTls) -> bytes:
    digest = hashlib.sha256()
    for name in (tls.ca, tls.cert, tls.key):
        digest.update(b"-" if name is None else hashlib.sha256(Path(name).read_bytes()).digest())
    return digest.digest()


# What the settings of a route call for.


def upstreams_of(route: RouteSettings) -> list[str]:
    """Name the upstream of *route*, then that of its fallback if it has one."""
    fallback = "" if route.fallback is None else route.fallback.upstream
    return [route.upstream, fallback] if fallback else [route.upstream]


def makes_verdicts(route: RouteSettings) -> bool:
    """Tell whether the attempts of *route* are judged at all."""
    return route.retry is not None or route.fallback is not None


def has_idempotency(route: RouteSettings) -> bool:
    """Tell whether requests of *route* that carry an idempotency key run once."""
    return route.idempotency is not None


def hands_off(route: RouteSettings) -> bool:
    """Tell whether requests of *route* may be accepted to be delivered later."""
    return route.hand_off is not None


def has_dead_letters(route: RouteSettings) -> bool:
    """Tell whether requests of *route* that failed for good are kept."""
    return route.dead_letter is not None


def transient_by_route(settings: Settings) -> dict[tuple[str, str], frozenset[int]]:
    """Return, by route and upstream, the statuses that may pass by themselves."""
    upstreams = {upstream.name: upstream for upstream in settings.upstreams}
    return {
        (route.name, name): transient_statuses(route.retry, upstreams[name])
        for route in settings.routes
        for name in upstreams_of(route)
    }
