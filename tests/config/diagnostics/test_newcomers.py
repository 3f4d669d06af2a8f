"""What people write who come from Envoy, nginx, Traefik or docker-compose, and what they read.

» marks the position to be reported. No message may lead its reader further astray.
"""

from collections.abc import Callable

import pytest

from tests.config.templates import MATCH, ROUTE, TOP, UPSTREAM, in_file

URLS = "{{urls: ['http://a.example'], {}}}"


def route(identifier: str, written: str, expected: str) -> object:
    return in_file(identifier, ROUTE.format(written), f"routes.api.{expected}")


def key(written: str, instead: str) -> object:
    """A key of a route that another product has, and what to write for it."""
    name = written.partition(":")[0]
    return route(name, f"»{written}", f"{name}: unknown key, {instead}")


def upstream(written: str, expected: str) -> object:
    text = UPSTREAM.format(URLS.format(written))
    return in_file(written, text, f"upstreams.api.{expected}")


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        # Envoy
        key("retry_policy: {num_retries: 3}", "write retry"),
        route(
            "per_try_timeout",
            "retry: {»per_try_timeout: 2s}",
            "retry.per_try_timeout: unknown key, write attempt_timeout",
        ),
        key("request_headers_to_add: [a]", "write headers: {request: {set: …}}"),
        key(
            "outlier_detection: {}",
            "it is called breaker and belongs to an upstream, write it there",
        ),
        upstream("»lb_policy: ROUND_ROBIN", "lb_policy: unknown key, write balance"),
        upstream("»circuit_breakers: {}", "circuit_breakers: unknown key, write breaker"),
        upstream("»connectTimeout: 5s", "connectTimeout: unknown key, write connect_timeout"),
        in_file(
            "admin as Envoy has it",
            TOP.format("admin: {»address: {socket_address: {port_value: 9901}}}"),
            "admin: a mapping stands where a single value belongs, write 127.0.0.1:9901 (say)",
        ),
        in_file(
            "a prefix of the path",
            MATCH.format("{»prefix: /api}"),
            "routes.api.match.prefix: unknown key, write path: /api/**",
        ),
        # nginx
        key("proxy_pass: http://x", "write upstream"),
        key("proxy_read_timeout: 30s", "write timeout"),
        key(
            "proxy_connect_timeout: 5s",
            "it is called connect_timeout and belongs to an upstream, write it there",
        ),
        key("proxy_next_upstream: error timeout", "write retry: {on: …}"),
        key("proxy_set_header: {X-A: b}", "write headers: {request: {set: …}}"),
        key("add_header: {X-A: b}", "write headers: {response: {set: …}}"),
        key("client_max_body_size: 10m", "write max_body"),
        key("limit_req: {burst: 5}", "write throttle"),
        key("limit_conn: 5", "write throttle: {concurrency: 5}"),
        key("location: /api", "write match: /api/**"),
        in_file(
            "an exact location",
            MATCH.format("»= /api"),
            'routes.api.match: "= /api" is no path, write /api',
        ),
        in_file(
            "a location by its prefix",
            MATCH.format("»^~ /api/"),
            'routes.api.match: "^~ /api/" is no path, write /api/**',
        ),
        in_file(
            "an upstream on a unix socket",
            UPSTREAM.format("»unix:/run/app.sock"),
            "upstreams.api: an upstream on a unix socket is not supported, write "
            "http://127.0.0.1:9200 (say)",
        ),
        in_file(
            "an address in brackets",
            TOP.format("listen: »[::]:80"),
            'an address in brackets needs quotes, write "[::]:80"',
        ),
        in_file(
            "the path of a socket",
            TOP.format("listen: »/run/a.sock"),
            'listen: "/run/a.sock" is a path, write unix:/run/a.sock',
        ),
        in_file(
            "a file of nginx",
            "»upstream payments {\n  server 127.0.0.1:9000;\n}\n",
            "the file has to begin with keys, write upstreams: and routes: (say)",
        ),
        # Traefik
        in_file(
            "a rule of two conditions",
            MATCH.format("»Host(`x.example`) && PathPrefix(`/api`)"),
            'routes.api.match: "Host(`x.example`) && PathPrefix(`/api`)" is no path, write {host: '
            "x.example, path: /api/**}",
        ),
        in_file(
            "a rule of a host",
            MATCH.format("»Host(`x.example`)"),
            'routes.api.match: "Host(`x.example`)" is no path, write {host: x.example}',
        ),
        key("rateLimit: {average: 100}", "write throttle"),
        key(
            "circuitBreaker: {}", "it is called breaker and belongs to an upstream, write it there"
        ),
        route(
            "average",
            "throttle: {»average: 100}",
            "throttle.average: unknown key, write rate: 100/s (or 100/m, 100/h)",
        ),
        in_file(
            "entry points",
            TOP.format("»entryPoints: {web: {address: ':80'}}"),
            "entryPoints: unknown key, write listen",
        ),
        # docker-compose, Kubernetes, and everybody
        in_file(
            "a port in a listener",
            TOP.format("listen: {»port: 8080}"),
            "listen.port: unknown key, write address: 127.0.0.1:8080, or 0.0.0.0:8080 to be "
            "reachable from outside",
        ),
        in_file(
            "ports as compose maps them",
            TOP.format("listen: »'8080:8080'"),
            'listen: "8080" is no address, write 127.0.0.1:8080 (say)',
        ),
        in_file(
            "ssl",
            TOP.format("listen: {address: '127.0.0.1:1', »ssl: {}}"),
            "listen.ssl: unknown key, write tls",
        ),
        in_file(
            "tls of what",
            TOP.format("»tls: {cert: a, key: b}"),
            "tls: unknown key, it belongs to listen, an upstream or store, write it there",
        ),
        in_file("redis", TOP.format("»redis: {host: x}"), "redis: unknown key, write store"),
        in_file(
            "a store that is none",
            TOP.format("store: »postgres://db/keys"),
            'store: "postgres" is no store, write memory, sqlite:PATH, redis:// or rediss://',
        ),
        in_file(
            "upstreams in a list",
            "upstreams:\n  »- name: payments\n    url: http://127.0.0.1:9000\n"
            "routes: [{match: /**, upstream: payments}]\n",
            "upstreams: names with values belong here, write them as a mapping: {payments: …}",
        ),
        route(
            "retries",
            "»retries: 3",
            "retries: unknown key, write retry: {attempts: 4} (attempts counts the first call)",
        ),
        route(
            "a kind of back-off",
            "retry: {backoff: »exponential}",
            "retry.backoff: keys belong here, write {strategy: exponential}",
        ),
        route(
            "a header in short",
            "idempotency: »Idempotency-Key",
            "idempotency: keys belong here, write {header: Idempotency-Key}",
        ),
        route(
            "milliseconds",
            "timeout: »30000",
            "timeout: 30000 has no unit, write 30000ms (or 30000s)",
        ),
        route(
            "no limit",
            "timeout: »unlimited",
            'timeout: "unlimited" is no duration, write 30s (say) or none for no limit',
        ),
        route(
            "the path of websockets",
            "upgrades: [»ws]",
            'upgrades[0]: "ws" cannot be tunnelled, write websocket',
        ),
        route(
            "changes of headers without a direction",
            "headers: {»set: {X-A: b}}",
            "headers.set: unknown key, write headers: {request: {set: …}}, or response for the "
            "way back",
        ),
        route(
            "additions of headers",
            "headers: {»add: {X-A: b}}",
            "headers.add: unknown key, write headers: {request: {set: …}}, or response for the "
            "way back",
        ),
        route(
            "the path prefix to strip",
            "»strip_path: /v1",
            "strip_path: unknown key, write strip_prefix",
        ),
    ],
)
def test_line(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


@pytest.mark.parametrize(
    ("marked", "spaces", "line"),
    [
        pytest.param(ROUTE.format("timeout: 5s\n      »retry: true"), 4, 6, id="beside a value"),
        pytest.param(
            ROUTE.format("retry:\n      attempts: 3\n        »unsafe: never"), 6, 7, id="nested"
        ),
        pytest.param("routes:\n- match: /**\n    »upstream: a\n", 2, 2, id="in a list"),
        pytest.param("ready: true\n\n# a comment\n  »access_log: all\n", 0, 1, id="at the top"),
    ],
)
def test_a_key_that_is_indented_too_far(
    only_line: Callable[..., None], marked: str, spaces: int, line: int
) -> None:
    only_line(
        marked,
        f"this line is indented further than line {line}, whose key has a value already, begin it "
        f"with {spaces} spaces to stand beside that key",
    )


def test_another_colon_too_many_is_not_taken_for_indentation(
    only_line: Callable[..., None],
) -> None:
    only_line(
        ROUTE.format("timeout: 5s»: 3"), 'a ":" is not expected here, put the value in quotes'
    )
