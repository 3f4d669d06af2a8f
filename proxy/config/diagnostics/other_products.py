"""Keys and switches as other products call them, and ours in their place."""

_ATTEMPTS = ("attempts", "retry.attempts")
_ON = ("on", "retry.on")
_ATTEMPT_TIMEOUT = ("attempt_timeout", "retry.attempt_timeout")
_BASE = ("base", "backoff.base", "retry.backoff.base")
_MAX_WAIT = ("max", "backoff.max", "retry.backoff.max")

_THROTTLE = ("throttle", "rate")
_RATE = ("rate", "throttle.rate")
_CONCURRENCY = ("concurrency", "throttle.concurrency")

_KEY_HEADER = ("header", "idempotency.header")
_TTL = ("ttl", "idempotency.ttl", "for")
_LEASE = ("lease", "idempotency.lease")
_MAX_RESPONSE = ("max_response", "idempotency.max_response")

SYNONYMS = {
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
    "method": ("methods", "match.methods"),
    "methods": ("match.methods",),
    "verb": ("methods", "match.methods"),
    "verbs": ("methods", "match.methods"),
    "retry_policy": ("retry",),
    "retryPolicy": ("retry",),
    "num_retries": _ATTEMPTS,
    "max_retries": _ATTEMPTS,
    "retries": _ATTEMPTS,
    "lb_retries": _ATTEMPTS,
    "retry_on": _ON,
    "status": _ON,
    "status_code": ("status", *_ON),
    "status_codes": ("keep", *_ON),
    "retriable_status_codes": _ON,
    "per_try_timeout": _ATTEMPT_TIMEOUT,
    "perTryTimeout": _ATTEMPT_TIMEOUT,
    "try_timeout": _ATTEMPT_TIMEOUT,
    "base_interval": _BASE,
    "initialInterval": _BASE,
    "initial_delay": _BASE,
    "delay": _BASE,
    "max_interval": _MAX_WAIT,
    "max_delay": _MAX_WAIT,
    "cap": _MAX_WAIT,
    "multiplier": ("factor", "backoff.factor", "retry.backoff.factor"),
    "rateLimit": _THROTTLE,
    "rate_limit": _THROTTLE,
    "limit": _THROTTLE,
    "average": _RATE,
    "requests_per_second": _RATE,
    "rps": _RATE,
    "events": _RATE,
    "max_tokens": ("burst", "throttle.burst"),
    "maxconn": _CONCURRENCY,
    "max_in_flight": _CONCURRENCY,
    "inFlightReq": _CONCURRENCY,
    "circuitBreaker": ("breaker",),
    "circuit_breaker": ("breaker",),
    "outlier_detection": ("breaker",),
    "dlq": ("dead_letter",),
    "deadletter": ("dead_letter",),
    "dead_letters": ("dead_letter",),
    "data_dir": ("state_dir",),
    "worker_processes": ("workers",),
    "idempotent": ("idempotency",),
    "dedupe": ("idempotency",),
    "key": ("header",),
    "key_header": _KEY_HEADER,
    "header_name": _KEY_HEADER,
    "ttl": _TTL,
    "retention": _TTL,
    "expiry": _TTL,
    "expires": _TTL,
    "lock_timeout": _LEASE,
    "lock_ttl": _LEASE,
    "in_progress": ("in_flight", "idempotency.in_flight"),
    "max_size": ("max_response", "bytes", "max_body"),
    "max_response_size": _MAX_RESPONSE,
    "max_entries": ("entries",),
    "max_bytes": ("max_response", "bytes", "max_body"),
    "redact": ("headers.drop",),
    "min_body_rate": ("body_rate",),
    "body_min_rate": ("body_rate",),
}
"""Keys of other products → our keys; the first that exists in the section at hand is suggested."""

OFF = frozenset({"off", "no", "none", "disabled"})
ON = frozenset({"on", "yes", "enabled"})
"""Words that YAML 1.1 and people use for false and true."""
