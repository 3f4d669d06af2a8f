"""Requests and outcomes for the tests of courses, in short form."""

from dataclasses import replace

from proxy.explain.subject import Subject
from proxy.http.refusal import Refusal
from proxy.http.request_head import read_request_head
from proxy.policy.attempt import FailureKind
from proxy.policy.settings import (
    Backoff,
    JitterStrategy,
    Match,
    Origin,
    RetrySettings,
    RouteSettings,
    UpstreamSettings,
)
from proxy.simulation.scripted_peer import ScriptedOutcome

UPSTREAM = UpstreamSettings("up", (Origin("http", "127.0.0.1", 1),))
STEADY = Backoff(base=0.1, jitter=JitterStrategy.NONE)
ROUTE = RouteSettings("all", Match(), "up", retry=RetrySettings(backoff=STEADY))
WALL = 1_800_000_000.0


def subject(
    method: str = "GET",
    *fields: str,
    route: RouteSettings = ROUTE,
    upstream: UpstreamSettings = UPSTREAM,
    other: UpstreamSettings | None = None,
) -> Subject:
    """A request with *fields*, each as ``Name: value``."""
    pairs = [field.partition(": ")[::2] for field in fields]
    raw = tuple((name.encode(), value.encode()) for name, value in pairs)
    head = read_request_head(raw, http_1_0=False)
    assert not isinstance(head, Refusal)
    return Subject(method, head, route, upstream, other)


def retrying(**changes: object) -> RouteSettings:
    """The usual route with other retry settings."""
    assert ROUTE.retry is not None
    return replace(ROUTE, retry=replace(ROUTE.retry, **changes))  # type: ignore[arg-type]  # tests


def outcomes(*script: str) -> list[ScriptedOutcome]:
    """``503``, ``429 Retry-After: 5``, ``reset``."""
    found = []
    for word in script:
        first, _, field = word.partition(" ")
        fields = (field.encode(),) if field else ()
        if first.isdigit():
            found.append(ScriptedOutcome(None, int(first), fields))
        else:
            kind = FailureKind(first)
            found.append(ScriptedOutcome(kind, 200 if kind is FailureKind.TRUNCATED else 0))
    return found
