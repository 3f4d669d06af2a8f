"""Remedies of ``explain``: only what the stages say to help is suggested."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from proxy.explain.course import simulate
from proxy.explain.remedies import RemedySearch
from proxy.explain.subject import Subject
from proxy.http.header_edits import HeaderEdits
from proxy.policy.reasons import VerdictReason
from proxy.policy.settings import (
    Backoff,
    BudgetSettings,
    FallbackSettings,
    HonouredKey,
    JitterStrategy,
    Outcomes,
    Rate,
    RetrySettings,
    RouteSettings,
    ThrottleSettings,
    UnsafeRetries,
)
from tests.explain.scripted import ROUTE, UPSTREAM, WALL, outcomes, retrying, subject

TWICE = "write retry: {unsafe: always}, and it may run twice"
ONCE = ", if it runs a request with the same key once"
KEY = f"write honours_key: true in upstreams.up and send one Idempotency-Key{ONCE}"
NEVER = retrying(unsafe=UnsafeRetries.NEVER)
POOR = replace(UPSTREAM, budget=BudgetSettings(ratio=0, min_per_second=0))
TIGHT = ThrottleSettings(rates=(Rate(1, 60.0),), burst=1, max_wait=1.0)


def search(request: Subject, *script: str, hint: float | None = None) -> RemedySearch:
    """The search after a request whose attempts end as *script* says."""
    course = simulate(request, outcomes(*script), [0.5], WALL)
    return RemedySearch(course, outcomes(*script), hint, (), WALL)


def remedies(request: Subject, *script: str, hint: float | None = None) -> list[str]:
    return search(request, *script, hint=hint).remedies(request)


@pytest.mark.parametrize("outcome", ["reset", "503"])
def test_unsafe_auto_alone_does_not_help_a_request_that_may_have_run(outcome: str) -> None:
    """Finding 8: it was told to write ``unsafe: auto``, and still was not repeated."""
    told = remedies(subject("POST", route=NEVER), outcome)
    assert told[0] == (
        f"write unsafe: auto and honours_key: true in upstreams.up and send one "
        f"Idempotency-Key{ONCE}"
    )
    assert told[-1] == TWICE
    assert not [text for text in told if text.startswith("write unsafe: auto,")]


def test_unsafe_auto_helps_where_the_upstream_says_that_nothing_was_done() -> None:
    told = remedies(subject("POST", route=NEVER), "429")
    assert "write unsafe: auto, if its 429 says that nothing was done" in told


def test_a_key_that_the_route_takes_away_is_not_suggested() -> None:
    edits = HeaderEdits(remove=("idempotency-key",))
    route = replace(ROUTE, request_headers=edits)
    assert not [text for text in remedies(subject("POST", route=route), "reset") if "key" in text]
    assert KEY in remedies(subject("POST"), "reset")


def test_what_only_reaches_the_next_obstacle_is_suggested_with_its_remedy() -> None:
    """With the status in ``on`` alone the POST would still not be sent again."""
    listed = "write retry: {on: [default, 500]}"
    assert remedies(subject("GET"), "500") == [listed]
    refused = "write refused: [421, 425, 429, 500] in upstreams.up"
    assert remedies(subject("POST"), "500") == [
        f"{listed}, and {KEY}",
        f"{listed}, and {refused}, if its 500 says that nothing was done",
        f"{listed}, and {TWICE}",
    ]


def _route(**changes: object) -> RouteSettings:
    return replace(ROUTE, **changes)  # type: ignore[arg-type]  # the cases below name fields


STEEP = Backoff(base=30.0, jitter=JitterStrategy.NONE)
EVERY = "write retry: true in the route, in a policy or in defaults"
CASES: list[tuple[Subject, Sequence[str], float | None, list[str]]] = [
    (subject("GET", route=_route(retry=None)), ["503"], None, [EVERY]),
    (
        subject(
            "GET",
            route=_route(
                retry=None, fallback=FallbackSettings(Outcomes(frozenset(), frozenset({503})), 200)
            ),
        ),
        ["503"],
        None,
        [EVERY],
    ),
    (subject("GET"), ["503"] * 3, None, ["write retry: {attempts: 4} or more"]),
    (
        subject("GET"),
        ["429 Retry-After: 90"],
        90.0,
        ["write retry: {retry_after: {max: 1m30s}} or more, and write timeout: 3m (say)"],
    ),
    (
        subject("GET", route=_route(timeout=200.0)),
        ["429 Retry-After: 90"],
        90.0,
        ["write retry: {retry_after: {max: 1m30s}} or more"],
    ),
    (
        subject("GET"),
        ["timeout"],
        None,
        ["write retry: {attempt_timeout: 10s} to leave time for another"],
    ),
    (
        subject("GET", route=retrying(backoff=STEEP)),
        ["503"],
        None,
        ["write timeout: 1m (say)", "write retry: {backoff: {base: 15s}} (say)"],
    ),
    (
        subject("GET", "Holdfast-Timeout: 50ms"),
        ["503"],
        None,
        [
            "have the client send a longer Holdfast-Timeout",
            "write retry: {backoff: {base: 20ms}} (say)",
        ],
    ),
    (
        subject("PUT", "Content-Length: 100000", route=_route(buffer=1000)),
        ["503"],
        None,
        ["write buffer: 100000B or more"],
    ),
    (
        subject("GET", upstream=POOR),
        ["503"],
        None,
        [
            "write budget: {min_per_second: 10} (say) in upstreams.up",
            "write budget: false in upstreams.up",
        ],
    ),
    (
        subject("GET", route=_route(throttle=TIGHT, timeout=None)),
        ["503"],
        None,
        [
            "write max_wait: 2m (say) in the route's throttle",
            "write burst: 2 or more in the route's throttle",
            "write a rate 100 times as high (say) in the route's throttle",
        ],
    ),
    (
        # Within its timeout no wait is long enough, so a longer one is not suggested.
        subject("GET", upstream=replace(UPSTREAM, throttle=TIGHT)),
        ["503"],
        None,
        [
            "write burst: 2 or more in the throttle in upstreams.up",
            "write a rate 100 times as high (say) in the throttle in upstreams.up",
        ],
    ),
    (subject("GET"), ["200"], None, []),
    (subject("GET"), ["truncated"], None, []),
]


@pytest.mark.parametrize(("request_", "script", "hint", "told"), CASES)
def test_what_helps(
    request_: Subject, script: Sequence[str], hint: float | None, told: list[str]
) -> None:
    assert remedies(request_, *script, hint=hint) == told


def test_a_key_that_the_upstream_forgets_too_soon() -> None:
    upstream = replace(UPSTREAM, honours_key=HonouredKey(remembered_for=6.0))
    route = _route(
        timeout=5.0,
        retry=RetrySettings(backoff=Backoff(base=2.0, jitter=JitterStrategy.NONE)),
    )
    request = subject("POST", "Idempotency-Key: k", route=route, upstream=upstream)
    longer = "write a longer honours_key: {for: 15s} (say) in upstreams.up"
    assert remedies(request, "503") == [
        f"{longer}, if it remembers keys for so long",
        "write retry: {backoff: {base: 1s}} (say)",
        "write retry: {attempt_timeout: 2s} (say)",
    ]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("certificate", "correct the tls of upstreams.up: it is never repeated"),
        ("busy", "write a larger max_connections or a longer connect_timeout in upstreams.up"),
        ("503 X-Should-Retry: false", "ask the upstream's owner: nothing in the file changes it"),
        ("503 Idempotent-Replayed: true", "have the client send a new key, once it knows"),
    ],
)
def test_what_no_setting_changes_is_advice(script: str, told: str) -> None:
    request = subject("GET")
    found = search(request, script)
    assert found.remedies(request) == []
    (advice,) = found.advice(request)
    assert advice.startswith(told)


def test_a_remedy_does_not_help_by_luck_alone() -> None:
    """With a roll of 0 there is no wait; the timeout has to allow for the longest."""
    route = retrying(backoff=Backoff(base=20.0, max=20.0))
    request = subject("GET", route=replace(route, timeout=12.0))
    course = simulate(request, outcomes("503"), [0.9], WALL)
    assert course.attempts[-1].verdict is VerdictReason.DEADLINE
    told = RemedySearch(course, outcomes("503"), None, (), WALL).remedies(request)
    assert told[0] == "write timeout: 25s (say)"


def test_the_search_ends() -> None:
    """A request of very many attempts is tried a few times only, whatever there is to try."""
    request = subject("GET", route=retrying(attempts=700), upstream=replace(UPSTREAM, budget=None))
    request = replace(request, route=replace(request.route, timeout=None))
    found = search(request, *["503"] * 700)
    assert found.course.attempts[-1].verdict is VerdictReason.ATTEMPTS_EXHAUSTED
    assert found.remedies(request) == ["write retry: {attempts: 701} or more"]
    assert found.remedies(request) == []  # all that may be simulated has been
