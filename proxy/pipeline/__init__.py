"""The stages around the upstream call, and the order in which a request meets them.

A route's chain is built once, when the configuration is loaded. A route without
policies gets the bare upstream call: no wrapper, no buffering, no further await.

======================  =============================================================
``idempotency/``        requests with the same key run once (``key_owner.py`` is the one
                        that runs), and duplicates get its result
``dead_letters.py``     what failed for good is kept on disk before its client is answered
``retry.py``            attempts until one is good (``retry_session.py`` has those of one
                        request), and then the fallback (``fallback.py``)
``single_attempt.py``   one attempt, within the time for the whole exchange; where there are
                        throttles, when its turn has come (``throttle/chain.py``)
======================  =============================================================

A throttle (``throttle/throttle.py``) has one rate limiter for all callers, or one for each
(``throttle/async_limiter.py``). A key that is owned is in flight (``idempotency/in_flight.py``),
and the response passes a capture (``idempotency/capture.py``) on its way to the client.

What they share: ``deadlines.py`` watches over exchanges and attempts, ``retry_waits.py`` over the
waits between attempts, ``services.py`` holds what the routes of one configuration share.
May import ``upstream/``, ``stores/`` (its ports), ``core/``, ``policy/`` and ``http/``.
"""

from collections.abc import Iterator

from proxy.core.route import Handler
from proxy.pipeline.dead_letters import DeadLetters, DeadLetterWriter, KeptRefusals
from proxy.pipeline.fallback import FallbackStage
from proxy.pipeline.idempotency.stage import Idempotency
from proxy.pipeline.retry import Retry
from proxy.pipeline.services import RouteServices
from proxy.pipeline.single_attempt import NO_LIMIT, SingleAttempt
from proxy.policy.repeatable import RepeatRules, longest_attempt
from proxy.policy.retry.budget import Budget
from proxy.policy.retry.verdict import RetryRules
from proxy.policy.settings import RetrySettings, RouteSettings
from proxy.upstream.upstream import Upstream


def build(settings: RouteSettings, services: RouteServices) -> Handler:
    """What a route does with a request."""
    upstream = services.upstreams[settings.upstream]
    single_attempt = _single_attempt(settings, upstream, services)
    handle: Handler = single_attempt.handle
    dead_letters = None
    if settings.dead_letter is not None:
        dead_letters = DeadLetterWriter(
            settings,
            upstream.settings,
            services.dead_letters,
            services.clock,
            services.in_flight.known_scopes,
        )
    if settings.retry is not None or settings.fallback is not None:
        handle = _retry(settings, single_attempt, services, dead_letters).handle
    if dead_letters is not None:
        handle = DeadLetters(handle, dead_letters).handle
    if settings.idempotency is not None:
        handle = Idempotency(
            settings,
            handle,
            services.in_flight,
            refused={
                up.settings.name: up.settings.refused for up in _upstreams_of(settings, services)
            },
            covers_host=_sees_host(settings, services),
            time_left=single_attempt.time_left,
            clock=services.clock,
        ).handle
    if dead_letters is not None and dead_letters.keeps_refusals:
        handle = KeptRefusals(handle, dead_letters).handle
    return handle


def _upstreams_of(settings: RouteSettings, services: RouteServices) -> Iterator[Upstream]:
    """The upstreams that a request of this route may be sent to."""
    yield services.upstreams[settings.upstream]
    if settings.fallback is not None and settings.fallback.upstream:
        yield services.upstreams[settings.fallback.upstream]


def _single_attempt(
    settings: RouteSettings, upstream: Upstream, services: RouteServices
) -> SingleAttempt:
    """One attempt at *upstream*."""
    retry = settings.retry
    limit = None if retry is None else retry.attempt_timeout
    return SingleAttempt(
        upstream,
        services.deadlines(NO_LIMIT if settings.timeout is None else settings.timeout),
        RepeatRules(
            upstream.settings,
            "auto" if retry is None else retry.unsafe,
            longest_attempt(settings),
            [other.settings for other in _upstreams_of(settings, services)],
        ),
        services.clock,
        throttle_chain=services.throttle_chain(settings.name, upstream),
        attempt_deadlines=None if limit is None else services.deadlines(limit),
        budget=_budget(settings, upstream, services),
    )


def _retry(
    settings: RouteSettings,
    single_attempt: SingleAttempt,
    services: RouteServices,
    dead_letters: DeadLetterWriter | None,
) -> Retry:
    """Attempts until one is good, and what follows if none is."""
    upstream = single_attempt.upstream
    fallback = None
    if settings.fallback is not None:
        other = services.upstreams.get(settings.fallback.upstream)
        at_other = None if other is None else _single_attempt(settings, other, services)
        fallback = FallbackStage(settings.fallback, single_attempt, at_other, services.retry_waits)
    return Retry(
        single_attempt,
        RetryRules(settings.retry or RetrySettings(attempts=1), upstream.settings),
        budget=_budget(settings, upstream, services),
        retry_waits=services.retry_waits,
        clock=services.clock,
        fallback=fallback,
        dead_letters=dead_letters,
    )


def _sees_host(settings: RouteSettings, services: RouteServices) -> bool:
    """Whether an upstream that the route sends to gets the client's own host."""
    return any(up.settings.preserve_host for up in _upstreams_of(settings, services))


def _budget(settings: RouteSettings, upstream: Upstream, services: RouteServices) -> Budget | None:
    """What retries of this route are charged to, and first attempts add to."""
    retries = settings.retry is not None and settings.retry.attempts > 1
    # The way out is no retry, whatever its upstream's budget.
    is_own = upstream.settings.name == settings.upstream
    return services.budgets.get(settings.upstream) if retries and is_own else None
