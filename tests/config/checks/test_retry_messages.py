"""Messages for wrong values of retries. » marks the position to be reported."""

from collections.abc import Callable

import pytest

from tests.config.templates import LAYERS, ROUTE, TOP, UPSTREAM, in_file

RETRY = ROUTE.replace("{}", "retry: {{{}}}")
FALLBACK = ROUTE.replace("{}", "fallback: {{{}}}")
KEYS = UPSTREAM.replace("{}", "{{urls: ['http://a.example'], {}}}")
FIRST_HAND = ("unknown key", "is no ", "no unit", "neither true nor false")
"""Parts of messages about a single value."""
TWO = """\
upstreams: {{payments: "http://127.0.0.1:9000", us: "http://127.0.0.1:9001"}}
{}
routes:
  - name: api
    match: /api/**
    upstream: payments
    {}
  - {{name: other, match: /**, upstream: us, timeout: 7s}}
"""


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        in_file(
            "6 a list that replaces the built-in one",
            RETRY.format("»on: [429, 529]"),
            "routes.api.retry.on: warning: this list replaces the built-in one, so connect, reset, "
            "timeout, 408, 502, 503, 504 are no longer retried, write on: [default, 529] to add "
            "529",
        ),
        in_file(
            "6 a class covers some of it",
            RETRY.format("»on: [5xx, 403+hint]"),
            "routes.api.retry.on: warning: this list replaces the built-in one, so connect, "
            "refused, reset, timeout, 408 are no longer retried, write on: [default, 5xx, "
            "403+hint] to add 5xx, 403+hint",
        ),
        in_file(
            "6 a list that has nothing new",
            RETRY.format("»on: [refused, 503]"),
            "routes.api.retry.on: warning: this list replaces the built-in one, so connect, reset, "
            "timeout, 408, 502, 504 are no longer retried, write on: [default] to retry these too",
        ),
        in_file(
            "6 in a policy: once, where it is written",
            LAYERS.format("", "retry: {»true: [529]}", "retry: 5"),
            "policies.patient.retry.on: warning: this list replaces the built-in one, so connect, "
            "refused, reset, timeout, 408, 502, 503, 504 are no longer retried, write on: "
            "[default, 529] to add 529",
        ),
        in_file(
            "7 no attempt at all",
            RETRY.format("attempts: »0"),
            "routes.api.retry.attempts: 0 attempts would send nothing (the first call counts), "
            "write retry: false to switch retries off",
        ),
        in_file(
            "7 the same in short",
            ROUTE.format("retry: »0"),
            "routes.api.retry.attempts: 0 attempts would send nothing (the first call counts), "
            "write retry: false to switch retries off",
        ),
        in_file(
            "8 retries in place of attempts",
            RETRY.format("»max_retries: 3"),
            "routes.api.retry.max_retries: unknown key, write attempts: 4 (attempts counts the "
            "first call)",
        ),
        in_file(
            "8 the same beside retry",
            ROUTE.format("»num_retries: 3"),
            "routes.api.num_retries: unknown key, write retry: {attempts: 4} (attempts counts the "
            "first call)",
        ),
        in_file(
            "8 no retries are one attempt",
            RETRY.format("»retries: 0"),
            "routes.api.retry.retries: unknown key, write attempts: 1 (attempts counts the first "
            "call)",
        ),
        in_file(
            "8 a number that nobody can read",
            RETRY.format("»lb_retries: '${N}'"),
            "routes.api.retry.lb_retries: unknown key, write attempts: N+1 (attempts counts the "
            "first call)",
        ),
        in_file(
            "9 a word of another product",
            RETRY.format("on: [»gateway-error]"),
            'routes.api.retry.on[0]: "gateway-error" is no outcome, write 502, 503, 504',
        ),
        in_file(
            "14 true for unsafe",
            RETRY.format("unsafe: »true"),
            "routes.api.retry.unsafe: true is none of auto, never, always; write always to repeat "
            "every POST, which may run it twice",
        ),
        in_file(
            "14 false for unsafe",
            RETRY.format("unsafe: »false"),
            "routes.api.retry.unsafe: false is none of auto, never, always; write never to repeat "
            "no POST that may have been sent",
        ),
        in_file(
            "15 a POST that may run twice",
            RETRY.format("unsafe: »always"),
            "routes.api.retry.unsafe: warning: a POST is sent again after reset, timeout, 502, "
            "503, 504 and may run twice, write unsafe: auto or take these out of on",
        ),
        in_file(
            "15 after what is listed, and neither a connection that failed nor a 4xx",
            RETRY.format("on: [default, 409, 503+hint, protocol, 501, 5xx], unsafe: »always"),
            "routes.api.retry.unsafe: warning: a POST is sent again after reset, timeout, 502, "
            "503, 504, 503+hint, protocol, 5xx and may run twice, write unsafe: auto or take "
            "these out of on",
        ),
        in_file(
            "15 not after what the upstream refuses by",
            KEYS.format("refused: [429, 503, 502]").replace(
                "upstream: api",
                "upstream: api\n    retry: {on: [connect, 502, 503, 504], unsafe: »always}\n"
                "    name: api",
            ),
            "routes.api.retry.unsafe: warning: a POST is sent again after 504 and may run twice, "
            "write unsafe: auto or take these out of on",
        ),
        in_file(
            "15 by the method that the route takes",
            RETRY.format("unsafe: »always").replace("match: /**", "match: PATCH /x"),
            "routes.api.retry.unsafe: warning: a PATCH is sent again after reset, timeout, 502, "
            "503, 504 and may run twice, write unsafe: auto or take these out of on",
        ),
        in_file(
            "15 one place is bold, another says after what",
            LAYERS.format("retry: {unsafe: »always}", "", "retry: {on: [connect, reset]}"),
            "defaults.retry.unsafe: warning: a POST of routes.api is sent again after reset and "
            "may run twice, write unsafe: auto or take these out of on",
        ),
        in_file(
            "16 an attempt that may take all the time",
            ROUTE.format("timeout: 10s\n    retry: {attempt_timeout: »10s}"),
            "routes.api.retry.attempt_timeout: 10s is not below timeout 10s, so no second attempt "
            "can follow, write 3s for 3 attempts or a longer timeout",
        ),
        in_file(
            "16 against the built-in timeout",
            RETRY.format("attempts: 2, attempt_timeout: »1m"),
            "routes.api.retry.attempt_timeout: 1m is not below timeout 30s, so no second attempt "
            "can follow, write 15s for 2 attempts or a longer timeout",
        ),
        in_file(
            "16 a policy that one route has no time for",
            TWO.format("defaults: {retry: {attempt_timeout: »7s}, timeout: 20s}", "policy: []"),
            "defaults.retry.attempt_timeout: 7s is not below timeout 7s of routes.other, so no "
            "second attempt can follow, write 2s for 3 attempts or a longer timeout",
        ),
        in_file(
            "16 too little time to be shared out",
            ROUTE.format("timeout: 2ms\n    retry: {attempt_timeout: »2ms}"),
            "routes.api.retry.attempt_timeout: 2ms is not below timeout 2ms, so no second attempt "
            "can follow, write a longer timeout",
        ),
        in_file(
            "17 a first wait that is longer than the longest",
            RETRY.format("backoff: {base: »5s, max: 1s}"),
            "routes.api.retry.backoff.base: 5s is above max 1s, write a base of at most 1s or a "
            "larger max",
        ),
        in_file(
            "17 than the longest that is built in",
            RETRY.format("backoff: {base: »1m}"),
            "routes.api.retry.backoff.base: 1m is above max 30s, write a base of at most 30s or a "
            "larger max",
        ),
        in_file(
            "17 one in the defaults, the other in the route",
            LAYERS.format("retry: {backoff: {base: »5s}}", "", "retry: {backoff: {max: 1s}}"),
            "defaults.retry.backoff.base: 5s is above max 1s of routes.api, write a base of at "
            "most 1s or a larger max",
        ),
        in_file(
            "22 a fallback that comes too late",
            TWO.format(
                "",
                "timeout: 10s\n    retry: {attempts: 3, attempt_timeout: 4s}\n"
                "    »fallback: {upstream: us}",
            ),
            "routes.api.fallback: warning: 3 attempts of 4s use up timeout 10s, so the fallback "
            "may never run, write attempt_timeout: 2s or timeout: 20s",
        ),
        in_file(
            "22 the same, put together from two places",
            TWO.format(
                "policies: {p: {»fallback: {upstream: us}, retry: {attempt_timeout: 300ms}}}",
                "timeout: 900ms\n    policy: p",
            ),
            "policies.p.fallback: warning: 3 attempts of 300ms use up timeout 900ms of routes.api, "
            "so the fallback may never run, write attempt_timeout: 200ms or timeout: 2s",
        ),
        in_file(
            "36 a body that never fits",
            ROUTE.format("buffer: »1GiB"),
            "routes.api.buffer: warning: 1GiB is above limits.replay_memory 256MiB, so a body that "
            "large is never kept, write a larger replay_memory or a smaller buffer",
        ),
        in_file(
            "36 into the memory that is written",
            TOP.format("limits: {replay_memory: 2MiB}\ndefaults: {buffer: »3MiB}"),
            "defaults.buffer: warning: 3MiB is above limits.replay_memory 2MiB, so a body that "
            "large is never kept, write a larger replay_memory or a smaller buffer",
        ),
        in_file(
            "36 less memory than one body may take",
            TOP.format("limits: {replay_memory: »512KiB}"),
            "limits.replay_memory: warning: 512KiB is below buffer 1MiB, so a body that large is "
            "never kept, write a larger replay_memory or a smaller buffer",
        ),
    ],
)
def test_line(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        # Switches and shorthands
        in_file(
            "a word in place of a number of attempts",
            ROUTE.format("retry: »often"),
            'routes.api.retry.attempts: "often" is no whole number, write 3 (say)',
        ),
        in_file(
            "more attempts than anyone wants",
            ROUTE.format("retry: »101"),
            "routes.api.retry.attempts: 101 is out of range, write a number from 1 to 100",
        ),
        in_file(
            "another word for false",
            ROUTE.format("retry: »off"),
            'routes.api.retry: "off" is neither true nor false, write false to switch it off',
        ),
        in_file(
            "another word for true",
            KEYS.format("breaker: »yes"),
            'upstreams.api.breaker: "yes" is neither true nor false, write true to switch it on',
        ),
        in_file(
            "a policy without a value, which may be on or off",
            ROUTE.format("retry:» "),
            "routes.api.retry: there is no value, write true to switch it on or false for off",
        ),
        in_file(
            "a number in place of a breaker",
            KEYS.format("breaker: »5"),
            "upstreams.api.breaker: keys belong here, write some of failure_ratio, min_requests, "
            "window, open_for, probes",
        ),
        in_file(
            "a duration in place of its mapping",
            RETRY.format("retry_after: »10s"),
            "routes.api.retry.retry_after: keys belong here, write {max: 10s}",
        ),
        # Outcomes
        in_file(
            "an empty list",
            RETRY.format("on: »[]"),
            "routes.api.retry.on: the list is empty, write an item or remove it",
        ),
        in_file(
            "a list that is none",
            RETRY.format("on: »5xx"),
            "routes.api.retry.on: this has to be a list, write [5xx]",
        ),
        in_file(
            "both on and what a template engine made of it",
            RETRY.format("on: [default], »true: [connect]"),
            "routes.api.retry.on: already set at line 6, remove one of them",
        ),
        *(
            in_file(
                f"{kind} is never retried",
                RETRY.format(f"on: [default, »{kind}]"),
                f'routes.api.retry.on[1]: "{kind}" is never retried ({why}), remove it',
            )
            for kind, why in {
                "certificate": "a peer that is not trusted would not be the next time",
                "busy": "there was no free connection, and a retry would want one more",
                "truncated": "the client has the beginning of the answer",
                "unknown": "what happened is unknown",
                "cancelled": "the client left",
            }.items()
        ),
        in_file(
            "truncated is never replaced",
            FALLBACK.format("status: 503, on: [»truncated]"),
            'routes.api.fallback.on[0]: "truncated" is never replaced (the client has the '
            "beginning of the answer), remove it",
        ),
        in_file(
            "breaker_open in the wrong list",
            RETRY.format("on: [default, »breaker_open]"),
            'routes.api.retry.on[1]: "breaker_open" is never retried, write it in fallback.on',
        ),
        in_file(
            "a status that is no failure",
            RETRY.format("on: [default, »200]"),
            "routes.api.retry.on[1]: 200 is no failure, write a status from 400 to 599, 4xx or 5xx",
        ),
        in_file(
            "a class that is no failure",
            RETRY.format("on: [default, »3xx]"),
            "routes.api.retry.on[1]: 3xx is no failure, write a status from 400 to 599, 4xx or 5xx",
        ),
        *(
            in_file(
                f"{theirs} in a list",
                RETRY.format(f"on: [default, »{theirs}]"),
                f'routes.api.retry.on[1]: "{theirs}" is no outcome, write {ours}',
            )
            for theirs, ours in {
                "connect-failure": "connect",
                "conn-failure": "connect",
                "empty-response": "reset",
                "reset-before-request": "reset",
                "response-timeout": "timeout",
                "5XX": "5xx",
                "500-599": "5xx",
                "400-499": "4xx",
                "http_503": "503",
                "invalid_header": "protocol",
                "500-504": "each status as an item, or a class such as 5xx",
                "5xx+hint": "a single status with a hint: 503+hint (say)",
            }.items()
        ),
        in_file(
            "an outcome that is nearly right",
            RETRY.format("on: [default, »timeuot]"),
            'routes.api.retry.on[1]: "timeuot" is no outcome, did you mean timeout?',
        ),
        in_file(
            "an outcome that nobody knows",
            FALLBACK.format("status: 503, on: [»everything]"),
            'routes.api.fallback.on[0]: "everything" is no outcome, write some of connect, '
            "refused, reset, timeout, protocol, breaker_open, default, 503, 5xx, 403+hint",
        ),
        # Words from elsewhere, and keys in the wrong place
        *(
            in_file(
                f"{theirs} within retry",
                RETRY.format(f"»{theirs}: 1s"),
                f"routes.api.retry.{theirs}: unknown key, write {ours}",
            )
            for theirs, ours in {
                "retry_on": "on",
                "status_codes": "on",
                "retriable_status_codes": "on",
                "status": "on",
                "per_try_timeout": "attempt_timeout",
                "perTryTimeout": "attempt_timeout",
                "try_timeout": "attempt_timeout",
                "base_interval": "backoff: {base: …}",
                "initialInterval": "backoff: {base: …}",
                "initial_delay": "backoff: {base: …}",
                "delay": "backoff: {base: …}",
                "max_interval": "backoff: {max: …}",
                "max_delay": "backoff: {max: …}",
                "cap": "backoff: {max: …}",
                "multiplier": "backoff: {factor: …}",
            }.items()
        ),
        in_file(
            "a first wait beside retry",
            ROUTE.format("»initial_delay: 1s"),
            "routes.api.initial_delay: unknown key, write retry: {backoff: {base: …}}",
        ),
        in_file(
            "cap within backoff",
            RETRY.format("backoff: {»cap: 1s}"),
            "routes.api.retry.backoff.cap: unknown key, write max",
        ),
        *(
            in_file(
                f"{theirs} on a route",
                ROUTE.format(f"»{theirs}: true"),
                f"routes.api.{theirs}: unknown key, it is called breaker and belongs to an "
                f"upstream, write it there",
            )
            for theirs in ("circuitBreaker", "circuit_breaker", "outlier_detection")
        ),
        in_file(
            "another product's breaker on the upstream",
            KEYS.format("»circuitBreaker: {}"),
            "upstreams.api.circuitBreaker: unknown key, write breaker",
        ),
        *(
            in_file(
                f"{key} on a route",
                ROUTE.format(f"»{key}: true"),
                f"routes.api.{key}: unknown key, it belongs to an upstream, write it there",
            )
            for key in ("breaker", "budget", "honours_key", "refused")
        ),
        *(
            in_file(
                f"{key} on an upstream",
                KEYS.format(f"»{key}: true"),
                f"upstreams.api.{key}: unknown key, it belongs to a route, a policy or defaults, "
                f"write it there",
            )
            for key in ("retry", "buffer", "fallback", "timeout")
        ),
        *(
            in_file(
                f"{key} beside retry",
                ROUTE.format(f"»{key}: 3"),
                f"routes.api.{key}: unknown key, it belongs to {section}, write it there",
            )
            for key, section in {
                "attempts": "retry",
                "unsafe": "retry",
                "backoff": "retry",
                "jitter": "retry.backoff",
                "window": "an upstream's budget",
            }.items()
        ),
        # Waits
        in_file(
            "an increment that nothing uses",
            RETRY.format("backoff: {increment: »1s}"),
            "routes.api.retry.backoff.increment: warning: the strategy is exponential and only "
            "linear uses it, write strategy: linear or remove it",
        ),
        in_file(
            "a factor that nothing uses",
            RETRY.format("backoff: {strategy: constant, factor: »3}"),
            "routes.api.retry.backoff.factor: warning: the strategy is constant and only "
            "exponential uses it, write strategy: exponential or remove it",
        ),
        in_file(
            "a factor that shrinks",
            RETRY.format("backoff: {factor: »0.5}"),
            "routes.api.retry.backoff.factor: 0.5 is out of range, write a number from 1 to 100",
        ),
        in_file(
            "a jitter in percent",
            RETRY.format("backoff: {jitter: »20%}"),
            'routes.api.retry.backoff.jitter: "20%" is no number, write 0.2',
        ),
        in_file(
            "more jitter than there is",
            RETRY.format("backoff: {jitter: »1.5}"),
            "routes.api.retry.backoff.jitter: 1.5 is out of range, write a number from 0 to 1",
        ),
        in_file(
            "a switch in place of a jitter",
            RETRY.format("backoff: {jitter: »true}"),
            "routes.api.retry.backoff.jitter: true is none of full, equal, decorrelated, none; "
            "write one of them, or a number from 0 to 1 (0.2 is ±20 %)",
        ),
        in_file(
            "a hint of no time",
            RETRY.format("retry_after: {max: »0s}"),
            "routes.api.retry.retry_after.max: 0s would follow no hint, write retry_after: false "
            "if that is meant",
        ),
        in_file(
            "an attempt of no time",
            RETRY.format("attempt_timeout: »0s"),
            "routes.api.retry.attempt_timeout: 0s leaves no time for any attempt, write none for "
            "no limit",
        ),
        # Fallback
        in_file(
            "a fallback that says nothing",
            ROUTE.format("»fallback: true"),
            "routes.api.fallback: it has neither a status nor an upstream, write status: "
            "503 (say) or upstream: NAME in it",
        ),
        in_file(
            "a fallback that says two things",
            TWO.format("", "fallback: {status: 503, »upstream: us}"),
            "routes.api.fallback.upstream: it cannot stand beside status, remove one of them",
        ),
        in_file(
            "an answer of another upstream with a header of ours",
            TWO.format("", "fallback: {upstream: us, »headers: {X-A: b}}"),
            "routes.api.fallback.headers: it cannot stand beside upstream, remove one of them",
        ),
        in_file(
            "a fallback to nobody",
            TWO.format("", "fallback: {upstream: »uss}"),
            'routes.api.fallback.upstream: no upstream is called "uss", did you mean "us"?',
        ),
        in_file(
            "a fallback to the same upstream",
            FALLBACK.format("upstream: »payments"),
            'routes.api.fallback.upstream: the route sends to "payments" already, write another '
            "upstream or, in the route, fallback: false",
        ),
        in_file(
            "a fallback for all, also for the route that is there already",
            TWO.format("defaults: {fallback: {upstream: »us}}", ""),
            'defaults.fallback.upstream: routes.other sends to "us" already, write another '
            "upstream or, in the route, fallback: false",
        ),
        in_file(
            "a status that is no answer",
            FALLBACK.format("status: »101"),
            "routes.api.fallback.status: 101 is out of range, write a number from 200 to 599",
        ),
        in_file(
            "a body where none can be",
            FALLBACK.format("status: 204, body: »sorry"),
            "routes.api.fallback.body: a response with status 204 has no body, remove it or write "
            "status: 200",
        ),
        in_file(
            "a header that follows from the body",
            FALLBACK.format("status: 503, headers: {»Content-Length: 5}"),
            "routes.api.fallback.headers.Content-Length: Content-Length cannot be edited, it "
            "follows from the body, remove it here",
        ),
        in_file(
            "a header of one connection",
            FALLBACK.format("status: 503, headers: {»Connection: close}"),
            "routes.api.fallback.headers.Connection: Connection cannot be edited, it belongs to "
            "one connection, remove it here",
        ),
        # Upstreams
        in_file(
            "another word for a promise",
            KEYS.format("honours_key: »yes"),
            'upstreams.api.honours_key: "yes" is neither true nor false, write true to switch it '
            "on",
        ),
        in_file(
            "a memory that is over before a second attempt could arrive",
            KEYS.format("honours_key: {for: »20s}").rstrip("\n") + "\n    retry: true\n",
            "upstreams.api.honours_key.for: warning: 20s is not above 30s, the longest attempt of "
            "routes[0], so nothing is repeated by its key, write a longer for or a shorter "
            "retry.attempt_timeout",
        ),
        in_file(
            "a memory without a unit",
            KEYS.format("honours_key: {for: »24}"),
            "upstreams.api.honours_key.for: 24 has no unit, write 24h (or 24s)",
        ),
        in_file(
            "a memory for ever",
            KEYS.format("honours_key: {for: »none}"),
            'upstreams.api.honours_key.for: "none" is no duration, write 24h (say)',
        ),
        in_file(
            "our own word for how long",
            KEYS.format("honours_key: {»ttl: 1h}"),
            "upstreams.api.honours_key.ttl: unknown key, write for: 1h",
        ),
        in_file(
            "how long, without saying so",
            KEYS.format("honours_key: »24h"),
            "upstreams.api.honours_key: 24h is a time, write honours_key: {for: 24h}",
        ),
        in_file(
            "a promise as text",
            KEYS.format('honours_key: »"true"'),
            'upstreams.api.honours_key: "true" is text here, write true without quotes',
        ),
        in_file(
            "a promise as a number",
            KEYS.format("honours_key: »1"),
            "upstreams.api.honours_key: 1 is no name of a header, write Idempotency-Key (say)",
        ),
        in_file(
            "a promise as a throttle's key is written",
            KEYS.format("honours_key: »header:X-Key"),
            'upstreams.api.honours_key: "header:X-Key" is no name of a header, write X-Key',
        ),
        in_file(
            "a promise by a header that every request has",
            KEYS.format("honours_key: »Host"),
            "upstreams.api.honours_key: Host has a meaning of its own, write Idempotency-Key (say)",
        ),
        in_file(
            "no memory at all",
            KEYS.format("honours_key: {for: »0s}"),
            "upstreams.api.honours_key.for: 0s is no time to remember a key, write 24h (say)",
        ),
        in_file(
            "another word for how long",
            KEYS.format("honours_key: {»memory: 24h}"),
            "upstreams.api.honours_key.memory: unknown key, write one of header, for, shared",
        ),
        in_file(
            "neither shared nor not",
            KEYS.format("honours_key: {shared: »maybe}"),
            'upstreams.api.honours_key.shared: "maybe" is neither true nor false, write one of '
            "them",
        ),
        in_file(
            "a promise by a header that cannot be",
            KEYS.format("honours_key: »'X Key'"),
            'upstreams.api.honours_key: "X Key" is no name of a header, write Idempotency-Key '
            "(say)",
        ),
        in_file(
            "refusals that are no failures",
            KEYS.format("refused: [429, »200]"),
            "upstreams.api.refused[1]: 200 is out of range, write a number from 400 to 599",
        ),
        in_file(
            "a class of refusals",
            KEYS.format("refused: [429, »5xx]"),
            'upstreams.api.refused[1]: "5xx" is many statuses, write each: 503 (say)',
        ),
        in_file(
            "default among refusals",
            KEYS.format("refused: [»default, 503]"),
            "upstreams.api.refused[0]: default has no meaning here, write 421, 425, 429",
        ),
        in_file(
            "refusals that replace the built-in ones",
            KEYS.format("»refused: [503, 529]"),
            "upstreams.api.refused: warning: this list replaces the built-in one, so 421, 425, 429 "
            "no longer mean that nothing was done, write refused: [421, 425, 429, 503, 529] to add "
            "503, 529",
        ),
        in_file(
            "a ratio in percent",
            KEYS.format("budget: {ratio: »20%}"),
            'upstreams.api.budget.ratio: "20%" is no number, write 0.2',
        ),
        in_file(
            "a ratio that was probably meant in percent",
            KEYS.format("budget: {ratio: »20}"),
            "upstreams.api.budget.ratio: warning: 20 retries for each request are no limit, write "
            "a ratio such as 0.2, or budget: false if that is meant",
        ),
        in_file(
            "a budget of nothing",
            KEYS.format("»budget: {ratio: 0, min_per_second: 0}"),
            "upstreams.api.budget: warning: this allows no retry at all, write a larger ratio, or "
            "budget: false for any number",
        ),
        in_file(
            "a share of failures that is more than all",
            KEYS.format("breaker: {failure_ratio: »50}"),
            "upstreams.api.breaker.failure_ratio: 50 is out of range, write a number above 0 and "
            "up to 1",
        ),
        in_file(
            "a breaker that needs no failure",
            KEYS.format("breaker: {failure_ratio: »0}"),
            "upstreams.api.breaker.failure_ratio: 0 is out of range, write a number above 0 and up "
            "to 1",
        ),
        in_file(
            "a number in quotes",
            KEYS.format("breaker: {failure_ratio: »'0.5'}"),
            'upstreams.api.breaker.failure_ratio: "0.5" is text, write 0.5 without quotes',
        ),
        in_file(
            "no number at all",
            KEYS.format("budget: {min_per_second: ».inf}"),
            "upstreams.api.budget.min_per_second: .inf is no number, write 0.5 (say)",
        ),
    ],
)
def test_sibling(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(RETRY.format("on: [connect, 529]"), id="a list by someone who knows it"),
        pytest.param(RETRY.format("on: [default, 529]"), id="a list that adds"),
        pytest.param(
            RETRY.format("unsafe: always, on: [connect, refused, 408, 409]"),
            id="always, after nothing that may have run",
        ),
        pytest.param(
            RETRY.format("unsafe: always").replace("match: /**", "match: GET /x"),
            id="always, on a route that takes nothing unsafe",
        ),
        pytest.param(
            ROUTE.format("timeout: none\n    retry: {attempt_timeout: 1h}"),
            id="an attempt is limited and the exchange is not",
        ),
        pytest.param(
            ROUTE.format("timeout: 5s\n    retry: {attempts: 1, attempt_timeout: 9s}"),
            id="a single attempt",
        ),
        pytest.param(
            TWO.format(
                "",
                "timeout: 10s\n    retry: {attempt_timeout: 4s}\n    fallback: {status: 200}",
            ),
            id="a fixed answer takes no time",
        ),
        pytest.param(
            TWO.format(
                "",
                "timeout: 13s\n    retry: {attempt_timeout: 4s}\n    fallback: {upstream: us}",
            ),
            id="attempts that leave time for the fallback",
        ),
        pytest.param(
            LAYERS.format(
                "retry: {backoff: {strategy: linear, increment: 1s}}",
                "",
                "retry: {backoff: {strategy: constant}}",
            ),
            id="an increment for those routes that do not choose for themselves",
        ),
        pytest.param(
            LAYERS.format("retry: {unsafe: always, backoff: {base: 1m}}", "", "retry: false"),
            id="whatever is wrong with what is off",
        ),
        pytest.param(TOP.format("limits: {replay_memory: 0B}"), id="nothing is kept, on purpose"),
        pytest.param(KEYS.format("refused: []"), id="nothing is refused, on purpose"),
        pytest.param(
            "upstreams: {a: 'http://127.0.0.1:1', b: 'http://127.0.0.1:2'}\n"
            "defaults: {fallback: {upstream: b}}\n"
            "routes: [{match: /**, upstream: a}]\n",
            id="an upstream that is used as a fallback only",
        ),
    ],
)
def test_nothing_to_say(lines: Callable[..., list[str]], text: str) -> None:
    assert lines(text) == []


def test_an_upstream_behind_a_fallback_that_is_off_is_not_used(
    only_line: Callable[..., None],
) -> None:
    only_line(
        "upstreams: {a: 'http://127.0.0.1:1', »b: 'http://127.0.0.1:2'}\n"
        "defaults: {fallback: {upstream: b}}\n"
        "routes: [{match: /**, upstream: a, fallback: false}]\n",
        "upstreams.b: warning: no route uses it, write upstream: b in a route or remove it",
    )


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param("timeout: 5\n    retry: {attempt_timeout: 9s}", id="the timeout"),
        pytest.param("timeout: 5s\n    retry: {attempts: x, attempt_timeout: 9s}", id="attempts"),
        pytest.param("retry: {backoff: {base: 5s, max: 1}}", id="the longest wait"),
        pytest.param("retry: {backoff: {max: 1ms, base: 1}}", id="the first wait"),
        pytest.param("retry: {unsafe: always, on: [x]}", id="an outcome"),
        pytest.param("fallback: {status: x}", id="the status of a fallback"),
        pytest.param("fallback: {upstreem: us}", id="a key of a fallback"),
        pytest.param("fallback: {colour: red}", id="a key of a fallback that nobody knows"),
        pytest.param("timeout: 5s\n    retry: off\n    fallback: {status: 200}", id="a switch"),
        pytest.param("buffer: 1GB", id="the buffer"),
    ],
)
def test_what_cannot_be_read_is_all_that_is_said(
    lines: Callable[..., list[str]], broken: str
) -> None:
    found = lines(ROUTE.format(broken))
    assert found
    assert all(any(word in line for word in FIRST_HAND) for line in found)


def test_a_value_from_outside_is_not_shown(only_line: Callable[..., None]) -> None:
    only_line(
        ROUTE.format("timeout: ${T}\n    retry: {attempt_timeout: »'${A}'}"),
        "routes.api.retry.attempt_timeout: the value of ${A} is not below timeout the value of "
        "${T}, so no second attempt can follow, write a shorter one or a longer timeout",
        {"A": "71s", "T": "61s"},
    )
