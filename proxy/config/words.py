"""What to say to a word that means nothing here.

Three tables and a measure: keys that this version does not have yet, words that
mean something in another product, and names that are nearly right.
"""

from collections.abc import Iterable

NOT_YET = {
    "retry": "this version does not retry yet",
    "throttle": "this version does not throttle yet",
    "idempotency": "this version does not know idempotency keys yet",
    "dead_letter": "this version keeps no dead letters yet",
    "fallback": "this version has no fallback yet",
    "breaker": "this version has no circuit breaker yet",
    "budget": "this version does not retry yet, so there is no budget",
    "honours_key": "this version does not know idempotency keys yet",
    "refused": "this version does not retry yet, so no status is special",
    "buffer": "this version does not retry yet, so it keeps no bodies",
    "replay_memory": "this version does not retry yet, so it keeps no bodies",
    "store": "this version stores nothing yet",
    "state_dir": "this version stores nothing yet",
    "workers": "this version runs as one process",
}
"""Keys of later versions. Who builds one removes its line."""

ELSEWHERE = {
    "services": ("upstreams",),
    "clusters": ("upstreams",),
    "backends": ("upstreams", "urls"),
    "servers": ("upstreams", "urls"),
    "service": ("upstream",),
    "backend": ("upstream",),
    "cluster": ("upstream",),
    "proxy_pass": ("upstream",),
    "url": ("urls", "upstream"),
    "prefix": ("match", "path"),
    "path_prefix": ("match", "path"),
    "rewrite": ("strip_prefix",),
    "stripPrefix": ("strip_prefix",),
    "handle_path": ("strip_prefix",),
    "verb": ("methods",),
    "verbs": ("methods",),
    "num_retries": ("retry",),
    "max_retries": ("retry",),
    "retries": ("retry",),
    "lb_retries": ("retry",),
    "retry_on": ("retry",),
    "per_try_timeout": ("retry",),
    "rateLimit": ("throttle",),
    "rate_limit": ("throttle",),
    "inFlightReq": ("throttle",),
    "circuitBreaker": ("breaker",),
    "circuit_breaker": ("breaker",),
    "outlier_detection": ("breaker",),
    "dlq": ("dead_letter",),
    "deadletter": ("dead_letter",),
    "idempotent": ("idempotency",),
    "dedupe": ("idempotency",),
}
"""Words of other products, and ours: the first that exists where they stand."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The one of *known* that was probably meant; empty if none is near."""
    distance, name = min(((_distance(word, name), name) for name in known), default=(3, ""))
    # Two letters of three are another word, not a slip.
    return name if distance <= 2 and 2 * distance < max(len(word), len(name)) else ""


def _distance(one: str, other: str) -> int:
    """How many letters differ: put in, left out, replaced or swapped; 3 means many."""
    if abs(len(one) - len(other)) > 2:
        return 3
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return min(row[-1], 3)
