"""Which requests are handed off: asked for, always, or after a failure."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from proxy.http.header_edits import HeaderEdits
from proxy.http.refusal import RefusalReason
from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.delivery.acceptance import (
    Acceptance,
    FailedRequest,
    HandOffRules,
    NotHandedOff,
)
from proxy.policy.retry.hints import NO_HINT, RetryHint
from proxy.policy.retry.verdict import AttemptResult
from proxy.policy.settings import (
    HandOffCredentials,
    HandOffSettings,
    HandOffWhen,
    HonouredKey,
    Match,
    Origin,
    RouteSettings,
    UpstreamSettings,
)

ASKED, FAILED, ALWAYS = HandOffWhen
PLAIN = UpstreamSettings("up", (Origin("http", "a.example", 80),))
HONOURS = replace(PLAIN, honours_key=HonouredKey())
CONNECT, TIMEOUT = FailureKind.CONNECT, FailureKind.TIMEOUT


def rules(
    *when: HandOffWhen,
    upstream: UpstreamSettings = PLAIN,
    edits: HeaderEdits | None = None,
    **others: Any,  # noqa: ANN401 - fields of any type
) -> HandOffRules:
    hand_off = HandOffSettings(when=frozenset(when), max_body=100, **others)
    edited = HeaderEdits() if edits is None else edits
    route = RouteSettings("r", Match(), "up", hand_off=hand_off, request_headers=edited)
    return HandOffRules(route, upstream)


CREDENTIALS = Acceptance(None, NotHandedOff.CREDENTIALS, fields=("authorization", "cookie"))
TOO_LARGE = Acceptance(None, NotHandedOff.TOO_LARGE)
BOTH = ("host", "cookie", "authorization")


@pytest.mark.parametrize(
    ("when", "is_asked", "method", "names", "length", "expected"),
    [
        ([ASKED], True, "POST", (), 5, Acceptance(ASKED)),
        ([ASKED], True, "POST", (), 100, Acceptance(ASKED)),
        ([ASKED], True, "POST", (), None, Acceptance(ASKED)),
        ([ASKED], False, "POST", (), 5, Acceptance(None, NotHandedOff.NOT_ASKED)),
        ([FAILED], True, "POST", (), 5, Acceptance(None, NotHandedOff.NOT_ASKED)),
        ([ASKED, FAILED], True, "PUT", (), 5, Acceptance(ASKED)),
        ([ASKED], True, "GET", (), 0, Acceptance(None, NotHandedOff.METHOD)),
        ([ALWAYS], False, "GET", (), 0, Acceptance(None, NotHandedOff.METHOD)),
        ([ASKED], True, "POST", BOTH, 5, CREDENTIALS),
        ([ASKED], True, "POST", BOTH, 999, CREDENTIALS),
        ([ASKED], True, "POST", (), 101, TOO_LARGE),
        ([ALWAYS], False, "POST", (), 5, Acceptance(ALWAYS, is_forced=True)),
        ([ALWAYS], True, "POST", (), 5, Acceptance(ALWAYS, is_forced=True)),
        ([ALWAYS, ASKED], True, "POST", (), 5, Acceptance(ASKED, is_forced=True)),
        ([ALWAYS], False, "POST", BOTH, 5, replace(CREDENTIALS, is_forced=True)),
        ([ALWAYS], False, "POST", (), 101, replace(TOO_LARGE, is_forced=True)),
        ([ALWAYS, ASKED], True, "POST", (), 101, replace(TOO_LARGE, is_forced=True)),
    ],
)
def test_before_anything_is_sent(
    when: list[HandOffWhen],
    *,
    is_asked: bool,
    method: str,
    names: tuple[str, ...],
    length: int | None,
    expected: Acceptance,
) -> None:
    assert rules(*when).accept(method, names, length, is_asked=is_asked) == expected


def test_methods_are_those_of_the_file() -> None:
    only = rules(ASKED, methods=frozenset({"PUT"}))
    assert only.accept("POST", (), 0, is_asked=True).obstacle is NotHandedOff.METHOD
    assert only.accept("PUT", (), 0, is_asked=True).when is ASKED


@pytest.mark.parametrize(
    ("edits", "names", "refused"),
    [
        (HeaderEdits(), ("authorization",), ("authorization",)),
        (HeaderEdits(), ("proxy-authorization",), ("proxy-authorization",)),
        (HeaderEdits(), ("x-api-key", "accept"), ("x-api-key",)),
        (HeaderEdits(), ("accept", "x-token"), ()),
        (HeaderEdits(set=(("Authorization", "Bearer x"),)), ("authorization",), ()),
        (HeaderEdits(remove=("cookie",)), ("cookie", "authorization"), ("authorization",)),
    ],
)
def test_credentials_that_the_route_does_not_replace(
    edits: HeaderEdits, names: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    given = rules(ASKED, edits=edits)
    assert given.refused_credentials(names) == refused
    for choice in (HandOffCredentials.STORE, HandOffCredentials.DROP):
        assert rules(ASKED, edits=edits, credentials=choice).refused_credentials(names) == ()


@pytest.mark.parametrize(
    ("credentials", "left_out"),
    [
        ("refuse", {"authorization", "cookie", "proxy-authorization", "x-api-key"}),
        ("drop", {"authorization", "cookie", "proxy-authorization", "x-api-key"}),
        ("store", {"proxy-authorization"}),
    ],
)
def test_what_is_not_stored(credentials: str, left_out: set[str]) -> None:
    given = rules(ASKED, credentials=HandOffCredentials(credentials))
    assert given.fields_left_out() == left_out
    assert given.fields_to_wipe() >= {"authorization", "cookie", "x-api-key"}


@dataclass(frozen=True)
class Request:
    method: str = "POST"
    has_key: bool = False

    def sends_once(self, name: bytes) -> bool:
        return self.has_key and name == b"idempotency-key"


KEYED = Request(has_key=True)


def made(ending: FailureKind | int, *, sent: bool = True, upstream: str = "up") -> Attempt:
    attempt = Attempt(1, upstream, 0.0, url="http://a.example", sent=sent)
    if isinstance(ending, FailureKind):
        attempt.kind = ending
        attempt.sent = sent and ending.may_have_run
    else:
        attempt.status = ending
    return attempt


def after(
    *attempts: Attempt,
    request: Request | None = None,
    upstream: UpstreamSettings = PLAIN,
    refusal: RefusalReason | None = None,
    hint: RetryHint = NO_HINT,
    names: tuple[str, ...] = (),
    when: tuple[HandOffWhen, ...] = (FAILED,),
    **others: Any,  # noqa: ANN401 - fields of any type
) -> NotHandedOff | None:
    last = attempts[-1] if attempts else None
    result = AttemptResult(last.kind, last.status, last.sent, hint) if last else None
    given: dict[str, Any] = {"client_gone": False, "size": 5, "now": 10.0} | others
    failed = FailedRequest(request or Request(), attempts, result, refusal, **given)
    return rules(*when, upstream=upstream).after_failure(failed, names)


REFUSING = replace(PLAIN, refused=frozenset({429, 503}))
RAN, OWN = NotHandedOff.MAY_HAVE_RUN, NotHandedOff.OWN_ANSWER


@pytest.mark.parametrize(
    ("attempts", "others", "expected"),
    [
        pytest.param([made(CONNECT)], {"refusal": RefusalReason.CONNECT}, None, id="refused"),
        pytest.param([made(TIMEOUT)], {"refusal": RefusalReason.TIMEOUT}, RAN, id="plain timeout"),
        pytest.param([made(503)], {"request": KEYED}, RAN, id="503, and the key is not honoured"),
        pytest.param([made(503)], {"request": KEYED, "upstream": HONOURS}, None, id="honoured"),
        pytest.param([made(503)], {"request": KEYED, "upstream": REFUSING}, None, id="a proof"),
        pytest.param([made(503)], {"request": Request("PUT")}, None, id="a repeatable method"),
        pytest.param([made(400)], {}, NotHandedOff.NOT_RETRYABLE, id="400"),
        pytest.param([made(429)], {}, None, id="the upstream's own 429"),
        pytest.param([], {"refusal": RefusalReason.BREAKER_OPEN}, None, id="breaker open"),
        pytest.param([], {"refusal": RefusalReason.THROTTLED}, OWN, id="throttled"),
        pytest.param([], {"refusal": RefusalReason.OVERLOAD}, OWN, id="overload"),
        pytest.param([], {"refusal": RefusalReason.STORE}, OWN, id="store"),
        pytest.param([], {"refusal": RefusalReason.TIMEOUT}, OWN, id="late before any attempt"),
        pytest.param([], {"refusal": RefusalReason.DRAINING}, OWN, id="draining at once"),
        pytest.param(
            [made(FailureKind.BUSY)], {"refusal": RefusalReason.BUSY}, OWN, id="no connection free"
        ),
        pytest.param(
            [made(CONNECT)], {"refusal": RefusalReason.THROTTLED}, OWN, id="throttled later"
        ),
        pytest.param(
            [made(CONNECT)], {"refusal": RefusalReason.DRAINING}, None, id="draining in a back-off"
        ),
        pytest.param(
            [made(503)], {"refusal": RefusalReason.DRAINING}, RAN, id="draining, may have run"
        ),
        pytest.param(
            [made(TIMEOUT)], {"refusal": RefusalReason.BREAKER_OPEN}, RAN, id="open, and in doubt"
        ),
        pytest.param(
            [made(TIMEOUT), made(CONNECT)],
            {"refusal": RefusalReason.CONNECT},
            RAN,
            id="one attempt in doubt is enough",
        ),
        pytest.param(
            [made(CONNECT), made(TIMEOUT, upstream="other")],
            {"refusal": RefusalReason.TIMEOUT, "request": KEYED, "upstream": HONOURS},
            RAN,
            id="a fallback upstream knows no key",
        ),
        pytest.param([made(503)], {"client_gone": True}, NotHandedOff.CLIENT_GONE, id="gone"),
        pytest.param([made(CONNECT)], {"size": None}, NotHandedOff.BODY_LOST, id="no body"),
        pytest.param([made(CONNECT)], {"size": 101}, NotHandedOff.TOO_LARGE, id="too large"),
        pytest.param(
            [made(CONNECT)], {"names": ("cookie",)}, NotHandedOff.CREDENTIALS, id="credentials"
        ),
        pytest.param(
            [made(CONNECT)], {"request": Request("GET")}, NotHandedOff.METHOD, id="a method"
        ),
        pytest.param([made(CONNECT)], {"when": (ASKED,)}, NotHandedOff.NOT_ASKED, id="not wanted"),
        pytest.param(
            [made(503)],
            {"request": Request("PUT"), "hint": RetryHint(should_retry=False)},
            NotHandedOff.NOT_RETRYABLE,
            id="the upstream says no",
        ),
        pytest.param(
            [made(503)],
            {"request": Request("PUT"), "hint": RetryHint(is_final=True)},
            NotHandedOff.NOT_RETRYABLE,
            id="its final answer",
        ),
        pytest.param(
            [made(404)],
            {"request": Request("PUT"), "hint": RetryHint(should_retry=True)},
            None,
            id="the upstream says yes",
        ),
        pytest.param(
            [made(FailureKind.CERTIFICATE)],
            {"refusal": RefusalReason.CERTIFICATE},
            NotHandedOff.NOT_RETRYABLE,
            id="not trusted",
        ),
    ],
)  # fmt: skip
def test_after_a_failure(
    attempts: list[Attempt], others: dict[str, Any], expected: NotHandedOff | None
) -> None:
    assert after(*attempts, **others) is expected


@pytest.mark.parametrize(
    ("upstream", "method", "names", "attempts", "expected"),
    [
        pytest.param(HONOURS, "POST", (), [], "idempotency-key", id="added"),
        pytest.param(HONOURS, "PATCH", (), [], "idempotency-key", id="to a PATCH"),
        pytest.param(HONOURS, "PUT", (), [], None, id="a PUT needs none"),
        pytest.param(PLAIN, "POST", (), [], None, id="not honoured"),
        pytest.param(HONOURS, "POST", ("idempotency-key",), [], None, id="the client's own"),
        pytest.param(
            HONOURS, "POST", (), [made(CONNECT)], "idempotency-key", id="no byte was sent"
        ),
        pytest.param(HONOURS, "POST", (), [made(429)], None, id="sent without it"),
        pytest.param(HONOURS, "POST", (), [made(TIMEOUT), made(CONNECT)], None, id="for good"),
        pytest.param(
            replace(PLAIN, honours_key=HonouredKey("x-key")),
            "POST",
            ("idempotency-key",),
            [],
            "x-key",
            id="under the name that the upstream goes by",
        ),
    ],
)
def test_a_key_is_added_before_the_first_byte_or_never(
    upstream: UpstreamSettings,
    method: str,
    names: tuple[str, ...],
    attempts: list[Attempt],
    expected: str | None,
) -> None:
    assert rules(ASKED, upstream=upstream).added_key(method, names, attempts) == expected


def test_no_key_beside_one_that_the_route_sets() -> None:
    for edits in (
        HeaderEdits(set=(("Idempotency-Key", "x"),)),
        HeaderEdits(remove=("idempotency-key",)),
    ):
        given = rules(ASKED, upstream=HONOURS, edits=edits)
        assert given.added_key("POST", (), []) is None
