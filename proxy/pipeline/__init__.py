"""The pipeline: the stages around the upstream call, in the order in which a request meets them.

A route's pipeline is built once, by :func:`build`, when the configuration is loaded. A route
without policies gets the bare upstream call: no wrapper, no buffering, no further await.

======================  =============================================================
``dead_letters.py``     outermost, where a route keeps refusals (``KeptRefusals``): a request
                        refused by any stage below is kept on disk
``hand_off/``           a request that is handed off is admitted here, before its body is read
``idempotency/``        requests with the same key run once (``key_owner.py`` is the one
                        that runs), and duplicates get its result
``dead_letters.py``     a request that failed for good is kept on disk before its client
                        is answered
``hand_off/``           a request becomes a delivery on disk, at once or after it failed
``retry.py``            attempts until one is good (``retry_session.py`` has those of one
                        request), and then the fallback (``fallback.py``)
``single_attempt.py``   one attempt, within the time for the whole exchange: the breaker
                        (``upstream/breakers.py``), then the throttles
                        (``throttle/chain.py``), then the upstream
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

from proxy.core.route import Handler, Route
from proxy.pipeline.dead_letters import DeadLetters, DeadLetterWriter, KeptRefusals
from proxy.pipeline.fallback import FallbackStage
from proxy.pipeline.hand_off.admission import HandOffAdmission
from proxy.pipeline.hand_off.attempt import DeliveryAttempt, DeliveryRoute
from proxy.pipeline.hand_off.stage import HandOff, share_owner
from proxy.pipeline.idempotency.stage import Idempotency
from proxy.pipeline.retry import Retry
from proxy.pipeline.services import RouteServices
from proxy.pipeline.single_attempt import NO_LIMIT, SingleAttempt
from proxy.pipeline.throttle.chain import ThrottleChain
from proxy.policy.delivery.acceptance import HandOffRules
from proxy.policy.delivery.outcome import DeliveryRules
from proxy.policy.repeatable import RepeatRules, longest_attempt
from proxy.policy.retry.budget import Budget
from proxy.policy.retry.verdict import RetryRules
from proxy.policy.settings import RetrySettings, RouteSettings, UnsafeRetries
from proxy.upstream.load_balancing import Endpoints
from proxy.upstream.upstream import Upstream


def build(settings: RouteSettings, services: RouteServices) -> Handler:
    """Build the handler of a route: every stage that its settings ask for, and no other.

    Each stage is given the one inside it, so the innermost is made first. A request comes in at the
    last and goes up this page: 10, 9, 8 … 1.
    """
    upstream = services.upstreams[settings.upstream]
    dead_letters = _dead_letter_writer(settings, upstream, services)
    # 1. Attempt (at the end of 3.): sends the request once, to the address that load balancing
    #    picks, and relays the response. The innermost: all others may have reason not to send.
    # 2. Throttle: right before the attempt, because a permit is for sending now; inside the retry,
    #    because a retry is one more call for the upstream and takes a permit of its own.
    throttle_chain = services.throttle_chain(settings.name, upstream)
    # 3. Breaker: before the throttle, because an attempt that is not going to be sent must take no
    #    permit and wait in no queue; asked again after such a wait, and where an address is picked.
    breaker = upstream.breaker
    attempt = _single_attempt(settings, upstream, breaker, throttle_chain, services)
    handle: Handler = attempt.handle
    # 4. Fallback: inside the retry, which knows when no attempt is to follow; an attempt at another
    #    upstream has a breaker and a throttle of its own.
    fallback = _fallback(settings, attempt, services)
    # 5. Retry: outside breaker and throttle, because each attempt asks both anew.
    if settings.retry is not None or fallback is not None:
        handle = Retry(
            attempt,
            RetryRules(settings.retry or RetrySettings(attempts=1), upstream.settings),
            budget=_budget(settings, upstream, services),
            retry_waits=services.retry_waits,
            clock=services.clock,
            fallback=fallback,
            dead_letters=dead_letters,
        ).handle
    # 6. Hand-off: outside the retry, because a request that failed for good may be delivered later;
    #    inside dead letters, because what is delivered later has not failed yet.
    hand_off, caller = None, share_owner(settings, services)
    if settings.hand_off is not None:
        hand_off = HandOff(
            settings,
            upstream.settings,
            HandOffRules(settings, upstream.settings),
            handle,
            store=services.deliveries,
            sink=services.dead_letters,
            caller=caller,
            status_path=services.delivery_status,
            clock=services.clock,
        )
        handle = hand_off.handle
    # 7. Dead letters: outside the retry, because only a request that failed for good is kept;
    #    inside idempotency, because a duplicate must not be kept a second time.
    if dead_letters is not None:
        handle = DeadLetters(handle, dead_letters).handle
    # 8. Idempotency: outside all of these, because a duplicate gets the result of the first request
    #    without an attempt, a permit or a dead letter of its own.
    idempotency = None
    if settings.idempotency is not None:
        idempotency = Idempotency(
            settings,
            handle,
            services.in_flight,
            refused={up.settings.name: up.settings.refused for up in _targets(settings, services)},
            covers_host=any(up.settings.preserve_host for up in _targets(settings, services)),
            time_left=attempt.time_left,
            clock=services.clock,
            is_void=None if hand_off is None else hand_off.is_void,
        )
        handle = idempotency.handle
    # 9. Admission to hand-off: outside idempotency, which reads the whole body: space for it is
    #    reserved before that.
    if hand_off is not None:
        handle = HandOffAdmission(
            hand_off.rules,
            handle,
            services.deliveries,
            caller=caller,
            has_known_key=None if idempotency is None else idempotency.has_known_key,
            buffer=settings.buffer,
        ).handle
    # 10. Dead letters of refusals, if the route keeps them: outermost, because every stage refuses.
    if dead_letters is not None and dead_letters.keeps_refusals:
        handle = KeptRefusals(handle, dead_letters).handle
    return handle


def build_delivery(route: Route, services: RouteServices) -> DeliveryRoute | None:
    """Build what sends the deliveries of *route*; None if it does not hand off.

    One attempt, with the breaker and the throttles of any other: in the background the schedule of
    the hand-off takes the place of the route's retries, and a fallback would answer nobody.
    """
    settings, hand_off = route.settings, route.settings.hand_off
    if hand_off is None:
        return None
    upstream = services.upstreams[settings.upstream]
    single_attempt = SingleAttempt(
        upstream,
        services.deadlines(NO_LIMIT if hand_off.timeout is None else hand_off.timeout),
        RepeatRules(upstream.settings, hand_off.unsafe, hand_off.timeout),
        services.clock,
        breaker=upstream.breaker,
        throttle_chain=services.throttle_chain(settings.name, upstream),
    )
    attempt = DeliveryAttempt(
        single_attempt, services.budgets.get(settings.upstream), services.clock
    )
    return DeliveryRoute(route, hand_off, attempt, DeliveryRules(hand_off, upstream.settings))


def _targets(settings: RouteSettings, services: RouteServices) -> Iterator[Upstream]:
    """Yield the upstreams that a request of this route may be sent to."""
    yield services.upstreams[settings.upstream]
    if settings.fallback is not None and settings.fallback.upstream:
        yield services.upstreams[settings.fallback.upstream]


def _dead_letter_writer(
    settings: RouteSettings, upstream: Upstream, services: RouteServices
) -> DeadLetterWriter | None:
    """Make the writer that both stages of dead letters and the fallback share; None without one."""
    if settings.dead_letter is None:
        return None
    return DeadLetterWriter(
        settings,
        upstream.settings,
        services.dead_letters,
        services.clock,
        services.in_flight.known_scopes,
    )


def _single_attempt(
    settings: RouteSettings,
    upstream: Upstream,
    breaker: Endpoints | None,
    throttle_chain: ThrottleChain | None,
    services: RouteServices,
) -> SingleAttempt:
    """Make the stage that asks *breaker* and *throttle_chain*, if any, and sends to *upstream*."""
    retry = settings.retry
    limit = None if retry is None else retry.attempt_timeout
    return SingleAttempt(
        upstream,
        services.deadlines(NO_LIMIT if settings.timeout is None else settings.timeout),
        RepeatRules(
            upstream.settings,
            UnsafeRetries.AUTO if retry is None else retry.unsafe,
            longest_attempt(settings),
            [other.settings for other in _targets(settings, services)],
        ),
        services.clock,
        breaker=breaker,
        throttle_chain=throttle_chain,
        attempt_deadlines=None if limit is None else services.deadlines(limit),
        budget=_budget(settings, upstream, services),
    )


def _fallback(
    settings: RouteSettings, failed: SingleAttempt, services: RouteServices
) -> FallbackStage | None:
    """Make what answers when *failed* did not, with an attempt of its own at another upstream."""
    if settings.fallback is None:
        return None
    at_other = None
    other = services.upstreams.get(settings.fallback.upstream)
    if other is not None:
        throttle_chain = services.throttle_chain(settings.name, other)
        at_other = _single_attempt(settings, other, other.breaker, throttle_chain, services)
    return FallbackStage(settings.fallback, failed, at_other, services.retry_waits)


def _budget(settings: RouteSettings, upstream: Upstream, services: RouteServices) -> Budget | None:
    """Return the budget that retries are charged to and first attempts add to, if any."""
    retries = settings.retry is not None and settings.retry.attempts > 1
    # The attempt at the fallback's upstream is no retry, whatever that upstream's budget.
    is_own = upstream.settings.name == settings.upstream
    return services.budgets.get(settings.upstream) if retries and is_own else None
