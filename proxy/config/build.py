"""Models → settings: the last step, for a configuration without faults."""

from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from proxy.config.schema.dead_letter import DeadLetterKeys
from proxy.config.schema.file import FileKeys
from proxy.config.schema.idempotency import IdempotencyKeys
from proxy.config.schema.listen import ListenOn
from proxy.config.schema.retry import FallbackKeys, RetryKeys
from proxy.config.schema.route import HeaderEditKeys, MatchKeys, RouteKeys
from proxy.config.schema.store import StoreKeys
from proxy.config.schema.throttle import ThrottleKeys
from proxy.config.schema.upstream import UpstreamKeys, UpstreamTlsKeys
from proxy.config.values.idempotency import kept_statuses
from proxy.config.values.outcomes import hinted_status, statuses_of
from proxy.config.values.stores import store_settings
from proxy.http.header_edits import HeaderEdits
from proxy.policy.settings import (
    ALWAYS_DROPPED,
    USUAL_OUTCOMES,
    Backoff,
    BreakerSettings,
    BudgetSettings,
    DeadLetterSettings,
    FallbackSettings,
    HonouredKey,
    IdempotencySettings,
    Limits,
    Listen,
    ListenTls,
    Match,
    Outcomes,
    RetrySettings,
    RouteSettings,
    Settings,
    StoreSettings,
    ThrottleSettings,
    UpstreamSettings,
    UpstreamTls,
)


def settings_from(file: FileKeys) -> Settings:
    """Build the settings that the rest of the proxy uses."""
    limits = file.limits
    return Settings(
        listen=tuple(_listen(entry) for entry in file.listen),
        admin=file.admin,
        name=file.name,
        admin_token=file.admin_token,
        workers=file.workers,
        drain_timeout=file.drain_timeout,
        drain_delay=file.drain_delay,
        access_log=file.access_log,
        trusted_proxies=tuple(
            peer for peer in file.trusted_proxies if isinstance(peer, IPv4Network | IPv6Network)
        ),
        trust_unix="unix" in file.trusted_proxies,
        limits=Limits(
            header_bytes=limits.header_bytes,
            header_timeout=limits.header_timeout,
            body_rate=limits.body_rate,
            keepalive=limits.keepalive,
            connections=limits.connections,
            replay_memory=limits.replay_memory,
        ),
        store=_store(file.store),
        state_dir=file.state_dir,
        upstreams=tuple(_upstream(name, upstream) for name, upstream in file.upstreams.items()),
        routes=tuple(_route(route) for route in file.routes),
    )


def _listen(entry: ListenOn) -> Listen:
    address = entry.address
    tls = None if entry.tls is None else ListenTls(cert=entry.tls.cert, key=entry.tls.key)
    return Listen(host=address.host, port=address.port, path=address.path, tls=tls)


def _store(store: StoreKeys) -> StoreSettings:
    given = {key: getattr(store, key) for key in StoreKeys.model_fields.keys() - {"url", "tls"}}
    given = {key: value for key, value in given.items() if value is not None}
    return store_settings(store.url, {**given, "tls": _tls(store.tls)})


def _tls(tls: UpstreamTlsKeys) -> UpstreamTls:
    return UpstreamTls(
        ca=tls.ca,
        cert=tls.cert,
        key=tls.key,
        server_name=tls.server_name,
        verify=tls.verify,
    )


def _upstream(name: str, upstream: UpstreamKeys) -> UpstreamSettings:
    budget, breaker = upstream.budget, upstream.breaker
    return UpstreamSettings(
        name=name,
        origins=tuple(upstream.urls),
        balance=upstream.balance,
        connect_timeout=upstream.connect_timeout,
        idle_connections=upstream.idle_connections,
        max_connections=upstream.max_connections,
        keepalive=upstream.keepalive,
        preserve_host=upstream.host == "preserve",
        tls=_tls(upstream.tls),
        honours_key=_honoured(upstream.honours_key) if upstream.honours_key else None,
        refused=frozenset(upstream.refused),
        budget=BudgetSettings(
            ratio=budget.ratio, min_per_second=budget.min_per_second, window=budget.window
        )
        if budget
        else None,
        breaker=BreakerSettings(
            failure_ratio=breaker.failure_ratio,
            min_requests=breaker.min_requests,
            window=breaker.window,
            open_for=breaker.open_for,
            probes=breaker.probes,
        )
        if breaker
        else None,
        throttle=_throttle(upstream.throttle) if upstream.throttle else None,
    )


def _honoured(keys: Any) -> HonouredKey:  # noqa: ANN401 - a model that is made
    return HonouredKey(
        header=keys.header.lower(), remembered_for=getattr(keys, "for"), is_shared=keys.shared
    )


def _route(route: RouteKeys) -> RouteSettings:
    retry = _retry(route.retry) if route.retry else None
    default = USUAL_OUTCOMES if retry is None else retry.on
    return RouteSettings(
        name=route.name,
        match=_match(route.match),
        upstream=route.upstream,
        strip_prefix=route.strip_prefix or "",
        timeout=route.timeout,
        idle_timeout=route.idle_timeout,
        max_body=route.max_body,
        buffer=route.buffer,
        upgrades=tuple(route.upgrades),
        request_headers=_edits(route.headers.request),
        response_headers=_edits(route.headers.response),
        retry=retry,
        throttle=_throttle(route.throttle) if route.throttle else None,
        idempotency=_idempotency(route.idempotency) if route.idempotency else None,
        fallback=_fallback(route.fallback, default) if route.fallback else None,
        dead_letter=_dead_letter(route.dead_letter, default) if route.dead_letter else None,
    )


def _retry(retry: RetryKeys) -> RetrySettings:
    backoff = retry.backoff
    return RetrySettings(
        attempts=retry.attempts,
        on=_outcomes(retry.on, USUAL_OUTCOMES),
        unsafe=retry.unsafe,
        attempt_timeout=retry.attempt_timeout,
        backoff=Backoff(
            strategy=backoff.strategy,
            base=backoff.base,
            factor=backoff.factor,
            increment=backoff.increment,
            max=backoff.max,
            jitter=backoff.jitter,
        ),
        longest_hint=retry.retry_after.max if retry.retry_after else None,
    )


def _throttle(throttle: ThrottleKeys) -> ThrottleSettings:
    return ThrottleSettings(
        rates=tuple(throttle.rate),
        burst=throttle.burst,
        algorithm=throttle.algorithm,
        margin=throttle.margin,
        concurrency=throttle.concurrency,
        max_wait=throttle.max_wait,
        max_queue=throttle.max_queue,
        key=throttle.key,
        max_keys=throttle.max_keys,
        longest_pause=throttle.pause.max if throttle.pause else None,
        on_store_error=throttle.on_store_error,
    )


def _idempotency(idempotency: IdempotencyKeys) -> IdempotencySettings:
    return IdempotencySettings(
        header=idempotency.header.lower(),
        methods=frozenset(idempotency.methods),
        required=idempotency.required,
        ttl=idempotency.ttl,
        scope=tuple(dict.fromkeys(idempotency.scope)),
        scope_required=idempotency.scope_required,
        in_flight=idempotency.in_flight,
        mismatch_status=idempotency.mismatch_status,
        keep=frozenset[int]().union(*map(kept_statuses, idempotency.keep)),
        on_ambiguous=idempotency.on_ambiguous,
        lease=idempotency.lease,
        max_response=idempotency.max_response,
        on_store_error=idempotency.on_store_error,
    )


def _fallback(fallback: FallbackKeys, default: Outcomes) -> FallbackSettings:
    """Build a fallback; without ``on`` it replaces *default* outcomes and an open breaker."""
    if fallback.on is None:
        on = _or_breaker_open(default)
    else:
        on = _outcomes(fallback.on, _or_breaker_open(USUAL_OUTCOMES))
    return FallbackSettings(
        on=on,
        status=fallback.status or 0,
        headers=tuple((fallback.headers or {}).items()),
        body=fallback.body or "",
        upstream=fallback.upstream or "",
    )


def _dead_letter(dead_letter: DeadLetterKeys, default: Outcomes) -> DeadLetterSettings:
    """Build dead letters; without ``on`` a request is kept after *default* outcomes."""
    return DeadLetterSettings(
        methods=frozenset(dead_letter.methods),
        max_body=dead_letter.max_body,
        ttl=dead_letter.ttl,
        on=default if dead_letter.on is None else _outcomes(dead_letter.on, default),
        drop=frozenset(name.lower() for name in dead_letter.headers.drop) | ALWAYS_DROPPED,
    )


def _or_breaker_open(outcomes: Outcomes) -> Outcomes:
    return replace(outcomes, names=outcomes.names | {"breaker_open"})


def _outcomes(items: list[str | int], default: Outcomes) -> Outcomes:
    """Split a list of outcomes into sets for look-up; ``default`` stands for *default*."""
    words: set[str] = set()
    statuses: set[int] = set()
    hinted: set[int] = set()
    for item in items:
        status_with_hint = hinted_status(item)
        if item == "default":
            words |= default.names
            statuses |= default.statuses
            hinted |= default.hinted
        elif status_with_hint is not None:
            hinted.add(status_with_hint)
        elif found := statuses_of(item):
            statuses |= found
        else:
            words.add(str(item))
    return Outcomes(frozenset(words), frozenset(statuses), frozenset(hinted))


def _match(match: MatchKeys) -> Match:
    return Match(
        paths=tuple(match.path),
        methods=tuple(match.methods or ()),
        hosts=tuple(match.host or ()),
        headers=tuple((name.lower(), value) for name, value in match.headers.items()),
    )


def _edits(edits: HeaderEditKeys) -> HeaderEdits:
    return HeaderEdits(
        set=tuple(edits.set.items()),
        remove=tuple(name.lower() for name in edits.remove),
    )
