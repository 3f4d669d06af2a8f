"""The JSON of one attempt, for the access log, for ``/attempts`` and for dead letters.

Its fields are listed here and nowhere else. The text is put together by hand, because every logged
request pays for it: a line of the access log takes 4.3 µs so, and 9.8 with a dictionary and the
``json`` module. Who wants the fields reads the text.
"""

from json.encoder import encode_basestring_ascii as quoted

from proxy.policy.attempt import Attempt
from proxy.policy.reasons import VerdictReason

_BOOLEANS = ("false", "true")


def attempt_json(
    attempt: Attempt,
    start: str,
    duration: float | None = None,
    verdict: VerdictReason | None = None,
) -> str:
    """Return one attempt as the text of a JSON object, in ASCII.

    *start* is the part of it that says when the attempt began: :func:`start_in_request`, or
    :func:`start_by_date`. *duration* and *verdict* stand for those that an attempt under way
    does not have yet.
    """
    delay, verdict = attempt.delay, attempt.verdict or verdict
    waited = (
        ""
        if delay is None
        else f',"wait_ms":{delay.seconds * 1000:.3f},"wait_for":"{delay.source}"'
    )
    queued = f',"queue_ms":{attempt.queued * 1000:.3f}' if attempt.queued else ""
    judged = "" if verdict is None else f',"why":"{verdict}"'
    return (
        f'{{"n":{attempt.number},"upstream":{quoted(attempt.upstream)},'
        f'"address":{quoted(attempt.address)},{start},'
        f'"ms":{(attempt.duration or duration or 0.0) * 1000:.3f},"outcome":"{attempt.outcome}",'
        f'"status":{attempt.status or "null"},"sent":{_BOOLEANS[attempt.sent]},'
        f'"received":{_BOOLEANS[attempt.received]},"reused":{_BOOLEANS[attempt.reused]}'
        f"{waited}{queued}{judged}}}"
    )


def start_in_request(attempt: Attempt, request_started: float) -> str:
    """Tell when the attempt began, in milliseconds since the request did."""
    return f'"start_ms":{(attempt.started - request_started) * 1000:.3f}'


def start_by_date(attempt: Attempt, offset: float) -> str:
    """Tell when the attempt began in seconds since the epoch, and the URL that was tried.

    *offset* is what the epoch's clock is ahead of the monotonic one.
    """
    return f'"url":{quoted(attempt.url)},"start":{offset + attempt.started:.6f}'
