"""The JSON of one attempt: the fields that the access log and ``/attempts`` have in common.

There are two writers for the same fields, side by side: :func:`attempt_text` for the access log,
which every logged request pays for, and :func:`attempt_json` for the few attempts that an
operator asks for. The record of an attempt in a dead letter has these fields as well, but for
``start_ms``; a test compares all three.
"""

from json.encoder import encode_basestring_ascii as quoted

from proxy.policy.attempt import Attempt


def attempt_json(attempt: Attempt, request_started: float) -> dict[str, object]:
    """Return one attempt in values that JSON can carry."""
    content: dict[str, object] = {
        "n": attempt.number,
        "upstream": attempt.upstream,
        "address": attempt.address,
        "start_ms": milliseconds(attempt.started - request_started),
        "ms": milliseconds(attempt.duration),
        "outcome": attempt.outcome,
        "status": attempt.status or None,
        "sent": attempt.sent,
        "received": attempt.received,
        "reused": attempt.reused,
    }
    if attempt.delay is not None:
        content["wait_ms"] = milliseconds(attempt.delay.seconds)
        content["wait_for"] = attempt.delay.source
    if attempt.queued:
        content["queue_ms"] = milliseconds(attempt.queued)
    if attempt.verdict is not None:
        content["why"] = attempt.verdict.value
    return content


# speed: same fields as attempt_json, held by tests/observe/logs/test_attempt_json.py; a line of
# the access log written by hand takes 4.3 µs, by a dictionary and the json module 9.8.
def attempt_text(attempt: Attempt, request_started: float) -> str:
    """Return one attempt as the text of a JSON object, in ASCII."""
    delay, verdict = attempt.delay, attempt.verdict
    waited = (
        ""
        if delay is None
        else f',"wait_ms":{delay.seconds * 1000:.3f},"wait_for":"{delay.source}"'
    )
    queued = f',"queue_ms":{attempt.queued * 1000:.3f}' if attempt.queued else ""
    judged = "" if verdict is None else f',"why":"{verdict}"'
    return (
        f'{{"n":{attempt.number},"upstream":{quoted(attempt.upstream)},'
        f'"address":{quoted(attempt.address)},'
        f'"start_ms":{(attempt.started - request_started) * 1000:.3f},'
        f'"ms":{attempt.duration * 1000:.3f},"outcome":"{attempt.outcome}",'
        f'"status":{attempt.status or "null"},"sent":{_boolean(attempt.sent)},'
        f'"received":{_boolean(attempt.received)},"reused":{_boolean(attempt.reused)}'
        f"{waited}{queued}{judged}}}"
    )


def milliseconds(seconds: float) -> float:
    """Return *seconds* in milliseconds, to the microsecond."""
    return round(seconds * 1000, 3)


def _boolean(value: bool) -> str:  # noqa: FBT001 - it is what the function is about
    return "true" if value else "false"
