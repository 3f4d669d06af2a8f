"""Retries that cannot help: waits beyond the timeout, repetitions that nothing makes safe."""

from collections.abc import Callable

import pytest

from tests.config.templates import LAYERS, ROUTE, in_file

PAY = """\
upstreams: {{payments: {}}}
routes:
  - name: pay
    match: {}
    upstream: payments
    {}
"""
PLAIN = "'http://127.0.0.1:9000'"
BASE = "routes.api.retry.backoff.base: warning: a wait of"


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        in_file(
            "any part of a wait, which may be short enough",
            ROUTE.format("timeout: 1s\n    retry: {backoff: {base: »2s}}"),
            f"{BASE} 2s cannot fit into timeout 1s, so few retries can follow, write base: 100ms "
            "(say) or a longer timeout",
        ),
        in_file(
            "a wait as long as the request may take",
            ROUTE.format("timeout: 6s\n    retry: {attempts: 2, backoff: {base: »6s}}"),
            f"{BASE} 6s cannot fit into timeout 6s, so few retries can follow, write base: 1s "
            "(say) or a longer timeout",
        ),
        *(
            in_file(
                f"jitter {jitter}",
                ROUTE.format(
                    f"timeout: 1s\n    retry: {{backoff: {{base: »2s, jitter: {jitter}}}}}"
                ),
                f"{BASE} 2s cannot fit into timeout 1s, so {effect} can follow, write base: 100ms "
                "(say) or a longer timeout",
            )
            for jitter, effect in (
                ("none", "no retry"),
                ("equal", "no retry"),
                ("decorrelated", "no retry"),
                ("0.2", "no retry"),
                ("0.8", "few retries"),
            )
        ),
        in_file(
            "a timeout that leaves nothing to suggest",
            ROUTE.format("timeout: 1ms\n    retry: {backoff: {base: »2s}}"),
            f"{BASE} 2s cannot fit into timeout 1ms, so few retries can follow, write a shorter "
            "base or a longer timeout",
        ),
        in_file(
            "from a policy",
            LAYERS.format("", "retry: {backoff: {base: »20s}}", "timeout: 10s"),
            "policies.patient.retry.backoff.base: warning: a wait of 20s cannot fit into timeout "
            "10s of routes.api, so few retries can follow, write base: 1s (say) or a longer "
            "timeout",
        ),
        in_file(
            "a hint that is never waited for",
            ROUTE.format("timeout: 10s\n    retry: {retry_after: {max: »5m}}"),
            "routes.api.retry.retry_after.max: warning: a wait of 5m cannot fit into timeout 10s, "
            "so no retry waits for that long, write max: 1s (say) or a longer timeout",
        ),
        in_file(
            "a POST with a key that its upstream does not know",
            PAY.format(PLAIN, "POST /pay", "»retry: true\n    idempotency: {required: true}"),
            "routes.pay.retry: warning: a POST is not sent again after reset, timeout, 502, 503, "
            "504, because it may have run, write honours_key: true in upstreams.payments if it "
            "runs a request with the same key once, or honours_key: false if it does not",
        ),
        in_file(
            "a PATCH, after what is listed",
            PAY.format(
                PLAIN,
                "{methods: [PATCH, POST]}",
                "idempotency: true\n    »retry: {on: [connect, 500]}",
            ),
            "routes.pay.retry: warning: a PATCH is not sent again after 500, because it may have "
            "run, write honours_key: true in upstreams.payments if it runs a request with the "
            "same key once, or honours_key: false if it does not",
        ),
    ],
)
def test_line(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            ROUTE.format("timeout: none\n    retry: {backoff: {base: 30s}}"), id="no limit"
        ),
        pytest.param(
            ROUTE.format("timeout: 1s\n    retry: {attempts: 1, backoff: {base: 2s}}"),
            id="no retry at all",
        ),
        pytest.param(ROUTE.format("timeout: 50ms\n    retry: true"), id="the base is built in"),
        pytest.param(
            ROUTE.format("timeout: 10s\n    retry: {retry_after: {max: 10s}}"),
            id="a longest hint is an upper bound",
        ),
        *(
            pytest.param(PAY.format(up, match, keys), id=name)
            for name, up, match, keys in (
                (
                    "it honours keys",
                    f"{{urls: [{PLAIN}], honours_key: true}}",
                    "POST /pay",
                    "retry: true\n    idempotency: true",
                ),
                (
                    "it does not, and the author knows",
                    f"{{urls: [{PLAIN}], honours_key: false}}",
                    "POST /pay",
                    "retry: true\n    idempotency: true",
                ),
                (
                    "it says what it refuses",
                    f"{{urls: [{PLAIN}], refused: [429, 503]}}",
                    "POST /pay",
                    "retry: true\n    idempotency: true",
                ),
                ("no key", PLAIN, "POST /pay", "retry: true"),
                ("no retry", PLAIN, "POST /pay", "idempotency: true"),
                ("reads, too", PLAIN, "/pay", "retry: true\n    idempotency: true"),
                (
                    "chosen",
                    PLAIN,
                    "POST /pay",
                    "retry: {unsafe: auto}\n    idempotency: true",
                ),
                (
                    "after nothing that may have run",
                    PLAIN,
                    "POST /pay",
                    "retry: {on: [connect, refused]}\n    idempotency: true",
                ),
            )
        ),
        pytest.param(
            f"upstreams: {{payments: {PLAIN}}}\ndefaults: {{retry: true}}\n"
            "routes: [{match: POST /pay, upstream: payments, idempotency: true}]\n",
            id="retries of all routes",
        ),
    ],
)
def test_nothing_to_say(lines: Callable[..., list[str]], text: str) -> None:
    assert lines(text) == []
