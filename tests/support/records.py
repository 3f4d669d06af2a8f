"""What the proxy says about itself, held against what happened."""

from collections import Counter

from tests.support.proxies import LogRecord, ServedBy

_ATTEMPTS = "holdfast_upstream_attempts_total"


async def last_logged(proxy: ServedBy, lines: int = 1) -> LogRecord:
    """The latest line of the access log, once there are *lines*.

    Checks that the metrics count the same requests and attempts as the log, by code
    and by outcome, and that nothing is in flight.
    """
    log = await proxy.logged(lines)
    assert len(log) == lines
    metrics = await proxy.metrics()
    codes = Counter(str(record["code"]) for record in log)
    for code, count in codes.items():
        assert metrics.total("holdfast_requests_total", code=code) == count, code
    assert metrics.total("holdfast_requests_total") == lines
    ended = Counter(outcome for record in log for outcome in outcomes(record))
    for outcome, count in ended.items():
        assert metrics.total(_ATTEMPTS, outcome=outcome) == count, outcome
    assert metrics.total(_ATTEMPTS) == ended.total()
    assert metrics.total("holdfast_requests_in_flight") == 0
    return log[-1]


def outcomes(record: LogRecord) -> list[str]:
    """How the attempts of one request ended."""
    return [attempt["outcome"] for attempt in record["attempts"]]
