"""The one rule of what may be sent again: where, and until when."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import (
    ANYWHERE,
    RepeatPermission,
    RepeatRules,
    did_not_run,
    is_repeatable,
    longest_attempt,
    may_have_run,
)
from proxy.policy.settings import (
    HonouredKey,
    Match,
    Origin,
    RetrySettings,
    RouteSettings,
    UnsafeRetries,
    UpstreamSettings,
)

A, B = "http://a.example", "http://b.example/base"
AUTO, NEVER, ALWAYS = UnsafeRetries
URLS = (Origin("http", "a.example", 80), Origin("http", "b.example", 80, "/base"))
UPSTREAM = UpstreamSettings("up", URLS, honours_key=HonouredKey(remembered_for=100.0))
SHARED = replace(UPSTREAM, honours_key=HonouredKey(remembered_for=100.0, is_shared=True))
PLAIN = replace(UPSTREAM, honours_key=None)
REFUSED = frozenset({429})


@dataclass(frozen=True)
class Asked:
    method: str = "POST"
    has_key: bool = True

    def sends_once(self, name: bytes) -> bool:
        return self.has_key and name == b"idempotency-key"


def made(
    ending: FailureKind | int,
    *,
    url: str = A,
    at: float = 0.0,
    sent: bool = True,
    upstream: str = "up",
) -> Attempt:
    attempt = Attempt(1, upstream, at)
    attempt.url, attempt.sent = url, sent
    if isinstance(ending, FailureKind):
        attempt.kind = ending
    else:
        attempt.status = ending
    return attempt


def leave(
    *attempts: Attempt,
    upstream: UpstreamSettings = UPSTREAM,
    asked: Asked | None = None,
    unsafe: UnsafeRetries = AUTO,
    now: float = 1.0,
    attempt_time: float | None = 10.0,
    earlier: tuple[Attempt, ...] = (),
) -> RepeatPermission | VerdictReason:
    rules = RepeatRules(upstream, unsafe, attempt_time)
    return rules.permission(asked or Asked(), attempts, now, earlier)


@pytest.mark.parametrize(
    ("ending", "proved", "maybe"),
    [
        (FailureKind.CONNECT, True, False),
        (FailureKind.BUSY, True, False),
        (FailureKind.CERTIFICATE, True, False),
        (FailureKind.RESET, False, True),
        (FailureKind.TIMEOUT, False, True),
        (FailureKind.PROTOCOL, False, True),
        (FailureKind.TRUNCATED, False, True),
        (FailureKind.CANCELLED, False, True),
        (FailureKind.UNKNOWN, False, True),
        (429, True, False),
        (503, False, True),
        (529, False, True),
        (500, False, True),
        (501, False, False),
        (505, False, False),
        (408, False, False),
        (404, False, False),
    ],
)
def test_what_is_proved_and_what_must_be_reckoned_with(
    ending: FailureKind | int, *, proved: bool, maybe: bool
) -> None:
    assert did_not_run(made(ending), REFUSED) is proved
    assert may_have_run(made(ending), REFUSED) is maybe
    assert not (proved and maybe)


def test_what_was_not_sent_did_not_run() -> None:
    for kind in FailureKind:
        assert did_not_run(made(kind, sent=False), REFUSED)
        assert not may_have_run(made(kind, sent=False), REFUSED)


@pytest.mark.parametrize(
    ("method", "carries_key", "unsafe", "expected"),
    [
        *((method, False, NEVER, True) for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")),
        ("POST", False, AUTO, False),
        ("POST", True, AUTO, True),
        ("PATCH", False, AUTO, False),
        ("PATCH", True, AUTO, True),
        ("POST", True, NEVER, False),
        ("PATCH", True, NEVER, False),
        ("POST", False, ALWAYS, True),
        ("PURGE", False, AUTO, False),
        ("PURGE", True, AUTO, False),
        ("PURGE", False, ALWAYS, True),
        ("post", True, AUTO, False),
        ("get", False, AUTO, False),
    ],
)
def test_what_does_no_harm_if_it_runs_twice(
    method: str, unsafe: UnsafeRetries, *, carries_key: bool, expected: bool
) -> None:
    assert is_repeatable(method, unsafe, carries_honoured_key=carries_key) is expected


def test_a_permission_lasts_to_its_last_moment() -> None:
    permission = RepeatPermission(within=5.0)
    assert permission.allows(0.0)
    assert permission.allows(5.0)
    assert not permission.allows(5.001)
    assert ANYWHERE.allows(1e9)


IN_DOUBT = made(503)
SECONDS_LEFT = 100.0 - 10.0 - 1.0


@pytest.mark.parametrize(
    ("attempts", "options", "expected"),
    [
        pytest.param([], {}, ANYWHERE, id="nothing was tried"),
        pytest.param([made(429)], {"upstream": PLAIN}, ANYWHERE, id="refused"),
        pytest.param([made(FailureKind.CONNECT)], {"upstream": PLAIN}, ANYWHERE, id="never sent"),
        pytest.param(
            [IN_DOUBT], {"upstream": PLAIN}, VerdictReason.NOT_REPEATABLE, id="no promise"
        ),
        pytest.param(
            [IN_DOUBT], {"asked": Asked(has_key=False)}, VerdictReason.NOT_REPEATABLE, id="no key"
        ),
        pytest.param(
            [IN_DOUBT], {"asked": Asked("PURGE")}, VerdictReason.NOT_REPEATABLE, id="no method"
        ),
        pytest.param([IN_DOUBT], {"asked": Asked("PUT", has_key=False)}, ANYWHERE, id="PUT"),
        pytest.param([IN_DOUBT], {"unsafe": NEVER}, VerdictReason.NOT_REPEATABLE, id=NEVER),
        pytest.param(
            [made(429)], {"unsafe": NEVER}, VerdictReason.NOT_REPEATABLE, id="not even refused"
        ),
        pytest.param([IN_DOUBT], {"unsafe": ALWAYS, "upstream": PLAIN}, ANYWHERE, id="by order"),
        pytest.param(
            [IN_DOUBT], {}, RepeatPermission(A, SECONDS_LEFT), id="where the key is known"
        ),
        pytest.param(
            [IN_DOUBT],
            {"upstream": SHARED},
            RepeatPermission("", SECONDS_LEFT),
            id="known everywhere",
        ),
        pytest.param(
            [made(429, url=B), made(FailureKind.RESET), made(FailureKind.CONNECT, url=B)],
            {},
            RepeatPermission(A, SECONDS_LEFT),
            id="only those count that may have run",
        ),
        pytest.param(
            [made(503), made(503, url=B)],
            {},
            VerdictReason.NOT_REPEATABLE,
            id="at two of them already",
        ),
        pytest.param(
            [made(503), made(503, url=B)],
            {"upstream": SHARED},
            RepeatPermission("", SECONDS_LEFT),
            id="which know of each other",
        ),
        pytest.param(
            [made(503, upstream="other")], {}, VerdictReason.NOT_REPEATABLE, id="another upstream's"
        ),
        pytest.param(
            [made(503, url="http://gone.example")],
            {},
            VerdictReason.NOT_REPEATABLE,
            id="a URL that is gone",
        ),
        pytest.param([IN_DOUBT], {"now": 90.0}, RepeatPermission(A, 0.0), id="the last moment"),
        pytest.param([IN_DOUBT], {"now": 90.1}, VerdictReason.KEY_EXPIRED, id="a moment later"),
        pytest.param(
            [made(503), made(503, at=80.0)],
            {"now": 91.0},
            VerdictReason.KEY_EXPIRED,
            id="from the first on",
        ),
        pytest.param(
            [made(FailureKind.CONNECT), made(503, at=80.0)],
            {"now": 91.0},
            RepeatPermission(A, 79.0),
            id="from the first that may have run",
        ),
        pytest.param(
            [IN_DOUBT],
            {"attempt_time": None},
            RepeatPermission(A, 49.0),
            id="an attempt without limits",
        ),
        pytest.param(
            [IN_DOUBT], {"attempt_time": 100.5}, VerdictReason.KEY_EXPIRED, id="or too long a one"
        ),
    ],
)
def test_where_and_until_when(
    attempts: list[Attempt], options: dict[str, Any], expected: RepeatPermission | VerdictReason
) -> None:
    assert leave(*attempts, **options) == expected


@pytest.mark.parametrize(
    ("attempts", "earlier", "expected"),
    [
        pytest.param(
            [], [made(503)], RepeatPermission(A, SECONDS_LEFT), id="goes where it is known"
        ),
        pytest.param([], [made(503, at=-90.0)], ANYWHERE, id="which has forgotten it"),
        pytest.param([], [made(503), made(503, url=B)], ANYWHERE, id="or knows half of it"),
        pytest.param(
            [made(FailureKind.CONNECT)],
            [made(503)],
            RepeatPermission(A, SECONDS_LEFT),
            id="and stays",
        ),
        pytest.param(
            [made(503)], [made(503, at=-90.0)], VerdictReason.KEY_EXPIRED, id="as old as ever"
        ),
        pytest.param(
            [made(503, url=B)], [made(503)], VerdictReason.NOT_REPEATABLE, id="at another URL"
        ),
        pytest.param([made(429)], [made(429)], ANYWHERE, id="nothing ever ran"),
    ],
)
def test_a_letter_that_a_person_sends_again(
    attempts: list[Attempt], earlier: list[Attempt], expected: RepeatPermission | VerdictReason
) -> None:
    assert leave(*attempts, earlier=tuple(earlier)) == expected


@pytest.mark.parametrize(
    ("attempts", "asked", "unsafe", "expected"),
    [
        pytest.param([made(429)], Asked(), AUTO, True, id="refused"),
        pytest.param([made(429)], Asked(), NEVER, False, id="which is not believed"),
        pytest.param([made(503)], Asked(), AUTO, False, id="a key is unknown there"),
        pytest.param([made(503)], Asked("PUT"), AUTO, True, id="a method is one everywhere"),
        pytest.param([made(503)], Asked(), ALWAYS, True, id="by order"),
        pytest.param([made(503), made(429)], Asked(), AUTO, False, id="all of them count"),
    ],
)
def test_to_another_upstream(
    attempts: list[Attempt], asked: Asked, unsafe: UnsafeRetries, *, expected: bool
) -> None:
    assert RepeatRules(SHARED, unsafe, 10.0).may_go_elsewhere(asked, attempts) is expected


def test_each_upstream_speaks_for_itself() -> None:
    other = UpstreamSettings("other", URLS, refused=frozenset({503}))
    rules = RepeatRules(PLAIN, AUTO, 1.0, [other])
    assert rules.permission(Asked(), [made(503, upstream="other")], 0.0) == ANYWHERE
    assert rules.permission(Asked(), [made(503)], 0.0) is VerdictReason.NOT_REPEATABLE


@pytest.mark.parametrize(
    ("timeout", "attempt_timeout", "longest"),
    [(30.0, None, 30.0), (30.0, 4.0, 4.0), (None, 4.0, 4.0), (None, None, None)],
)
def test_how_long_an_attempt_may_take(
    timeout: float | None, attempt_timeout: float | None, longest: float | None
) -> None:
    retry = RetrySettings(attempt_timeout=attempt_timeout)
    route = RouteSettings("r", Match(), "up", timeout=timeout, retry=retry)
    assert longest_attempt(route) == longest
