"""Keys and switches as other products call them, and ours in their place."""

from collections.abc import Mapping

_OTHER_WORDS = {
    "upstreams": "services clusters",
    "upstreams urls": "backends servers",
    "upstream": "service backend cluster proxy_pass route to target destination",
    "urls upstream": "url loadBalancer",
    "match path": "prefix path_prefix pathPrefix",
    "match": "location rule route_match",
    "strip_prefix": "rewrite stripPrefix handle_path strip_path prefix_rewrite",
    "methods match.methods": "method verb verbs",
    "match.methods": "methods",
    "retry": "retry_policy retryPolicy",
    "attempts retry.attempts": "num_retries numRetries max_retries maxRetries retries "
    "lb_retries max_attempts maxAttempts",
    "on retry.on": "retry_on retryOn status retriable_status_codes proxy_next_upstream",
    "status on retry.on": "status_code",
    "keep on retry.on": "status_codes",
    "attempt_timeout retry.attempt_timeout": "per_try_timeout perTryTimeout try_timeout",
    "base backoff.base retry.backoff.base": "base_interval initialInterval initial_delay delay",
    "max backoff.max retry.backoff.max": "max_interval max_delay cap",
    "factor backoff.factor retry.backoff.factor": "multiplier",
    "throttle rate": "rateLimit rate_limit ratelimit limit limit_req",
    "rate throttle.rate": "average requests_per_second rps events period",
    "burst throttle.burst": "max_tokens",
    "concurrency throttle.concurrency": "maxconn max_in_flight inFlightReq limit_conn",
    "breaker": "circuitBreaker circuit_breaker circuit_breakers circuitBreakers outlier_detection",
    "dead_letter": "dlq deadletter dead_letters",
    "state_dir": "data_dir",
    "workers": "worker_processes",
    "idempotency": "idempotent dedupe idempotency_key idempotency_keys",
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
    "listen": "listeners entryPoints entrypoints bind",
    "address": "port ip socket_address",
    "tls": "ssl",
    "balance": "lb_policy lbPolicy load_balancer load_balancing",
    "timeout": "proxy_read_timeout request_timeout requestTimeout",
    "connect_timeout": "proxy_connect_timeout connectTimeout",
    "max_body": "client_max_body_size",
    "headers.request.set": "proxy_set_header request_headers_to_add customRequestHeaders",
    "headers.response.set": "add_header response_headers_to_add customResponseHeaders",
    "access_log": "log logging accesslog",
    "store": "redis storage",
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
