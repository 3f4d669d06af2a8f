"""Messages for wrong values of throttles. » marks the position to be reported."""

from collections.abc import Callable

import pytest

from tests.config.templates import LAYERS, ROUTE, TOP, UPSTREAM, in_file

THROTTLE = ROUTE.replace("{}", "throttle: {{{}}}")
SHARED = UPSTREAM.replace("{}", "{{urls: ['http://a.example'], throttle: {{{}}}}}")
REDIS = "store: redis://redis\n"
SQLITE = "store: sqlite:keys.db\n"
TWO = """\
upstreams: {{a: {{urls: ["http://127.0.0.1:9000"], throttle: {{{}}}}}}}
defaults: {{{}}}
routes:
  - {{name: one, match: /one, upstream: a, {}}}
  - {{name: two, match: /two, upstream: a, {}}}
"""
IS_NO_RATE = "write 100/s (say) or none for no limit"
FIRST_HAND = ("unknown key", "is no ", "no unit", "none of", "let nothing through", "two keys")
"""Parts of messages about a single value."""


def rate(identifier: str, written: str, expected: str) -> object:
    """Return a row: a rate as written, and the message it gets."""
    return in_file(
        identifier, ROUTE.format(f"throttle: »{written}"), f"routes.api.throttle.rate: {expected}"
    )


def key(identifier: str, written: str, expected: str) -> object:
    """Return a row: a key as written, and the message it gets."""
    return in_file(
        identifier, THROTTLE.format(f"key: »{written}"), f"routes.api.throttle.key: {expected}"
    )


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        in_file(
            "2 a rate without a unit",
            THROTTLE.format("rate: »100"),
            "routes.api.throttle.rate: 100 has no unit, write 100/s (or 100/m, 100/h)",
        ),
        rate("2 the same in short", "100", "100 has no unit, write 100/s (or 100/m, 100/h)"),
        in_file(
            "2 the same in a list",
            THROTTLE.format("rate: [10/s, »500]"),
            "routes.api.throttle.rate[1]: 500 has no unit, write 500/s (or 500/m, 500/h)",
        ),
        rate("2 a number and a slash", "100/", "100/ has no unit, write 100/s (or 100/m, 100/h)"),
        rate(
            "2 a time without a unit",
            "5/10",
            "5/10 has no unit of time, write 5/10s (or 5/10m, 5/10h)",
        ),
        rate("3 a unit that is not ours", "100/sec", '"sec" is no unit of time, write 100/s'),
        rate("3 minutes", "600/min", '"min" is no unit of time, write 600/m'),
        rate("3 a time with such a unit", "10/5sec", '"sec" is no unit of time, write 10/5s'),
        rate("3 in capitals", "100/S", '"S" is no unit of time, write 100/s'),
        rate("3 a week", "100/week", '"week" is no unit of time, write 100/7d'),
        rate(
            "3 a unit that nobody knows",
            "100/fortnight",
            '"fortnight" is no unit of time, write 100/s (or 100/m, 100/h)',
        ),
        rate("no time", "100/?", '"?" is no time, write 100/s (say)'),
        rate("in words", "100 per second", '"100 per second" is no rate, write 100/s'),
        rate("in more words", "9 requests per hour", '"9 requests per hour" is no rate, write 9/h'),
        rate("as nginx has it", "100r/s", '"100r/s" is no rate, write 100/s'),
        rate("in letters", "100rps", '"100rps" is no rate, write 100/s'),
        rate("in other letters", "100rpm", '"100rpm" is no rate, write 100/m'),
        rate("a space before the slash", "100 /s", '"100 /s" is no rate, write 100/s'),
        rate("a space behind it", "100/ s", '"100/ s" has a space in it, write 100/s'),
        rate("no number", "/s", f'"/s" is no rate, {IS_NO_RATE}'),
        rate("no rate at all", "often", f'"often" is no rate, {IS_NO_RATE}'),
        rate("thousands", "1k/s", f'"1k/s" is no rate, {IS_NO_RATE}'),
        rate("negative", "-5/s", '"-5/s" is negative, write 5/s'),
        rate(
            "nothing",
            "0/s",
            "0/s lets nothing through, write 1/s or more, or none for no limit",
        ),
        rate("in no time", "100/0s", "100/0s leaves no time to count in, write 100/s"),
        rate("a call and a half", "1.5/s", "1.5/s is no whole number of calls, write 3/2s"),
        rate("a tenth of a call", "0.1/m", "0.1/m is no whole number of calls, write 1/10m"),
        rate("over years", "5/400d", "5/400d counts over a time out of range, write 1ms to 365d"),
        rate(
            "over no time", "5/0.1ms", "5/0.1ms counts over a time out of range, write 1ms to 365d"
        ),
        rate(
            "more than anybody can send",
            "2000000/s",
            "2000000/s is more than anybody can send, write at most 1000000/s, or none for no "
            "limit",
        ),
        in_file(
            "none in short",
            ROUTE.format("throttle: »none"),
            'routes.api.throttle: "none" is neither true nor false, write false to switch it off',
        ),
        in_file(
            "none in a list",
            THROTTLE.format("rate: [10/s, »none]"),
            "routes.api.throttle.rate[1]: none is no rate of a list, remove it, or write rate: "
            "none",
        ),
        in_file(
            "a rate that is there twice",
            THROTTLE.format("rate: [100/s, »100/1s]"),
            "routes.api.throttle.rate[1]: this rate is already in the list, remove it",
        ),
        in_file(
            "a list in short",
            ROUTE.format("throttle: »[10/s, 500/h]"),
            "routes.api.throttle: keys belong here, write some of rate, burst, algorithm, "
            "margin, concurrency, max_wait, max_queue, key, max_keys, pause, on_store_error",
        ),
    ],
)
def test_rates(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        in_file(
            "28 two keys to YAML",
            ROUTE.format("throttle:\n      key: header»: X-Tenant"),
            'routes.api.throttle.key: "header: X-Tenant" is two keys to YAML, write key: '
            "header:X-Tenant (no space)",
        ),
        in_file(
            "28 the same within braces",
            THROTTLE.format("key: query»: tenant, rate: 100/s"),
            'routes.api.throttle.key: "query: tenant" is two keys to YAML, write key: '
            "query:tenant (no space)",
        ),
        in_file(
            "28 the same on two lines, which YAML can read",
            ROUTE.format("throttle:\n      key:\n        »header: X-Tenant"),
            'routes.api.throttle.key: "header: X-Tenant" is two keys to YAML, write key: '
            "header:X-Tenant (no space)",
        ),
        in_file(
            "28 no name",
            ROUTE.format("throttle:\n      key: header»:"),
            'routes.api.throttle.key: "header:" names none, write key: header:X-Tenant (say)',
        ),
        key(
            "28 no name, in quotes",
            "'query:'",
            '"query:" names none, write key: query:tenant (say)',
        ),
        key("28 in quotes", "'header: X-A'", '"header: X-A" has a space in it, write header:X-A'),
        key("28 another word for the address", "ip", '"ip" is no key, write client_ip'),
        key("28 nginx's word", "$remote_addr", '"$remote_addr" is no key, write client_ip'),
        key("two letters swapped", "client_pi", '"client_pi" is no key, did you mean client_ip?'),
        key("a header's name alone", "X-Tenant", '"X-Tenant" is no key, write header:X-Tenant'),
        key(
            "a usual header",
            "Authorization",
            '"Authorization" is no key, write header:Authorization',
        ),
        key("capitals", "HEADER:X-A", '"HEADER:X-A" is no key, write header:X-A'),
        key("a parameter by another word", "param:id", '"param:id" is no key, write query:id'),
        key(
            "a cookie",
            "cookie:session",
            '"cookie:session" is no key, write client_ip, header:NAME or query:NAME',
        ),
        key("a word", "tenant", '"tenant" is no key, write client_ip, header:NAME or query:NAME'),
        key(
            "no name of a header",
            "header:Bad Name",
            '"Bad Name" is no name of a header, write header:X-Tenant (say)',
        ),
        key(
            "no name of a parameter",
            "query:a&b",
            '"a&b" is no name of a query parameter, write query:tenant (say)',
        ),
        key(
            "several",
            "[client_ip, header:X-A]",
            "a list stands where a single value belongs, write client_ip (say)",
        ),
        in_file(
            "nobody could be told apart",
            THROTTLE.format("key: client_ip, max_keys: »0"),
            "routes.api.throttle.max_keys: 0 would tell no caller apart, write key: none if that "
            "is "
            "meant",
        ),
        in_file(
            "nobody is told apart",
            THROTTLE.format("»max_keys: 5"),
            "routes.api.throttle.max_keys: there is no key that tells callers apart, write key: "
            "client_ip (say) beside it",
        ),
    ],
)
def test_keys(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        in_file(
            "26 a burst of nothing",
            THROTTLE.format("»burst: 20"),
            "routes.api.throttle.burst: there is no rate that could burst, write rate: 100/s (say) "
            "beside it",
        ),
        in_file(
            "26 of an upstream",
            SHARED.format("»burst: 20"),
            "upstreams.api.throttle.burst: there is no rate that could burst, write rate: 100/s "
            "(say) beside it",
        ),
        in_file(
            "26 in a policy, where no route has a rate",
            LAYERS.format("", "throttle: {»burst: 20}", "throttle: {concurrency: 5}"),
            "policies.patient.throttle.burst: there is no rate that could burst, write rate: 100/s "
            "(say) beside it",
        ),
        in_file(
            "a smooth rate beside a slower one",
            THROTTLE.format("rate: [»10/s, 100/m], burst: 5"),
            "routes.api.throttle.rate[0]: warning: 10/s has no effect, 100/m lets less through at "
            "any time, remove it or write algorithm: window to have both",
        ),
        in_file(
            "the same beside a file, where limits are counted in memory too",
            SQLITE + THROTTLE.format("rate: [»10/s, 100/m], burst: 5"),
            "routes.api.throttle.rate[0]: warning: 10/s has no effect, 100/m lets less through at "
            "any time, remove it or write algorithm: window to have both",
        ),
        in_file(
            "29 a wait that does not fit",
            ROUTE.format("timeout: 30s\n    throttle: {max_wait: »60s}"),
            "routes.api.throttle.max_wait: warning: a wait of 60s cannot fit into timeout 30s, "
            "write max_wait: 20s or timeout: 90s",
        ),
        in_file(
            "29 into the built-in timeout",
            THROTTLE.format("max_wait: »30s"),
            "routes.api.throttle.max_wait: warning: a wait of 30s cannot fit into timeout 30s, "
            "write max_wait: 20s or timeout: 1m",
        ),
        in_file(
            "29 into that of one route",
            TWO.format("", "throttle: {max_wait: »10s}", "", "timeout: 5s"),
            "defaults.throttle.max_wait: warning: a wait of 10s cannot fit into timeout 5s of "
            "routes.two, write max_wait: 3s or timeout: 15s",
        ),
        in_file(
            "29 of an upstream, into that of any route",
            TWO.format("max_wait: »1m", "", "timeout: 20s", "timeout: 10s"),
            "upstreams.a.throttle.max_wait: warning: a wait of 1m fits into no route's timeout "
            "(the longest is 20s), write a shorter one or a longer timeout",
        ),
        in_file(
            "no burst",
            THROTTLE.format("rate: 100/s, burst: »0"),
            "routes.api.throttle.burst: 0 would let nothing through, write none for no burst",
        ),
        in_file(
            "a burst in words",
            THROTTLE.format("rate: 100/s, burst: »few"),
            'routes.api.throttle.burst: "few" is no whole number, write 20 (say) or none for no '
            "burst",
        ),
        in_file(
            "a margin of nothing",
            THROTTLE.format("»margin: 20ms"),
            "routes.api.throttle.margin: there is no rate that it could belong to, write "
            "rate: 100/s (say) beside it",
        ),
        in_file(
            "a margin without a unit",
            THROTTLE.format("rate: 100/s, margin: »20"),
            "routes.api.throttle.margin: 20 has no unit, write 20ms",
        ),
        in_file(
            "a margin in seconds, without a unit",
            THROTTLE.format("rate: 100/s, margin: »0.02"),
            "routes.api.throttle.margin: 0.02 has no unit, write 0.02s",
        ),
        in_file(
            "a margin in per cent",
            THROTTLE.format("rate: 100/s, margin: »2%"),
            'routes.api.throttle.margin: "2%" is no duration, write auto, or 20ms (say)',
        ),
        in_file(
            "a margin that takes most of the rate",
            THROTTLE.format("rate: [6000/m, 100/s], margin: »1s"),
            "routes.api.throttle.margin: warning: 1s is not below the time of 100/s, so less than "
            "half of it can be used, write auto, or 20ms (say)",
        ),
        in_file(
            "a margin beyond any network",
            THROTTLE.format("rate: 100/s, margin: »2m"),
            "routes.api.throttle.margin: 2m is longer than 1m, write 1m or less",
        ),
        in_file(
            "no call in flight",
            THROTTLE.format("concurrency: »0"),
            "routes.api.throttle.concurrency: 0 would let nothing through, write none for no limit",
        ),
        in_file(
            "fewer than none",
            THROTTLE.format("concurrency: »-1"),
            "routes.api.throttle.concurrency: -1 is out of range, write a number from 1 to 1000000",
        ),
        in_file(
            "any number in flight",
            THROTTLE.format("concurrency: »unlimited"),
            'routes.api.throttle.concurrency: "unlimited" is no whole number, write 20 (say) or '
            "none for no limit",
        ),
        in_file(
            "a wait without a unit",
            THROTTLE.format("max_wait: »5"),
            "routes.api.throttle.max_wait: 5 has no unit, write 5s",
        ),
        in_file(
            "fewer than nobody",
            THROTTLE.format("max_queue: »-1"),
            "routes.api.throttle.max_queue: -1 is out of range, write a number from 0 to 1000000",
        ),
        in_file(
            "a pause in short",
            THROTTLE.format("pause: »30s"),
            "routes.api.throttle.pause: keys belong here, write {max: 30s}",
        ),
        in_file(
            "a pause of no time",
            THROTTLE.format("pause: {max: »0s}"),
            "routes.api.throttle.pause.max: 0s would obey no pause, write pause: false if that is "
            "meant",
        ),
        in_file(
            "a throttle that does nothing",
            ROUTE.format("»throttle: {pause: false}"),
            "routes.api.throttle: warning: it limits nothing and obeys no pause, write rate: 100/s "
            "(say) in it, or throttle: false",
        ),
        in_file(
            "a token bucket",
            THROTTLE.format("rate: 100/s, algorithm: »token_bucket"),
            'routes.api.throttle.algorithm: "token_bucket" is none of gcra, window; write gcra, '
            "and burst for the size of the bucket",
        ),
        in_file(
            "a leaky one",
            THROTTLE.format("rate: 100/s, algorithm: »leaky_bucket"),
            'routes.api.throttle.algorithm: "leaky_bucket" is none of gcra, window; write gcra',
        ),
        in_file(
            "a sliding window",
            THROTTLE.format("rate: 100/s, algorithm: »sliding_window"),
            'routes.api.throttle.algorithm: "sliding_window" is none of gcra, window; write window',
        ),
        in_file(
            "a fixed window",
            THROTTLE.format("rate: 100/s, algorithm: »fixed_window"),
            'routes.api.throttle.algorithm: "fixed_window" is none of gcra, window; write window '
            "(at most so many in any such time)",
        ),
        in_file(
            "a burst of a window",
            THROTTLE.format("rate: 100/s, algorithm: window, »burst: 20"),
            "routes.api.throttle.burst: a window has no burst (the whole rate may go out at once), "
            "remove it or write algorithm: gcra",
        ),
        in_file(
            "a window that all instances would share",
            REDIS + THROTTLE.format("rate: 100/s, algorithm: »window"),
            "routes.api.throttle.algorithm: a window is counted in one process and cannot be "
            "shared over redis, write algorithm: gcra, or store: memory",
        ),
        in_file(
            "the same for an upstream",
            REDIS + SHARED.format("rate: 100/s, algorithm: »window"),
            "upstreams.api.throttle.algorithm: a window is counted in one process and cannot be "
            "shared over redis, write algorithm: gcra, or store: memory",
        ),
        in_file(
            "a window that remembers too much",
            LAYERS.format("throttle: {rate: »200000/h}", "", "throttle: {algorithm: window}"),
            "defaults.throttle.rate: a window remembers every call of routes.api, at most 100000, "
            "write algorithm: gcra for more",
        ),
        in_file(
            "another word for open",
            THROTTLE.format("on_store_error: »fail_open"),
            'routes.api.throttle.on_store_error: "fail_open" is none of local, open, closed; write '
            "open",
        ),
    ],
)
def test_values(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        in_file(
            "a whole section",
            ROUTE.format("»rateLimit: {}"),
            "routes.api.rateLimit: unknown key, write throttle",
        ),
        in_file(
            "a number of calls",
            ROUTE.format("»rate_limit: 5"),
            "routes.api.rate_limit: unknown key, write throttle: 5/s (or 5/m, 5/h)",
        ),
        in_file(
            "a number within",
            THROTTLE.format("»limit: 100"),
            "routes.api.throttle.limit: unknown key, write rate: 100/s (or 100/m, 100/h)",
        ),
        in_file(
            "Traefik's rate",
            THROTTLE.format("»average: 100"),
            "routes.api.throttle.average: unknown key, write rate: 100/s (or 100/m, 100/h)",
        ),
        in_file(
            "a number that nobody can read",
            THROTTLE.format("»requests_per_second: '${N}'"),
            "routes.api.throttle.requests_per_second: unknown key, write rate: 100/s (or 100/m, "
            "100/h)",
        ),
        in_file(
            "a rate beside the throttle",
            ROUTE.format("»rps: 50"),
            "routes.api.rps: unknown key, write throttle: {rate: 50/s} (or 50/m, 50/h)",
        ),
        in_file(
            "Caddy's rate",
            SHARED.format("»events: 50"),
            "upstreams.api.throttle.events: unknown key, write rate: 50/s (or 50/m, 50/h)",
        ),
        in_file(
            "the size of a bucket",
            THROTTLE.format("rate: 100/s, »max_tokens: 20"),
            "routes.api.throttle.max_tokens: unknown key, write burst: 20",
        ),
        in_file(
            "the size of a bucket that nobody can read",
            ROUTE.format("»max_tokens: '${N}'"),
            "routes.api.max_tokens: unknown key, write throttle: {burst: …}",
        ),
        in_file(
            "HAProxy's connections",
            ROUTE.format("»maxconn: 20"),
            "routes.api.maxconn: unknown key, write throttle: {concurrency: 20}",
        ),
        in_file(
            "calls in flight",
            THROTTLE.format("»max_in_flight: {}"),
            "routes.api.throttle.max_in_flight: unknown key, write concurrency",
        ),
        in_file(
            "Traefik's calls in flight",
            ROUTE.format("»inFlightReq: {amount: 20}"),
            "routes.api.inFlightReq: unknown key, write throttle: {concurrency: …}",
        ),
        in_file(
            "a word where neither it nor ours can stand",
            TOP.format("»maxconn: 20"),
            "maxconn: unknown key, it is called concurrency and belongs to throttle, write it "
            "there",
        ),
        in_file(
            "a key of the throttle beside it",
            ROUTE.format("»burst: 20"),
            "routes.api.burst: unknown key, it belongs to throttle, write it there",
        ),
        in_file(
            "a key that certificates have too",
            ROUTE.format("»key: client_ip"),
            "routes.api.key: unknown key, it belongs to throttle, write it there",
        ),
        in_file(
            "a key that the store has too",
            UPSTREAM.format("{urls: ['http://a.example'], »timeout: 5s}"),
            "upstreams.api.timeout: unknown key, it belongs to a route, a policy or defaults, "
            "write it there",
        ),
    ],
)
def test_words_from_elsewhere(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ROUTE.format("throttle: 10/s"), id="ten a second"),
        pytest.param(ROUTE.format("throttle: 600/m"), id="as many in a minute"),
        pytest.param(ROUTE.format("throttle: 1/100ms"), id="one at a time, as fast"),
        pytest.param(THROTTLE.format("rate: 5000/h, burst: 1"), id="one by one, on purpose"),
        pytest.param(THROTTLE.format("rate: 5000/h"), id="a slow rate"),
        pytest.param(
            THROTTLE.format("rate: [10/s, 5000/h]"), id="one rate for the peaks of another"
        ),
        pytest.param(THROTTLE.format("rate: 5/s, algorithm: window"), id="a window of a few calls"),
        pytest.param(
            LAYERS.format("throttle: {burst: 5}", "", "throttle: 5/m"),
            id="a burst in the defaults for a rate in the route",
        ),
        pytest.param(
            TWO.format(
                "", "throttle: {burst: 5, max_keys: 9}", "throttle: {rate: 5/m, key: client_ip}", ""
            ),
            id="what one route has a use for",
        ),
        pytest.param(
            LAYERS.format("throttle: {rate: 100/s, burst: 5}", "", "throttle: {rate: none}"),
            id="a burst of a rate that the route took away",
        ),
        pytest.param(
            LAYERS.format("throttle: {rate: 50/s, burst: 5}", "", "throttle: {algorithm: window}"),
            id="a burst of a rate that the route counts in another way",
        ),
        pytest.param(THROTTLE.format("max_wait: none"), id="any wait"),
        pytest.param(
            ROUTE.format("timeout: none\n    throttle: {max_wait: 1h}"), id="a wait without end"
        ),
        pytest.param(
            ROUTE.format("timeout: 2s\n    throttle: true"),
            id="the built-in wait, which nobody wrote",
        ),
        pytest.param(
            TWO.format("max_wait: 1m", "", "timeout: 2m", ""),
            id="a wait at an upstream that fits into one route",
        ),
        pytest.param(
            TWO.format("max_wait: 1m", "", "timeout: none", ""),
            id="a wait at an upstream, and a route without an end",
        ),
        pytest.param(
            LAYERS.format("throttle: {pause: false}", "", "throttle: true"),
            id="pauses are left out for all",
        ),
        pytest.param(
            LAYERS.format("throttle: {burst: 5, max_wait: 1h}", "", "throttle: false"),
            id="whatever is wrong with what is off",
        ),
        pytest.param(
            THROTTLE.format("rate: 100/s, on_store_error: closed"),
            id="a store that is memory today may be redis tomorrow",
        ),
        pytest.param(
            SQLITE + THROTTLE.format("rate: 100/s, algorithm: window"),
            id="a window beside a file that shares keys, not limits",
        ),
        pytest.param(
            REDIS
            + LAYERS.format("throttle: {algorithm: window}", "", "throttle: {concurrency: 5}"),
            id="a window of nothing is shared with nobody",
        ),
    ],
)
def test_nothing_to_say(lines: Callable[..., list[str]], text: str) -> None:
    assert lines(text) == []


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param("rate: 100, burst: 5", id="the rate"),
        pytest.param("rates: 100/s, burst: 5", id="the rate by a name that is nearly right"),
        pytest.param("rate: 5/h, burst: x", id="the burst"),
        pytest.param("rate: 5/h, max_tokens: 5", id="the burst by another name"),
        pytest.param("rate: 5/h, algorithm: fixed_window", id="the algorithm"),
        pytest.param("key: ip, max_keys: 5", id="the key"),
        pytest.param("key: header: X-A, max_keys: 5", id="the key, which YAML could not read"),
        pytest.param("pause: false, concurrency: 0", id="the concurrency"),
    ],
)
def test_what_cannot_be_read_is_all_that_is_said(
    lines: Callable[..., list[str]], broken: str
) -> None:
    (found,) = lines(THROTTLE.format(broken))
    assert any(word in found for word in FIRST_HAND)


def test_a_wait_is_not_compared_with_a_timeout_that_cannot_be_read(
    lines: Callable[..., list[str]],
) -> None:
    (found,) = lines(TWO.format("max_wait: 1m", "", "timeout: 9", "throttle: {max_wait: 2s}"))
    assert "no unit" in found


def test_a_slip_that_yaml_cannot_read_hides_no_other(lines: Callable[..., list[str]]) -> None:
    found = lines(
        ROUTE.format(
            "timeout: 5\n    throttle:\n      key: header: X-A  # by tenant\n      rate: 5"
        )
    )
    assert [line.partition(" ")[0] for line in found] == [
        "holdfast.yaml:6:14:",
        "holdfast.yaml:8:18:",
        "holdfast.yaml:9:13:",
    ]


def test_values_from_outside_are_not_shown(only_line: Callable[..., None]) -> None:
    only_line(
        ROUTE.format("timeout: ${T}\n    throttle: {max_wait: »'${W}'}"),
        "routes.api.throttle.max_wait: warning: a wait of the value of ${W} cannot fit into "
        "timeout the value of ${T}, write a shorter one or a longer timeout",
        {"W": "71s", "T": "61s"},
    )
    only_line(
        THROTTLE.format("rate: »'${RATE}'"),
        "routes.api.throttle.rate: the value of ${RATE} is no rate in range, write 100/s (say)",
        {"RATE": "71"},
    )
