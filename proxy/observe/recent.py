"""The last notable requests with each of their attempts, as ``/attempts`` shows them.

A ring buffer: the newest push the oldest out, and of a request with very many attempts only
the first and the last are kept. So the ring takes 11 MiB at the very most, and one or two
where requests have an attempt or three.

The records have what a line of the access log has, under the same names, and nothing
that is not in one: no header, no query, no body.
"""

import json
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

from proxy.core.attempt_json import attempt_json, start_in_request
from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.policy.attempt import Attempt

LONGEST = 1000
"""Requests that are remembered."""
MOST_ATTEMPTS = 16
"""Attempts of one request that are kept: so many from its beginning, and as many from its end."""
_LONGEST_TEXT = 256
"""Characters of a path or method: enough to know it again."""


class Recent:
    """The ring buffer of requests. Its caller decides which requests are notable."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: deque[_RecentRequest] = deque(maxlen=LONGEST)

    def __len__(self) -> int:
        return len(self._requests)

    def __repr__(self) -> str:
        return f"<{len(self)} recent requests>"

    def keep(self, route: str, exchange: Exchange) -> None:
        """Remember a request that is over, without the exchange itself, which is much larger."""
        self._requests.append(_RecentRequest(route, exchange, self._clock.wall()))

    def of(self, request_id: str) -> list[dict[str, object]]:
        """Return all requests with this id, which a client may use again; the oldest first.

        The values are those that JSON can carry.
        """
        return [kept.to_json() for kept in self._requests if kept.request_id == request_id]


class _RecentRequest:
    """What is kept of a request. Attempts are never changed, so they are kept as they are."""

    __slots__ = (
        "_attempts",
        "_cause",
        "_code",
        "_duration",
        "_ended",
        "_fallback",
        "_key_result",
        "_left_out",
        "_method",
        "_path",
        "_reason",
        "_record",
        "_route",
        "_started",
        "request_id",
    )

    def __init__(self, route: str, exchange: Exchange, ended: float) -> None:
        self.request_id = exchange.request_id
        self._route = route
        self._method = exchange.method[:_LONGEST_TEXT]
        self._path = exchange.target.partition("?")[0][:_LONGEST_TEXT]
        self._code = exchange.code
        self._started = exchange.started
        self._duration = exchange.duration
        self._ended = ended
        refusal = exchange.refusal
        # Only the reason: the text of a refusal may quote what the client sent.
        self._reason = None if refusal is None else refusal.reason
        self._cause = "" if refusal is None else refusal.cause
        self._fallback = exchange.fallback
        self._key_result = exchange.key_result
        self._record = exchange.record
        self._attempts, self._left_out = _clipped(exchange.attempts)

    def to_json(self) -> dict[str, object]:
        """Return the request and its attempts in values that JSON can carry."""
        content: dict[str, object] = {
            "time": _date(self._ended),
            "request_id": self.request_id,
            "route": self._route,
            "method": self._method,
            # Bytes that are no UTF-8 came in as lone surrogates, which strict readers refuse.
            "path": self._path.encode("utf-8", "surrogateescape").decode(
                "utf-8", "backslashreplace"
            ),
            "code": self._code,
            "duration_ms": round(self._duration * 1000, 3),
        }
        if self._reason is not None:
            content["refusal"] = self._reason.value
        if self._cause:
            content["cause"] = self._cause
        if self._fallback:
            content["fallback"] = True
        if self._key_result is not None:
            content["idempotency"] = self._key_result.value
        if self._record:
            content["record"] = self._record
        if self._left_out:
            content["attempts_left_out"] = self._left_out
        content["attempts"] = [
            json.loads(attempt_json(attempt, start_in_request(attempt, self._started)))
            for attempt in self._attempts
        ]
        return content


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
