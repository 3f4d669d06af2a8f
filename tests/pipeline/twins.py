"""For rules that are said twice for speed: all that can be seen of requests, to compare by.

In virtual time the same requests take the same time, to the last digit.
"""

from itertools import product

from proxy.policy.reasons import VerdictReason
from tests.support import (
    Behaviour,
    ScriptedUpstream,
    answer,
    hang,
    hang_up,
    ok,
    one_route,
    response,
    running,
)
from tests.support.virtual import virtual_clock

ASKED: list[list[str]] = [[], ["Holdfast-Timeout: 20ms"], ["Holdfast-Timeout: 0s"]]
ANSWERED: list[list[Behaviour]] = [
    [answer(ok(b"fine"))],
    [answer(response(503))],
    [hang],
    [hang_up, answer(ok())],  # a stale connection
    [hang_up, hang_up],
]

COUNTED = (
    "holdfast_requests_total",
    "holdfast_upstream_attempts_total",
    "holdfast_retry_budget_remaining",
    "holdfast_throttle_decisions_total",
)


async def outcomes(route: str, options: str) -> list[object]:
    """What becomes of requests one after another: answers, times, and what the upstream got."""
    found: list[object] = []
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, options=options), clock=virtual_clock()) as proxy,
        proxy.client() as client,
    ):
        for fields, behaviours in product(ASKED, ANSWERED):
            # Leaves a connection that the next request reuses.
            await client.get("/", "X-Request-Id: zero")
            upstream.script(*behaviours)
            got = await client.get("/", "X-Request-Id: one", *fields)
            answered = [field for field in got.headers if field[0] != "Date"]
            found.append((got.status, answered, got.body))
            for behaviour in behaviours:
                upstream.has_played(behaviour)
        for record in await proxy.logged(2 * len(ASKED) * len(ANSWERED)):
            attempts = record.get("attempts", ())
            took = [
                (a["start_ms"], a["ms"], a["outcome"], a["reused"], a.get("why")) for a in attempts
            ]
            found.append((record["code"], record["duration_ms"], took))
        metrics = await proxy.metrics()
        found += (metrics.total(name) for name in COUNTED)
        found += (
            metrics.total("holdfast_retry_verdicts_total", reason=reason.value)
            for reason in VerdictReason
        )
        heads = [request.headers for request in upstream.requests]
        found += ([field for field in head if field[0] != "Host"] for head in heads)
    return found
