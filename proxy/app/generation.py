"""All that serves one configuration: upstreams, budgets, throttles, deadlines, routes.

A reload builds another estate from the one in force. State belongs to the name of
what it is about, and passes on to the next estate where its settings stay the same:
connections, breakers, what was spent of a budget. A throttle passes on in any case,
with those who stand in line there. Nothing of the old estate changes until the new one
is put in force.
"""

import hashlib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from proxy import pipeline
from proxy.core.clock import Clock
from proxy.core.ports import DeadLetterSink
from proxy.core.recorders import ThrottleRecorder, ThrottleState
from proxy.core.route import Recorder, Route
from proxy.net.tls import client_context
from proxy.net.write_coalescer import WriteCoalescer
from proxy.pipeline.deadlines import Deadlines
from proxy.pipeline.idempotency.in_flight import InFlightKeys
from proxy.pipeline.retry_waits import RetryWaits
from proxy.pipeline.services import RouteServices
from proxy.pipeline.throttle.throttle import NewLimiter, Throttle
from proxy.policy.breaker import BreakerState
from proxy.policy.caller_fields import SingleFields, single_fields
from proxy.policy.retry.budget import Budget
from proxy.policy.settings import (
    BudgetSettings,
    RouteSettings,
    Settings,
    ThrottleSettings,
    UpstreamSettings,
    UpstreamTls,
)
from proxy.upstream.breakers import Breakers
from proxy.upstream.upstream import Upstream

_UpstreamKey = tuple[UpstreamSettings, bytes]
"""Equal keys: the same settings, and the same content of the files they name.

But for those of its budget and throttle, which are no reason to close connections.
"""

_Label = tuple[str, str]
"""Of a throttle: its scope (``route`` or ``upstream``) and the name in the configuration."""

Contexts = Mapping[_UpstreamKey, ssl.SSLContext | None]
"""What each upstream needs to connect; None for plain HTTP, and for one that there is."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What serves at a time; the first one is empty."""

    upstreams: Mapping[_UpstreamKey, Upstream] = field(default_factory=dict)
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    """By upstream, where one is retried and has a budget."""
    throttles: Mapping[_Label, Throttle] = field(default_factory=dict)
    limits: Mapping[_Label, ThrottleSettings] = field(default_factory=dict)
    """What they let through once this is in force."""
    names: frozenset[_Label] = frozenset()
    """All that could have a throttle."""
    deadlines: Mapping[float, Deadlines] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()

    def contexts(self, settings: Settings) -> Contexts:
        """Read what the upstreams of *settings* name in files; this may take its time."""
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
        """Be in force from now on: other limits hold, and *old* keeps what is only its own."""
        for label, throttle in self.throttles.items():
            throttle.change(self.limits[label])
        for label in old.throttles.keys() - self.throttles.keys():
            # Who stands in line where nothing is limited any more may go. Where there is no
            # such route any more, all goes on as it began.
            if label in self.names:
                old.throttles[label].change(_NO_LIMIT)
        for key, upstream in old.upstreams.items():
            if key not in self.upstreams:
                upstream.endpoints.retire()

    def close(self) -> None:
        """The end of everything."""
        for upstream in self.upstreams.values():
            upstream.endpoints.close()
        for throttle in self.throttles.values():
            throttle.close()
        for deadlines in self.deadlines.values():
            deadlines.close()

    def budgets_left(self, now: float) -> dict[str, float]:
        """How many retries each upstream would bear."""
        return {name: budget.remaining(now) for name, budget in self.budgets.items()}

    def throttle_states(self, now: float) -> dict[_Label, ThrottleState]:
        """What goes on at each throttle."""
        return {label: throttle.state(now) for label, throttle in self.throttles.items()}

    def breaker_states(self, now: float) -> dict[str, BreakerState]:
        """Of each upstream with breakers, that of the address that is best off."""
        return {
            upstream.settings.name: upstream.endpoints.best_state(now)
            for upstream in self.upstreams.values()
            if upstream.endpoints.breakers is not None
        }


@dataclass(frozen=True, slots=True)
class GenerationBuilder:
    """Makes estates of what the whole process shares."""

    clock: Clock
    coalescer: WriteCoalescer
    retry_waits: RetryWaits
    new_permits: NewLimiter
    digest_key: bytes
    """What the digests of callers' values are keyed with, in the names of their buckets."""
    flights: InFlightKeys
    letters: DeadLetterSink

    def build(
        self,
        settings: Settings,
        contexts: Contexts,
        before: Generation,
        recorder: Callable[[RouteSettings], Recorder],
        throttle_recorder: Callable[[str, str], ThrottleRecorder],
    ) -> Generation:
        """The estate for *settings*, with all of *before* that stays the same."""
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
        places = [
            *(("route", route.name, route.throttle) for route in settings.routes),
            *(("upstream", up.name, up.throttle) for up in settings.upstreams),
        ]
        limits = {(scope, name): limit for scope, name, limit in places if limit is not None}
        throttles = {
            label: before.throttles.get(label)
            or Throttle(
                label,
                limit,
                self.new_permits,
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
            in_flight=self.flights,
            dead_letters=self.letters,
            retry_waits=self.retry_waits,
            clock=self.clock,
        )
        upstreams_by_name = {upstream.name: upstream for upstream in settings.upstreams}

        def single(route: RouteSettings) -> SingleFields | None:
            names = [route.upstream, "" if route.fallback is None else route.fallback.upstream]
            return single_fields(route, [upstreams_by_name[name] for name in names if name])

        routes = tuple(
            Route(route, pipeline.build(route, services), recorder(route), single(route))
            for route in settings.routes
        )
        names = frozenset((scope, name) for scope, name, _ in places)
        return Generation(upstreams, budgets, throttles, limits, names, timeouts, routes)

    def _upstream(
        self, settings: UpstreamSettings, tls: ssl.SSLContext | None, before: Generation
    ) -> Upstream:
        """An upstream that knows what its predecessor's breakers knew, if those stay the same."""
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
    """A budget that goes on with what was spent, if it stays the same."""
    return Budget(settings) if before is None or before.settings != settings else before


def _fingerprint(tls: UpstreamTls) -> bytes:
    digest = hashlib.sha256()
    for name in (tls.ca, tls.cert, tls.key):
        digest.update(b"-" if name is None else hashlib.sha256(Path(name).read_bytes()).digest())
    return digest.digest()
