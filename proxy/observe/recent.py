"""The last notable requests with each of their attempts, as ``/attempts`` shows them.

A ring buffer: the newest push the oldest out, and of a request with very many attempts only
the first and the last are kept. So the ring takes 11 MiB at the very most, and one or two
where requests have an attempt or three.

The records have what a line of the access log has, under the same names, and nothing of the client
that is not in one: no header, no query, no body. When they are shown, each verdict comes with what
it means, and each request with the arguments of the ``explain`` for it.
"""

import json
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from proxy.core.attempt_json import attempt_json, start_in_request
from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.http.target import readable_target
from proxy.policy.attempt import Attempt
from proxy.policy.explain_command import EndedRequest, ExplainContext, key_fields
from proxy.policy.reasons import KeyResult
from proxy.policy.settings import Settings

LONGEST = 1000
"""Requests that are remembered."""
MOST_ATTEMPTS = 16
"""Attempts of one request that are kept: so many from its beginning, and as many from its end."""
_LONGEST_TEXT = 256
"""Characters of a path or method: enough to know it again."""

_Facts = tuple[bool, int, float | None, bool]
"""Whether a request had a key, the length of its body, the client's timeout, whether it asked for
another protocol: the last members of an :class:`EndedRequest`."""


class Recent:
    """The ring buffer of requests. Its caller decides which requests are notable."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: deque[tuple[dict[str, Any], float, tuple[Attempt, ...], _Facts]]
        self._requests = deque(maxlen=LONGEST)
        """Each with when it started, its attempts, which are never changed, and for ``explain``."""
        self._settings: Settings | None = None
        """Those of the last request: all requests between two reloads have the same."""
        self._key_fields: frozenset[bytes] = frozenset()

    def __len__(self) -> int:
        return len(self._requests)

    def __repr__(self) -> str:
        return f"<{len(self)} recent requests>"

    def keep(self, route: str, exchange: Exchange) -> None:
        """Remember a request that is over, without the exchange itself, which is much larger."""
        attempts, left_out = _clipped(exchange.attempts)
        content: dict[str, Any] = {
            "time": self._clock.wall(),
            "request_id": exchange.request_id,
            "route": route,
            "method": exchange.method[:_LONGEST_TEXT],
            "path": exchange.target.partition("?")[0][:_LONGEST_TEXT],
            "code": exchange.code,
            "duration_ms": exchange.duration,
        }
        refusal = exchange.refusal
        if refusal is not None:
            # Only the reason: the text of a refusal may quote what the client sent.
            content["refusal"] = refusal.reason
            if refusal.cause:
                content["cause"] = refusal.cause
        if exchange.fallback:
            content["fallback"] = True
        if exchange.key_result is not None:
            content["idempotency"] = exchange.key_result
        if exchange.record:
            content["record"] = exchange.record
        if left_out:
            content["attempts_left_out"] = left_out
        facts = (
            self._has_key(exchange),
            exchange.head.length,
            exchange.client_timeout,
            exchange.upgrade,
        )
        self._requests.append((content, exchange.started, attempts, facts))

    def _has_key(self, exchange: Exchange) -> bool:
        if exchange.settings is not self._settings:
            self._settings = exchange.settings
            self._key_fields = key_fields(exchange.settings)
        names = self._key_fields
        return any(name.lower() in names for name, _ in exchange.raw_headers)

    def of(self, request_id: str, context: ExplainContext) -> list[dict[str, object]]:
        """Return all requests with this id, which a client may use again; the oldest first.

        The values are those that JSON can carry. *context* is the configuration in force.
        """
        return [
            _shown(*kept, context) for kept in self._requests if kept[0]["request_id"] == request_id
        ]


def _shown(
    content: dict[str, Any],
    started: float,
    attempts: Sequence[Attempt],
    facts: _Facts,
    context: ExplainContext,
) -> dict[str, object]:
    """Return a request and its attempts in values that JSON can carry."""
    records = [
        json.loads(attempt_json(attempt, start_in_request(attempt, started)))
        for attempt in attempts
    ]
    key_lost = content.get("idempotency") is KeyResult.LEASE_LOST
    for record in records:
        meaning = context.meaning(record, key_lost=key_lost)
        if meaning is not None:
            record["meaning"] = meaning
    # Those behind a gap are not what follows those before it.
    unbroken = records[:MOST_ATTEMPTS] if "attempts_left_out" in content else records
    request = EndedRequest(content["method"], content["path"], content["route"], unbroken, *facts)
    arguments = context.arguments(request)
    return {
        **content,
        "time": _date(content["time"]),
        "path": readable_target(content["path"]),
        "duration_ms": round(content["duration_ms"] * 1000, 3),
        "attempts": records,
        **({"explain": arguments} if arguments else {}),
    }


def _clipped(attempts: Sequence[Attempt]) -> tuple[tuple[Attempt, ...], int]:
    """Return the first and the last attempts, and how many between them were left out."""
    left_out = len(attempts) - 2 * MOST_ATTEMPTS
    if left_out <= 0:
        return tuple(attempts), 0
    return (*attempts[:MOST_ATTEMPTS], *attempts[-MOST_ATTEMPTS:]), left_out


def _date(seconds: float) -> str:
    """Format a time as RFC 3339, in UTC, to the millisecond."""
    stamp = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")
