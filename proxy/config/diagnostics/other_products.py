"""Keys and switches as other products call them, and ours in their place."""

from collections.abc import Mapping

_OTHER_WORDS = {
    "upstreams": "services clusters",
    "upstreams urls": "backends servers",
    "upstream": "service backend cluster proxy_pass",
    "urls upstream": "url",
    "match path": "prefix path_prefix",
    "strip_prefix": "rewrite stripPrefix handle_path",
    "methods match.methods": "method verb verbs",
    "match.methods": "methods",
    "retry": "retry_policy retryPolicy",
    "attempts retry.attempts": "num_retries numRetries max_retries maxRetries retries "
    "lb_retries max_attempts maxAttempts",
    "on retry.on": "retry_on status retriable_status_codes",
    "status on retry.on": "status_code",
    "keep on retry.on": "status_codes",
    "attempt_timeout retry.attempt_timeout": "per_try_timeout perTryTimeout try_timeout",
    "base backoff.base retry.backoff.base": "base_interval initialInterval initial_delay delay",
    "max backoff.max retry.backoff.max": "max_interval max_delay cap",
    "factor backoff.factor retry.backoff.factor": "multiplier",
    "throttle rate": "rateLimit rate_limit limit",
    "rate throttle.rate": "average requests_per_second rps events",
    "burst throttle.burst": "max_tokens",
    "concurrency throttle.concurrency": "maxconn max_in_flight inFlightReq",
    "breaker": "circuitBreaker circuit_breaker outlier_detection",
    "dead_letter": "dlq deadletter dead_letters",
    "state_dir": "data_dir",
    "workers": "worker_processes",
    "idempotency": "idempotent dedupe",
    "header": "key",
    "header idempotency.header": "key_header header_name",
    "ttl idempotency.ttl for": "ttl retention expiry expires",
    "lease idempotency.lease": "lock_timeout lock_ttl",
    "in_flight idempotency.in_flight": "in_progress",
    "max_response bytes max_body": "max_size max_bytes",
    "max_response idempotency.max_response": "max_response_size",
    "entries": "max_entries",
    "headers.drop": "redact",
    "body_rate": "min_body_rate body_min_rate",
}
"""Our keys, the one to suggest first if the section at hand has it → keys of other products."""


def by_other_word(words: Mapping[str, str]) -> dict[str, str]:
    """Return other products' words → ours, for a table of ours → theirs with spaces between."""
    return {other: ours for ours, others in words.items() for other in others.split()}


SYNONYMS = {other: tuple(ours.split()) for other, ours in by_other_word(_OTHER_WORDS).items()}
"""Keys of other products → our keys; the first that exists in the section at hand is suggested."""

OFF = frozenset({"off", "no", "none", "disabled"})
ON = frozenset({"on", "yes", "enabled"})
"""Words that YAML 1.1 and people use for false and true."""
