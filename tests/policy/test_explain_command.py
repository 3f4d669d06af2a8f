"""The arguments of ``holdfast explain`` for a request that is over."""

from dataclasses import replace

import pytest

from proxy.policy.explain_command import EndedRequest, ExplainContext, key_fields
from proxy.policy.settings import (
    HonouredKey,
    IdempotencySettings,
    Match,
    Origin,
    RetrySettings,
    RouteSettings,
    Settings,
    UpstreamSettings,
)

UPSTREAM = UpstreamSettings("up", (Origin("http", "127.0.0.1", 1),))
ROUTE = RouteSettings("pay", Match(), "up", retry=RetrySettings(), buffer=1000)
REQUEST = EndedRequest("POST", "/pay", "pay", ())


def attempt(outcome: str | int, **others: object) -> dict[str, object]:
    """An attempt as it is recorded."""
    if isinstance(outcome, int):
        return {"upstream": "up", "outcome": f"{outcome // 100}xx", "status": outcome, **others}
    return {"upstream": "up", "outcome": outcome, "status": None, **others}


def waited(milliseconds: float, reason: str) -> dict[str, object]:
    """A good attempt after a wait."""
    return attempt(200, wait_ms=milliseconds, wait_for=reason)


def context(
    route: RouteSettings = ROUTE, upstream: UpstreamSettings = UPSTREAM, *masked: tuple[str, str]
) -> ExplainContext:
    settings = Settings(upstreams=(upstream,), routes=(route,))
    return ExplainContext(("holdfast.yaml",), settings, frozenset(masked))


def arguments(request: EndedRequest, of: ExplainContext | None = None) -> list[str]:
    found = (of or context()).arguments(request)
    assert found[:2] == ["-c", "holdfast.yaml"]
    return found[2:]


@pytest.mark.parametrize(
    ("attempts", "outcomes"),
    [
        ([], []),
        ([attempt(503)], ["503"]),
        ([attempt("reset"), attempt(503), attempt(200)], ["reset", "503", "200"]),
        ([attempt("truncated", status=200)], ["truncated"]),
        # What explain has no words for, and all behind it, is left out.
        ([attempt(503), attempt("cancelled"), attempt(200)], ["503"]),
        ([attempt("unknown")], []),
        ([attempt(503), {**attempt(200), "upstream": "fallback"}], ["503"]),
        # A pooled connection that had ended was no attempt of its own.
        ([attempt("reset", reused=True, received=False), attempt(503)], ["503"]),
        ([attempt("reset", reused=True, received=False)], ["reset"]),
        # The fields that decided.
        ([attempt(503), waited(2500.0, "hint")], ["503:retry-after=2", "200"]),
        ([attempt(503), waited(14.2, "hint")], ["503:retry-after-ms=14", "200"]),
        ([attempt(503), waited(14.2, "backoff")], ["503", "200"]),
        ([attempt(429, why="hint_too_long")], ["429:retry-after=61"]),
        ([attempt(503, why="server_said_no")], ["503:x-should-retry=false"]),
        ([attempt(503, why="final_answer")], ["503:idempotent-replayed=true"]),
        ([attempt(503, why="a word of another version")], ["503"]),
    ],
)  # fmt: skip
def test_outcomes(attempts: list[dict[str, object]], outcomes: list[str]) -> None:
    words = [part for word in outcomes for part in ("--outcome", word)]
    assert arguments(replace(REQUEST, attempts=attempts)) == ["POST", "/pay", *words]


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/pay?card=4242", "/pay"),  # a query may have secrets, and no route asks for it
        ("/a b\x1b\n", "/a%20b%1B%0A"),
        ("/é\udcff", "/%C3%A9%FF"),
        ("/$(reboot);'\"`", "/$(reboot);'\"`"),  # whoever shows it, quotes it
    ],
)
def test_the_path(target: str, path: str) -> None:
    assert arguments(replace(REQUEST, target=target)) == ["POST", path]


def test_several_files() -> None:
    found = replace(context(), files=("a.yaml", "b.yaml")).arguments(REQUEST)
    assert found == ["-c", "a.yaml", "-c", "b.yaml", "POST", "/pay"]


@pytest.mark.parametrize(
    "request_",
    [
        replace(REQUEST, method="--help"),
        replace(REQUEST, method="get"),
        replace(REQUEST, target="*"),
        replace(REQUEST, target=""),
    ],
)
def test_what_explain_does_not_take_has_no_command(request_: EndedRequest) -> None:
    assert context().arguments(request_) == []


def test_without_a_file_there_is_no_command() -> None:
    assert replace(context(), files=()).arguments(REQUEST) == []


def test_a_request_that_no_route_took() -> None:
    request = replace(REQUEST, route="none", has_key=True, attempts=[attempt(503)])
    assert arguments(request) == ["POST", "/pay"]


def test_what_the_route_asks_for_is_met_and_secrets_are_not_shown() -> None:
    match = Match(
        hosts=("*.acme.example",),
        headers=(("authorization", "Bearer s3cret"), ("x-tenant", "acme"), ("x-kind", "a*")),
    )
    found = arguments(
        REQUEST, context(replace(ROUTE, match=match), UPSTREAM, ("pay", "authorization"))
    )
    assert found == [
        *("POST", "http://any.acme.example/pay"),
        *("-H", "Authorization: VALUE", "-H", "X-Tenant: acme", "-H", "X-Kind: a"),
    ]  # fmt: skip


def test_a_key_is_some_key() -> None:
    keyed = replace(REQUEST, has_key=True)
    assert arguments(keyed)[2:] == ["-H", "Idempotency-Key: KEY"]
    route = replace(ROUTE, idempotency=IdempotencySettings(header="x-key", scope_required=True))
    honoured = replace(UPSTREAM, honours_key=HonouredKey(header="x-pay-key"))
    assert arguments(keyed, context(route, honoured))[2:] == [
        *("-H", "X-Key: KEY", "-H", "X-Pay-Key: KEY", "-H", "Authorization: VALUE"),
    ]
    settings = context(route, honoured).settings
    assert key_fields(settings) == {b"idempotency-key", b"x-key", b"x-pay-key"}


def test_time_and_size_that_matter() -> None:
    assert arguments(replace(REQUEST, timeout=1.5))[2:] == ["-H", "Holdfast-Timeout: 1500ms"]
    assert arguments(replace(REQUEST, length=1000))[2:] == []
    assert arguments(replace(REQUEST, length=1001))[2:] == ["-H", "Content-Length: 1001"]
    streamed = replace(REQUEST, length=-1)
    assert arguments(streamed)[2:] == []
    too_large = [attempt(503, why="body_too_large")]
    assert arguments(replace(streamed, attempts=too_large))[2:4] == ["-H", "Content-Length: 1001"]


def test_another_protocol() -> None:
    request = replace(REQUEST, method="GET", upgrade=True)
    assert arguments(request)[2:] == ["-H", "Connection: upgrade", "-H", "Upgrade: websocket"]


def test_a_verdict_comes_with_its_meaning() -> None:
    found = context()
    assert found.meaning(attempt(503)) is None
    assert found.meaning(attempt(503, why="a word of another version")) is None
    assert found.meaning(attempt(503, why="budget")) == "the upstream's budget has no retry left"
    refused = found.meaning(attempt(429, why="not_repeatable"))
    assert refused == "unsafe: never repeats it only if nothing of it was sent"
    lost = found.meaning(attempt(503, why="not_repeatable"), key_lost=True)
    assert lost == "another request may have its key by now"
