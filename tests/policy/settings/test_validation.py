"""Settings that no file can express fail when they are made, and say what would be right."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Any

import pytest

from proxy.policy.settings import (
    USUAL_OUTCOMES,
    AccessLogMode,
    AmbiguousKeys,
    Backoff,
    BackoffStrategy,
    BreakerSettings,
    BudgetSettings,
    CallerSource,
    DeadLetterSettings,
    DeliveriesSettings,
    DeliveryBackoff,
    FallbackSettings,
    HandOffCredentials,
    HandOffSettings,
    HonouredKey,
    IdempotencySettings,
    InFlightDuplicates,
    JitterStrategy,
    KeysWithoutStore,
    Limits,
    Listen,
    ListenTls,
    LoadBalancing,
    Match,
    MemorySettings,
    Origin,
    Outcomes,
    Rate,
    RateAlgorithm,
    RetrySettings,
    RouteSettings,
    Settings,
    ThrottleKey,
    ThrottleSettings,
    ThrottleWithoutStore,
    UnsafeRetries,
    UpstreamSettings,
    UpstreamTls,
)
from proxy.policy.settings.store import RedisSettings, SqliteSettings

ORIGIN = Origin("http", "a.example", 80)
UPSTREAM = UpstreamSettings("a", (ORIGIN,))
ROUTE = RouteSettings("r", Match(), "a")
NAN = float("nan")

outcomes = partial(Outcomes, names=frozenset())
fallback = partial(FallbackSettings, on=USUAL_OUTCOMES)
upstream = partial(UpstreamSettings, name="a", origins=(ORIGIN,))
route = partial(RouteSettings, name="r", match=Match(), upstream="a")
listen_tls = partial(ListenTls, cert="cert.pem", key="key.pem")
listen = partial(Listen, host="127.0.0.1")
origin = partial(Origin, scheme="http", host="a.example", port=80)
rate = partial(Rate, count=1, period=1.0)
throttle_key = partial(ThrottleKey, source=CallerSource.HEADER, name="x-tenant")
sqlite = partial(SqliteSettings, path="keys.db")
redis = partial(RedisSettings, host="redis.example")
process = partial(Settings, upstreams=(UPSTREAM,), routes=(ROUTE,))

CHOICES = [
    (Backoff, "strategy", BackoffStrategy),
    (Backoff, "jitter", JitterStrategy),
    (RetrySettings, "unsafe", UnsafeRetries),
    (ThrottleSettings, "algorithm", RateAlgorithm),
    (ThrottleSettings, "on_store_error", ThrottleWithoutStore),
    (throttle_key, "source", CallerSource),
    (upstream, "balance", LoadBalancing),
    (IdempotencySettings, "in_flight", InFlightDuplicates),
    (IdempotencySettings, "on_ambiguous", AmbiguousKeys),
    (IdempotencySettings, "on_store_error", KeysWithoutStore),
    (process, "access_log", AccessLogMode),
    (DeliveryBackoff, "strategy", BackoffStrategy),
    (DeliveryBackoff, "jitter", JitterStrategy),
    (HandOffSettings, "unsafe", UnsafeRetries),
    (HandOffSettings, "credentials", HandOffCredentials),
]

Make = Callable[..., Any]


@pytest.mark.parametrize(("make", "name", "choices"), CHOICES)
def test_a_choice_is_made_of_its_text(make: Make, name: str, choices: type[StrEnum]) -> None:
    for member in choices:
        others = {"name": ""} if member is CallerSource.CLIENT_IP else {}
        made = make(**{name: str(member)}, **others)
        assert getattr(made, name) is member
        assert getattr(make(**{name: member}, **others), name) is member
        assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - our own


@pytest.mark.parametrize(("make", "name", "choices"), CHOICES)
def test_another_word_is_refused(make: Make, name: str, choices: type[StrEnum]) -> None:
    with pytest.raises(ValueError, match=f"{name} is 'exponental', must be one of ") as raised:
        make(**{name: "exponental"})
    assert str(raised.value).endswith(f"must be one of {', '.join(choices)}")


@pytest.mark.parametrize(
    ("make", "name", "values", "expected"),
    [
        (Backoff, "base", [-0.1, NAN], "0 or more"),
        (Backoff, "factor", [0.9, NAN], "1 or more"),
        (Backoff, "increment", [-1.0], "0 or more"),
        (Backoff, "max", [-1.0], "0 or more"),
        (Backoff, "jitter", [-0.1, 1.1, NAN], "from 0 to 1"),
        (RetrySettings, "attempts", [0, -1], "1 or more"),
        (RetrySettings, "attempt_timeout", [0.0, -1.0], "above 0"),
        (RetrySettings, "longest_hint", [0.0], "above 0"),
        (outcomes, "statuses", [{200}, {503, 600}], "from 400 to 599"),
        (outcomes, "hinted", [{399}], "from 400 to 599"),
        (rate, "count", [0], "1 or more"),
        (rate, "period", [0.0, -1.0, NAN], "above 0"),
        (ThrottleSettings, "burst", [0], "1 or more"),
        (ThrottleSettings, "concurrency", [0], "1 or more"),
        (ThrottleSettings, "max_keys", [0], "1 or more"),
        (ThrottleSettings, "max_wait", [-1.0], "0 or more"),
        (ThrottleSettings, "max_queue", [-1], "0 or more"),
        (ThrottleSettings, "margin", [-0.1], "0 or more"),
        (ThrottleSettings, "longest_pause", [0.0], "above 0"),
        (origin, "port", [0, 65536], "from 1 to 65535"),
        (BudgetSettings, "ratio", [-0.1], "0 or more"),
        (BudgetSettings, "min_per_second", [-1.0], "0 or more"),
        (BudgetSettings, "window", [0.0], "above 0"),
        (BreakerSettings, "failure_ratio", [0.0, -1.0], "above 0"),
        (BreakerSettings, "failure_ratio", [1.1], "from 0 to 1"),
        (BreakerSettings, "min_requests", [0], "1 or more"),
        (BreakerSettings, "window", [0.0], "above 0"),
        (BreakerSettings, "open_for", [0.0], "above 0"),
        (BreakerSettings, "probes", [0], "1 or more"),
        (HonouredKey, "remembered_for", [0.0], "above 0"),
        (upstream, "connect_timeout", [0.0], "above 0"),
        (upstream, "keepalive", [0.0], "above 0"),
        (upstream, "idle_connections", [-1], "0 or more"),
        (upstream, "max_connections", [0], "1 or more"),
        (upstream, "refused", [{200}], "from 400 to 599"),
        (route, "timeout", [0.0], "above 0"),
        (route, "idle_timeout", [0.0], "above 0"),
        (route, "max_body", [-1], "0 or more"),
        (route, "buffer", [-1], "0 or more"),
        (IdempotencySettings, "ttl", [0.0], "above 0"),
        (IdempotencySettings, "lease", [0.0], "above 0"),
        (IdempotencySettings, "keep", [{199}, {600}], "from 200 to 599"),
        (IdempotencySettings, "max_response", [-1], "0 or more"),
        (DeadLetterSettings, "max_body", [-1], "0 or more"),
        (DeadLetterSettings, "ttl", [0.0], "above 0"),
        (DeliveryBackoff, "base", [-0.1, NAN], "0 or more"),
        (DeliveryBackoff, "factor", [0.9], "1 or more"),
        (DeliveryBackoff, "increment", [-1.0], "0 or more"),
        (DeliveryBackoff, "max", [-1.0], "0 or more"),
        (DeliveryBackoff, "jitter", [-0.1, 1.1], "from 0 to 1"),
        (HandOffSettings, "max_body", [-1], "0 or more"),
        (HandOffSettings, "give_up_after", [0.0], "above 0"),
        (HandOffSettings, "attempts", [0, 1001], "from 1 to 1000"),
        (HandOffSettings, "longest_hint", [0.0], "above 0"),
        (HandOffSettings, "timeout", [0.0], "above 0"),
        (HandOffSettings, "success", [{199}, {600}], "from 200 to 599"),
        (HandOffSettings, "concurrency", [0, 10_001], "from 1 to 10000"),
        (HandOffSettings, "keep_response", [-1], "0 or more"),
        (HandOffSettings, "ttl", [0.0], "above 0"),
        (DeliveriesSettings, "entries", [0], "1 or more"),
        (DeliveriesSettings, "bytes", [0], "1 or more"),
        (MemorySettings, "entries", [0], "1 or more"),
        (MemorySettings, "bytes", [0], "1 or more"),
        (sqlite, "timeout", [0.0], "above 0"),
        (sqlite, "bytes", [0], "1 or more"),
        (redis, "port", [0, 65536], "from 1 to 65535"),
        (redis, "database", [-1], "0 or more"),
        (redis, "timeout", [0.0], "above 0"),
        (redis, "permit_life", [0.0], "above 0"),
        (listen, "port", [-1, 65536], "from 0 to 65535"),
        (Limits, "header_bytes", [0], "1 or more"),
        (Limits, "header_timeout", [0.0], "above 0"),
        (Limits, "body_rate", [0], "1 or more"),
        (Limits, "keepalive", [0.0], "above 0"),
        (Limits, "connections", [0], "1 or more"),
        (Limits, "replay_memory", [-1], "0 or more"),
        (process, "workers", [0], "1 or more"),
        (process, "drain_timeout", [-1.0], "0 or more"),
        (process, "drain_delay", [-1.0], "0 or more"),
    ],
)
def test_a_number_out_of_range_is_refused(
    make: Make, name: str, values: list[Any], expected: str
) -> None:
    for value in values:
        with pytest.raises(ValueError, match=f"{name} is .*, must be {expected}$"):
            make(**{name: value})


@pytest.mark.parametrize(
    ("make", "name", "value", "expected"),
    [
        (Outcomes, "names", frozenset({"connect", "5xx"}), "some of breaker_open, connect, "),
        (throttle_key, "name", "", "that of a header or parameter"),
        (throttle_key, "name", "X-Tenant", "in lower case"),
        (origin, "scheme", "ftp", "one of http, https"),
        (origin, "host", "", "filled in"),
        (origin, "base_path", "/v1/", "a path without a final slash"),
        (origin, "base_path", "v1", "a path without a final slash"),
        (origin, "base_path", "/", "a path without a final slash"),
        (UpstreamTls, "key", "key.pem", "beside a cert"),
        (HonouredKey, "header", "X-Key", "in lower case"),
        (HonouredKey, "header", "", "in lower case"),
        (upstream, "name", "", "filled in"),
        (upstream, "origins", (), "filled in"),
        (route, "name", "", "filled in"),
        (route, "strip_prefix", "/v1/", "a path without a final slash"),
        (route, "strip_prefix", "v1", "a path without a final slash"),
        (Match, "paths", ("v1",), "paths, which begin with a slash"),
        (Match, "headers", (("X-Tenant", "a"),), "named in lower case"),
        (IdempotencySettings, "header", "X-Key", "in lower case"),
        (IdempotencySettings, "scope", ("Cookie",), "in lower case"),
        (IdempotencySettings, "methods", frozenset(), "filled in"),
        (IdempotencySettings, "keep", frozenset(), "filled in"),
        (IdempotencySettings, "mismatch_status", 400, "one of 422, 409"),
        (partial(IdempotencySettings, scope_required=True), "scope", (), "some header"),
        (DeadLetterSettings, "methods", frozenset(), "filled in"),
        (DeadLetterSettings, "drop", frozenset({"Cookie"}), "in lower case"),
        (DeadLetterSettings, "drop", frozenset({"cookie"}), "at least proxy-authorization"),
        (DeliveryBackoff, "waits", (1.0, 0.0), "above 0"),
        (partial(DeliveryBackoff, waits=(1.0,)), "jitter", "decorrelated", "another one"),
        (HandOffSettings, "when", frozenset(), "filled in"),
        (HandOffSettings, "when", frozenset({"asked"}), "some of asked, failed, always"),
        (HandOffSettings, "methods", frozenset(), "filled in"),
        (HandOffSettings, "success", frozenset(), "filled in"),
        (DeliveriesSettings, "status", "", "filled in"),
        (DeliveriesSettings, "status", "/jobs/", "a path without a final slash"),
        (partial(fallback, status=503), "upstream", "b", "0 beside an upstream"),
        (fallback, "status", 0, "from 200 to 599"),
        (fallback, "status", 100, "from 200 to 599"),
        (fallback, "status", 600, "from 200 to 599"),
        (SqliteSettings, "path", "", "filled in"),
        (RedisSettings, "host", "", "filled in"),
        (redis, "prefix", "", "filled in"),
        (listen_tls, "cert", "", "filled in"),
        (listen_tls, "key", "", "filled in"),
        (Listen, "host", "", ""),
        (listen, "path", "/run/a.sock", "in place of a host"),
        (process, "listen", (), "filled in"),
        (process, "name", "", "filled in"),
        (process, "state_dir", "", "filled in"),
        (process, "upstreams", (UPSTREAM, UPSTREAM), "of different names"),
        (process, "upstreams", (), ""),
        (process, "routes", (ROUTE, ROUTE), "of different names"),
        (process, "routes", (replace(ROUTE, upstream="b"),), "to upstreams of the file"),
        (
            process,
            "routes",
            (replace(ROUTE, fallback=fallback(upstream="b")),),
            "to upstreams of the file",
        ),
    ],
)
def test_nonsense_is_refused(make: Make, name: str, value: object, expected: str) -> None:
    with pytest.raises(ValueError, match=f"must be .*{expected}"):
        make(**{name: value})


def test_a_message_does_not_quote_what_may_be_a_secret() -> None:
    secret = replace(ROUTE, match=Match(headers=(("authorization", "hunter2"),)))
    with pytest.raises(ValueError, match=r"routes must be of different names$") as raised:
        process(routes=(secret, secret))
    assert "hunter2" not in str(raised.value)
