import json

from proxy.observe.metrics import Metrics
from proxy.policy.outcome import Kind

from .conftest import MakeAttempt, MakeExchange


def test_a_snapshot_tells_what_happened_on_each_route(
    exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    metrics = Metrics(version="1", parser="c", loaded_at=0.0, lost_lines=lambda: 2)
    recorder = metrics.route("charges", "payments")
    for status, kind, code in ((200, None, 200), (201, None, 201), (0, Kind.RESET, 502)):
        recorder.started()
        recorder.attempted(attempt(status=status, kind=kind, duration=0.02))
        recorder.finished(exchange(code=code, duration=0.04))
    recorder.started()
    recorder.disconnected("body")
    metrics.reload_failed()

    snapshot = metrics.snapshot()

    assert json.loads(json.dumps(snapshot)) == snapshot
    nothing_yet = {
        "requests": {},
        "errors": 0,
        "in_flight": 0,
        "disconnects": {"body": 0, "upstream": 0, "response": 0},
        "attempts": {},
        "duration_ms": None,
    }
    assert snapshot == {
        "routes": {
            "_unmatched": nothing_yet,
            "charges": {
                "requests": {"2xx": 2, "5xx": 1},
                "errors": 1,
                "in_flight": 1,
                "disconnects": {"body": 1, "upstream": 0, "response": 0},
                "attempts": {"2xx": 2, "reset": 1},
                "duration_ms": {"mean": 40.0, "p50": 37.5, "p95": 48.75, "p99": 49.75},
            },
        },
        "upstreams": {
            "payments": {
                "attempts": 3,
                "duration_ms": {"mean": 20.0, "p50": 17.5, "p95": 24.25, "p99": 24.85},
            }
        },
        "reloads": {"success": 0, "failure": 1},
        "access_log_dropped": 2,
    }
