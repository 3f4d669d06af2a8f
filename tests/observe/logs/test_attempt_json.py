"""One attempt has the same fields in the access log, in ``/attempts`` and in a dead letter."""

import json

import pytest

from proxy.core.clock import SystemClock
from proxy.observe.logs.attempt_json import attempt_json, attempt_text
from proxy.pipeline.dead_letters import attempt_records
from proxy.policy.attempt import Attempt, FailureKind, RetryDelay
from proxy.policy.reasons import VerdictReason
from tests.observe.conftest import MakeAttempt

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


def test_the_text_of_the_log_is_the_json_of_the_ring(one: Attempt) -> None:
    assert json.loads(attempt_text(one, STARTED)) == attempt_json(one, STARTED)
    assert list(json.loads(attempt_text(one, STARTED))) == list(attempt_json(one, STARTED))


def test_a_dead_letter_has_the_same_fields_but_a_date_and_a_url(one: Attempt) -> None:
    (record,) = attempt_records([one], SystemClock())
    shared = {name: value for name, value in record.items() if name not in {"start", "url"}}
    expected = attempt_json(one, STARTED)
    del expected["start_ms"]
    assert shared == expected
