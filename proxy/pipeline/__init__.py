"""The pipeline: the stages around the upstream call, in the order in which a request meets them.

A route's pipeline is built once, by :func:`build`, when the configuration is loaded. A route
without policies gets the bare upstream call: no wrapper, no buffering, no further await.

======================  =============================================================
``dead_letters.py``     outermost, where a route keeps refusals (``KeptRefusals``): a request
                        refused by any stage below is kept on disk
``idempotency/``        requests with the same key run once (``key_owner.py`` is the one
                        that runs), and duplicates get its result
``dead_letters.py``     a request that failed for good is kept on disk before its client
                        is answered
``retry.py``            attempts until one is good (``retry_session.py`` has those of one
                        request), and then the fallback (``fallback.py``)
``single_attempt.py``   one attempt, within the time for the whole exchange; where there are
                        throttles, once their rate limits admit it (``throttle/chain.py``)
======================  =============================================================

A throttle (``throttle/throttle.py``) has one rate limiter for all callers, or one for each
(``throttle/async_limiter.py``). A key that is owned is in flight (``idempotency/in_flight.py``),
and the response passes a capture (``idempotency/capture.py``) on its way to the client.

Shared by the stages: ``deadlines.py`` ends exchanges and attempts in time, ``retry_waits.py`` has
the waits between attempts, ``services.py`` lists what the routes of one configuration share, and
``generation.py`` builds all of it for one configuration, with what a reload leaves unchanged.
This package may import ``upstream/``, ``stores/`` (the ports only), ``core/``, ``policy/``,
``net/`` and ``http/``. Others build a route with :func:`build` from :class:`RouteServices`.
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
    """Build the handler of a route: every stage that its settings ask for, in order."""
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
    """Yield the upstreams that a request of this route may be sent to."""
    yield services.upstreams[settings.upstream]
    if settings.fallback is not None and settings.fallback.upstream:
        yield services.upstreams[settings.fallback.upstream]


def _single_attempt(
    settings: RouteSettings, upstream: Upstream, services: RouteServices
) -> SingleAttempt:
    """Build the innermost stage: one attempt at *upstream*."""
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
    """Build the retry stage, with the fallback that follows if no attempt is good."""
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
    """Say whether an upstream that the route sends to gets the client's own Host."""
    return any(up.settings.preserve_host for up in _upstreams_of(settings, services))


def _budget(settings: RouteSettings, upstream: Upstream, services: RouteServices) -> Budget | None:
    """Return the budget that retries are charged to and first attempts add to, if any."""
    retries = settings.retry is not None and settings.retry.attempts > 1
    # The attempt at the fallback's upstream is no retry, whatever that upstream's budget.
    is_own = upstream.settings.name == settings.upstream
    return services.budgets.get(settings.upstream) if retries and is_own else None
