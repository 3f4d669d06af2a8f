"""Retries, fallbacks, budgets and breakers: what comes of what is written."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from proxy.config import Loaded
from proxy.policy.settings import (
    USUAL_OUTCOMES,
    Backoff,
    BackoffStrategy,
    BreakerSettings,
    BudgetSettings,
    FallbackSettings,
    HonouredKey,
    JitterStrategy,
    Outcomes,
    RetrySettings,
    RouteSettings,
    UnsafeRetries,
    UpstreamSettings,
)

Load = Callable[..., Loaded]

USUAL_WORDS = USUAL_OUTCOMES.names
USUAL_OR_OPEN = Outcomes(USUAL_WORDS | {"breaker_open"}, USUAL_OUTCOMES.statuses)
SERVER_ERRORS = frozenset(range(500, 600)) - {501, 505}


def route(loaded: Load, keys: str, *, defaults: str = "", policy: str = "") -> RouteSettings:
    """Load the only route of a file, with keys in each of its layers."""
    (only,) = loaded(
        f"upstreams: {{a: 'http://127.0.0.1:1', b: 'http://127.0.0.1:2'}}\n"
        f"defaults: {{{defaults}}}\n"
        f"policies: {{p: {{{policy}}}}}\n"
        f"routes: [{{match: /**, upstream: a, policy: p, {keys}}}]\n"
    ).settings.routes
    return only


def upstream(loaded: Load, keys: str) -> UpstreamSettings:
    (only,) = loaded(
        f"upstreams: {{a: {{urls: ['http://127.0.0.1:1'], {keys}}}}}\n"
        f"routes: [{{match: /**, upstream: a}}]\n"
    ).settings.upstreams
    return only


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("", None, id="nobody said so: off"),
        pytest.param("retry: false", None, id="false: off"),
        pytest.param("retry: true", RetrySettings(), id="true: the built-in values"),
        pytest.param("retry: {}", RetrySettings(), id="an empty mapping: the same"),
        pytest.param("retry: 5", RetrySettings(attempts=5), id="a number: attempts"),
        pytest.param("retry: 1", RetrySettings(attempts=1), id="a single attempt is allowed"),
        pytest.param(
            "retry: {attempts: 100, unsafe: never, attempt_timeout: 250ms, on: [connect]}",
            RetrySettings(100, Outcomes(frozenset({"connect"})), UnsafeRetries.NEVER, 0.25),
            id="every key of its own",
        ),
        pytest.param(
            "retry: {attempt_timeout: none, retry_after: true}",
            RetrySettings(),
            id="what is built in, spelled out",
        ),
        pytest.param(
            "retry: {retry_after: false}",
            RetrySettings(longest_hint=None),
            id="hints are not listened to",
        ),
        pytest.param(
            "retry: {retry_after: {max: 5m}}", RetrySettings(longest_hint=300), id="long hints"
        ),
        pytest.param(
            "retry: {backoff: {strategy: linear, base: 1s, increment: 500ms, max: 10s}}",
            RetrySettings(backoff=Backoff(BackoffStrategy.LINEAR, 1, 2, 0.5, 10)),
            id="linear waits",
        ),
        pytest.param(
            "retry: {backoff: {factor: 1.5, jitter: 0.2}}",
            RetrySettings(backoff=Backoff(factor=1.5, jitter=0.2)),
            id="numbers with a point",
        ),
        pytest.param(
            "retry: {backoff: {jitter: 1}}",
            RetrySettings(backoff=Backoff(jitter=1.0)),
            id="a whole number for a jitter",
        ),
        pytest.param(
            "retry: {backoff: {base: 0s, jitter: none}}",
            RetrySettings(backoff=Backoff(base=0, jitter=JitterStrategy.NONE)),
            id="no wait at all",
        ),
        pytest.param(
            "retry: {backoff: {max: 50ms}}",
            RetrySettings(backoff=Backoff(base=0.05, max=0.05)),
            id="the built-in first wait gives way to a shorter longest one",
        ),
    ],
)
def test_retry(loaded: Load, written: str, expected: RetrySettings | None) -> None:
    assert route(loaded, written).retry == expected


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        pytest.param("[default]", USUAL_OUTCOMES, id="default is the built-in list"),
        pytest.param(
            "[default, protocol, 529]",
            Outcomes(USUAL_WORDS | {"protocol"}, USUAL_OUTCOMES.statuses | {529}),
            id="default and more",
        ),
        pytest.param(
            "[connect, 5xx]",
            Outcomes(frozenset({"connect"}), SERVER_ERRORS),
            id="a class covers neither 501 nor 505",
        ),
        pytest.param(
            "[connect, 5xx, 501]",
            Outcomes(frozenset({"connect"}), SERVER_ERRORS | {501}),
            id="a number does",
        ),
        pytest.param(
            "[reset, 4xx]",
            Outcomes(frozenset({"reset"}), frozenset(range(400, 500))),
            id="the other class",
        ),
        pytest.param(
            "[timeout, 403+hint, '503']",
            Outcomes(frozenset({"timeout"}), frozenset({503}), frozenset({403})),
            id="a status with a hint, and one in quotes",
        ),
    ],
)
@pytest.mark.parametrize("key", ["on", "true", "'true'", "True"])
def test_outcomes(loaded: Load, key: str, on: str, expected: Outcomes) -> None:
    retry = route(loaded, f"retry: {{{key}: {on}}}").retry
    assert retry is not None
    assert retry.on == expected


@pytest.mark.parametrize(
    ("defaults", "policy", "own", "expected"),
    [
        pytest.param("retry: 5", "", "", RetrySettings(attempts=5), id="defaults switch on"),
        pytest.param(
            "retry: {unsafe: never}",
            "",
            "retry: 5",
            RetrySettings(attempts=5, unsafe=UnsafeRetries.NEVER),
            id="a shorthand sets its one key",
        ),
        pytest.param(
            "retry: {unsafe: never, attempts: 7}",
            "retry: {attempts: 6}",
            "retry: {backoff: {base: 1s}}",
            RetrySettings(attempts=6, unsafe=UnsafeRetries.NEVER, backoff=Backoff(base=1)),
            id="key by key",
        ),
        pytest.param(
            "retry: {backoff: {base: 1s, factor: 3}}",
            "",
            "retry: {backoff: {factor: 4}}",
            RetrySettings(backoff=Backoff(base=1, factor=4)),
            id="at every depth",
        ),
        pytest.param(
            "retry: {on: [default, 529]}",
            "",
            "retry: {on: [default, 500]}",
            RetrySettings(on=Outcomes(USUAL_WORDS, USUAL_OUTCOMES.statuses | {500})),
            id="lists replace",
        ),
        pytest.param("retry: 5", "", "retry: false", None, id="a route switches off"),
        pytest.param("retry: 5", "retry: false", "", None, id="a policy switches off"),
        pytest.param(
            "retry: false", "", "retry: {}", RetrySettings(), id="an empty mapping switches on"
        ),
        pytest.param(
            "retry: false",
            "",
            "retry: {attempts: 2}",
            RetrySettings(attempts=2),
            id="a mapping switches on",
        ),
        pytest.param(
            "retry: false", "", "retry: 4", RetrySettings(attempts=4), id="so does a number"
        ),
        pytest.param(
            "retry: {attempts: 9, unsafe: never}",
            "retry: false",
            "retry: {attempts: 2}",
            RetrySettings(attempts=2, unsafe=UnsafeRetries.NEVER),
            id="what was switched off is on again as it was",
        ),
        pytest.param(
            "retry: 5", "", "retry: true", RetrySettings(attempts=5), id="true changes nothing else"
        ),
        pytest.param(
            "retry: {retry_after: {max: 9s}}",
            "retry: {retry_after: false}",
            "retry: {attempts: 2}",
            RetrySettings(attempts=2, longest_hint=None),
            id="a switch within a policy",
        ),
    ],
)
def test_precedence(
    loaded: Load, defaults: str, policy: str, own: str, expected: RetrySettings | None
) -> None:
    assert route(loaded, own, defaults=defaults, policy=policy).retry == expected


@pytest.mark.parametrize(
    ("defaults", "own", "expected"),
    [
        pytest.param("", "", None, id="nobody said so: off"),
        pytest.param("fallback: {status: 503}", "fallback: false", None, id="off"),
        pytest.param(
            "",
            "fallback: {status: 200, headers: {Content-Type: text/plain, X-A: b}, body: sorry}",
            FallbackSettings(
                USUAL_OR_OPEN, 200, (("Content-Type", "text/plain"), ("X-A", "b")), "sorry"
            ),
            id="a fixed answer, for the built-in outcomes where nothing is retried",
        ),
        pytest.param(
            "",
            "fallback: {upstream: b}",
            FallbackSettings(USUAL_OR_OPEN, upstream="b"),
            id="another upstream",
        ),
        pytest.param(
            "retry: {on: [connect, 529]}",
            "fallback: {status: 503}",
            FallbackSettings(
                Outcomes(frozenset({"connect", "breaker_open"}), frozenset({529})), 503
            ),
            id="for what is retried, and an open breaker",
        ),
        pytest.param(
            "retry: {on: [connect, 529]}",
            "retry: false, fallback: {status: 503}",
            FallbackSettings(USUAL_OR_OPEN, 503),
            id="for the built-in outcomes where retries are off",
        ),
        pytest.param(
            "retry: {on: [connect, 529]}",
            "fallback: {status: 503, on: [default, 500]}",
            FallbackSettings(
                Outcomes(USUAL_OR_OPEN.names, USUAL_OUTCOMES.statuses | {500}),
                503,
            ),
            id="default includes an open breaker",
        ),
        pytest.param(
            "",
            "fallback: {status: 503, on: [reset]}",
            FallbackSettings(Outcomes(frozenset({"reset"})), 503),
            id="for what it says, and nothing else",
        ),
        pytest.param(
            "fallback: {status: 503, body: a}",
            "fallback: {body: b}",
            FallbackSettings(USUAL_OR_OPEN, 503, body="b"),
            id="key by key",
        ),
        pytest.param(
            "fallback: {status: 503, body: a, on: [reset]}",
            "fallback: {upstream: b}",
            FallbackSettings(Outcomes(frozenset({"reset"})), upstream="b"),
            id="an upstream takes the place of a fixed answer",
        ),
        pytest.param(
            "fallback: {upstream: b}",
            "fallback: {status: 503}",
            FallbackSettings(USUAL_OR_OPEN, 503),
            id="and the other way round",
        ),
    ],
)
def test_fallback(loaded: Load, defaults: str, own: str, expected: FallbackSettings | None) -> None:
    assert route(loaded, own, defaults=defaults).fallback == expected


@pytest.mark.parametrize(
    ("keys", "field", "expected"),
    [
        pytest.param("", "honours_key", None, id="no promise"),
        pytest.param("honours_key: false", "honours_key", None, id="no promise, and said so"),
        pytest.param("honours_key: true", "honours_key", HonouredKey(), id="the usual header"),
        pytest.param(
            "honours_key: X-Request-Key", "honours_key", HonouredKey("x-request-key"), id="its own"
        ),
        pytest.param("honours_key: {}", "honours_key", HonouredKey(), id="all as usual"),
        pytest.param(
            "honours_key: {header: X-Key, for: 1h, shared: true}",
            "honours_key",
            HonouredKey("x-key", 3600.0, is_shared=True),
            id="for how long, and where",
        ),
        pytest.param(
            "honours_key: {for: 30d}",
            "honours_key",
            HonouredKey(remembered_for=30 * 86_400.0),
            id="the usual header, remembered for longer",
        ),
        pytest.param("refused: [429, 503]", "refused", {429, 503}, id="its own refusals"),
        pytest.param("refused: []", "refused", set(), id="no refusals"),
        pytest.param("budget: true", "budget", BudgetSettings(), id="a budget, which is usual"),
        pytest.param("budget: false", "budget", None, id="no budget"),
        pytest.param(
            "budget: {ratio: 0.5, min_per_second: 0.1, window: 1m}",
            "budget",
            BudgetSettings(0.5, 0.1, 60),
            id="another budget",
        ),
        pytest.param("budget: {ratio: 0}", "budget", BudgetSettings(ratio=0), id="a small budget"),
        pytest.param("", "breaker", None, id="no breaker"),
        pytest.param("breaker: false", "breaker", None, id="no breaker, and said so"),
        pytest.param("breaker: true", "breaker", BreakerSettings(), id="a breaker"),
        pytest.param("breaker: {}", "breaker", BreakerSettings(), id="the same"),
        pytest.param(
            "breaker: {failure_ratio: 1, min_requests: 5, window: 1s, open_for: 2s, probes: 1}",
            "breaker",
            BreakerSettings(1, 5, 1, 2, 1),
            id="another breaker",
        ),
    ],
)
def test_upstream(loaded: Load, keys: str, field: str, expected: object) -> None:
    assert getattr(upstream(loaded, keys), field) == expected


def test_sizes(loaded: Load) -> None:
    settings = loaded(
        "limits: {replay_memory: 5MiB}\n"
        "upstreams: {a: 'http://127.0.0.1:1'}\n"
        "defaults: {buffer: 3MiB}\n"
        "routes: [{match: /a, upstream: a, buffer: 0B}, {match: /b, upstream: a}]\n"
    ).settings
    assert settings.limits.replay_memory == 5 * 1024**2
    assert [one.buffer for one in settings.routes] == [0, 3 * 1024**2]


IN_FORCE = """\
upstreams:
  a: {urls: ['http://127.0.0.1:1'], honours_key: X-Key, breaker: true, budget: false}
  b: http://127.0.0.1:2
defaults: {retry: {unsafe: never, on: [default, 5xx, 403+hint, 529]}}
routes:
  - {match: /a, upstream: a, retry: 5, fallback: {upstream: b}}
  - {match: /b, upstream: b, retry: {retry_after: false, backoff: {max: 20ms, jitter: 0.5}}}
  - match: /c
    upstream: b
    retry: false
    fallback: {status: 200, headers: {X-A: b}, body: "{}\\n", on: [breaker_open]}
  - {match: /d, upstream: b, retry: {backoff: {strategy: linear, jitter: none}}}
"""


def test_what_is_in_force_is_shown_in_long_form(loaded: Load) -> None:
    shown: dict[str, Any] = loaded(IN_FORCE).effective
    first, second, third, _ = shown["routes"]
    assert first["retry"] == {
        "attempts": 5,
        "on": ["default", "5xx", "403+hint", 529],
        "unsafe": "never",
        "attempt_timeout": "none",
        "backoff": {
            "strategy": "exponential",
            "base": "100ms",
            "factor": 2,
            "max": "30s",
            "jitter": "full",
        },
        "retry_after": {"max": "1m"},
    }
    assert first["fallback"] == {"upstream": "b"}
    assert second["retry"]["retry_after"] is False
    assert second["fallback"] is False
    assert third["retry"] is False
    assert shown["upstreams"]["a"]["honours_key"] == {
        "header": "X-Key",
        "for": "1d",
        "shared": False,
    }
    assert shown["upstreams"]["a"]["budget"] is False
    assert shown["upstreams"]["b"]["honours_key"] is False
    assert shown["upstreams"]["b"]["refused"] == [421, 425, 429]
    assert shown["upstreams"]["b"]["breaker"] is False


def test_what_is_in_force_can_be_written_to_a_file(loaded: Load) -> None:
    found = loaded(IN_FORCE)
    assert loaded(json.dumps(found.effective)).settings == found.settings


def test_a_body_from_outside_is_sent_and_not_shown(loaded: Load) -> None:
    found = loaded(
        "upstreams: {a: 'http://127.0.0.1:1'}\n"
        "routes: [{match: /, upstream: a, fallback: {status: 503, body: '${BODY}'}}]\n",
        {"BODY": "s3cret\n"},
    )
    (only,) = found.settings.routes
    assert only.fallback is not None
    assert only.fallback.body == "s3cret\n"
    assert found.effective["routes"][0]["fallback"]["body"] == "***"
