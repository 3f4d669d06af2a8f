"""One attempt has the same fields in the access log, in ``/attempts`` and in a dead letter."""

import json

import pytest

from proxy.core.attempt_json import attempt_json, start_in_request
from proxy.core.clock import SystemClock
from proxy.observe.recent import Recent
from proxy.pipeline.dead_letters import attempt_records
from proxy.policy.attempt import Attempt, FailureKind, RetryDelay
from proxy.policy.explain_command import ExplainContext
from proxy.policy.reasons import VerdictReason
from proxy.policy.settings import Settings
from tests.observe.conftest import MakeAttempt, MakeExchange, attempt, exchange

__all__ = ["attempt", "exchange"]

STARTED = 100.0


@pytest.fixture(params=["plain", "failed", "waited", "queued", "judged", "odd text"])
def one(request: pytest.FixtureRequest, attempt: MakeAttempt) -> Attempt:
    match request.param:
        case "failed":
            return attempt(status=0, kind=FailureKind.CONNECT, duration=1.23456789)
        case "waited":
            return attempt(2, pause=RetryDelay(0.2509, "hint"))
        case "queued":
            return attempt(queued=0.0123)
        case "judged":
            return attempt(status=503, why=VerdictReason.RETRIED)
        case "odd text":
            return attempt(upstream='pay"ments\n\u00e9')
        case _:
            return attempt()


def fields_of(one: Attempt) -> dict[str, object]:
    """What an attempt says of itself, field by field."""
    delay = one.delay
    return {
        "n": one.number,
        "upstream": one.upstream,
        "address": one.address,
        "start_ms": round((one.started - STARTED) * 1000, 3),
        "ms": round(one.duration * 1000, 3),
        "outcome": one.outcome,
        "status": one.status or None,
        "sent": one.sent,
        "received": one.received,
        "reused": one.reused,
        **({} if delay is None else {"wait_ms": round(delay.seconds * 1000, 3)}),
        **({} if delay is None else {"wait_for": delay.source}),
        **({"queue_ms": round(one.queued * 1000, 3)} if one.queued else {}),
        **({} if one.verdict is None else {"why": one.verdict.value}),
    }


def test_the_text_has_every_field_in_order_and_is_ascii(one: Attempt) -> None:
    text = attempt_json(one, start_in_request(one, STARTED))
    assert text.isascii()
    assert list(json.loads(text).items()) == list(fields_of(one).items())


def test_the_ring_has_the_fields_of_the_log(one: Attempt, exchange: MakeExchange) -> None:
    recent, request = Recent(SystemClock()), exchange(attempts=[one])
    recent.keep("charges", request)
    (shown,) = recent.of(request.request_id, ExplainContext((), Settings()))
    assert isinstance(shown["attempts"], list)
    (record,) = shown["attempts"]
    record.pop("meaning", None)
    assert record == fields_of(one)


def test_a_dead_letter_has_the_same_fields_but_a_date_and_a_url(one: Attempt) -> None:
    (record,) = attempt_records([one], SystemClock())
    shared = {name: value for name, value in record.items() if name not in {"start", "url"}}
    expected = fields_of(one)
    del expected["start_ms"]
    assert shared == expected
    assert list(record)[:5] == ["n", "upstream", "address", "url", "start"]


def test_a_dead_letter_says_what_an_attempt_under_way_does_not_know_yet(
    attempt: MakeAttempt,
) -> None:
    before, last = attempt(1, status=503), attempt(2, duration=0.0)
    first, second = attempt_records([before, last], SystemClock())
    assert first["why"] == "retried"
    assert "why" not in second
    assert first["ms"] == 20.0
    assert isinstance(second["ms"], float)
    assert second["ms"] != 0.0
