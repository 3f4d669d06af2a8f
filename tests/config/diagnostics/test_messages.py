"""Messages for common errors. » marks the position to be reported."""

from collections.abc import Callable

import pytest

from proxy.config import ConfigError, Loaded
from tests.config.templates import MATCH, ROUTE, TOP, UPSTREAM, in_file


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        # Units and values
        in_file(
            "1 a duration without a unit",
            ROUTE.format("timeout: »30"),
            "routes.api.timeout: 30 has no unit, write 30s",
        ),
        in_file(
            "4 a unit of size that is not ours",
            ROUTE.format("max_body: »10MB"),
            'routes.api.max_body: "MB" is no unit of size, write 10MiB',
        ),
        in_file(
            "5 no time at all",
            ROUTE.format("timeout: »0s"),
            "routes.api.timeout: 0s leaves no time for any request, write none for no limit",
        ),
        in_file(
            "5 no time at all, and no unit either",
            ROUTE.format("timeout: »0"),
            "routes.api.timeout: 0 leaves no time for any request, write none for no limit",
        ),
        in_file(
            "13 a unit of time that is not ours",
            ROUTE.format("idle_timeout: »2w"),
            'routes.api.idle_timeout: "w" is no unit of time, write 14d',
        ),
        # Matching
        in_file(
            "10 a regular expression with alternatives",
            MATCH.format("»^/v1/(charges|refunds)"),
            "routes.api.match: regular expressions are not supported, write one route for each "
            "path: /v1/charges/** and /v1/refunds/**",
        ),
        in_file(
            "11 a path without its slash",
            MATCH.format("»v1/charges"),
            'routes.api.match: a path begins with "/", write /v1/charges',
        ),
        in_file(
            "12 one segment where all is probably meant",
            MATCH.format("»/v1/*"),
            "routes.api.match: warning: * is one segment, so /v1/a/b gets 404, write /v1/** for "
            "everything below /v1",
        ),
        in_file(
            "37 a method in lower case",
            MATCH.format("{path: /x, methods: [»post]}"),
            "routes.api.match.methods[0]: methods are upper case, write POST",
        ),
        # Names and order
        in_file(
            "18 an upstream that is not there",
            MATCH.format("/**").replace("upstream: payments", "upstream: »payment"),
            'routes.api.upstream: no upstream is called "payment", did you mean "payments"?',
        ),
        in_file(
            "18 a policy that is not there",
            ROUTE.format("policy: [»patient]"),
            'routes.api.policy[0]: no policy is called "patient", write it in policies',
        ),
        in_file(
            "18 a URL in place of a name",
            MATCH.format("/**").replace("upstream: payments", "upstream: »http://u:pw@a.example"),
            "routes.api.upstream: a URL stands where a name belongs, write the URL in upstreams "
            "and its name here",
        ),
        in_file(
            "19 a URL without a scheme",
            UPSTREAM.format("»api.example.com:8080"),
            'upstreams.api: "api.example.com:8080" has no scheme, write '
            "http://api.example.com:8080 or https://api.example.com:8080",
        ),
        in_file(
            "21 a route that is never reached",
            TOP.format("") + "  - »name: charges\n    match: /v1/**\n    upstream: payments\n",
            "routes.charges: warning: never reached, routes.api (line 4) matches first, move it "
            "above line 4",
        ),
        in_file(
            "23 a policy that nobody uses",
            TOP.format("policies:\n  »patient: {timeout: 60s}"),
            "policies.patient: warning: no route uses it, write policy: patient in a route or "
            "remove it",
        ),
        in_file(
            "23 an upstream that nobody uses",
            ROUTE.format("").replace('9000"', '9000", »old: "http://127.0.0.1:9001"'),
            "upstreams.old: warning: no route uses it, write upstream: old in a route or remove it",
        ),
        in_file(
            "24 a mapping that is there twice",
            ROUTE.format("headers: {}\n    »headers: {request: {}}"),
            "routes.api.headers: already set at line 6, write both in one mapping",
        ),
        in_file(
            "24 a value that is there twice",
            ROUTE.format("timeout: 1s\n    »timeout: 2s"),
            "routes.api.timeout: already set at line 6, remove one of them",
        ),
        in_file(
            "24 a header that is there twice, in other letters",
            ROUTE.format("headers: {request: {set: {X-A: 1, »x-a: 2}}}"),
            "routes.api.headers.request.set.x-a: already set at line 6, remove one of them",
        ),
        in_file(
            "25 two routes of one name",
            MATCH.format("/a") + "  - match: /b\n    name: »api\n    upstream: payments\n",
            "routes.api.name: already the name of the route at line 3, write another (metrics and "
            "stored keys go by it)",
        ),
        in_file(
            "25 two routes that would be called by one path",
            MATCH.format("GET /x").replace("name: api\n    ", "")
            + "  - match: »POST /x\n    upstream: payments\n",
            "routes[1]: this route would be called by its path, as the one at line 3 is, write a "
            "name",
        ),
        in_file(
            "25 a path that is too long for a name",
            MATCH.format("»/" + "x" * 200).replace("name: api\n    ", ""),
            "routes[0]: the path is too long to be a name, write name: hooks (say)",
        ),
        # Secrets and addresses
        in_file(
            "32 an admin listener that everybody can reach",
            TOP.format("admin: »0.0.0.0:9901"),
            "admin: 0.0.0.0 is reachable from outside and there is no admin_token, write "
            "admin_token: ${HOLDFAST_ADMIN_TOKEN} or admin: 127.0.0.1:9901",
        ),
        in_file(
            "33 a variable that is not set",
            ROUTE.format("headers: {request: {set: {Authorization: »'Bearer ${STRIPE_KEY}'}}}"),
            "routes.api.headers.request.set.Authorization: STRIPE_KEY is not set in the "
            "environment, set it or write ${STRIPE_KEY:-default}",
        ),
        in_file(
            "34 a file that is not there",
            ROUTE.format("headers: {request: {set: {Authorization: »'${file:/run/none/key}'}}}"),
            "routes.api.headers.request.set.Authorization: cannot read /run/none/key (no such "
            "file), mount it or correct the path",
        ),
        in_file(
            "35 a header without its direction",
            ROUTE.format("headers: {»Authorization: Bearer sk-live-abc}"),
            "routes.api.headers.Authorization: unknown key, write headers: {request: {set: "
            "{Authorization: …}}}",
        ),
        in_file(
            "38 a token in the file",
            TOP.format("admin_token: »hunter2"),
            "admin_token: warning: a secret stands in the file, write ${HOLDFAST_ADMIN_TOKEN} or "
            "${file:PATH}",
        ),
        in_file(
            "38 a credential in a header",
            ROUTE.format("headers: {request: {set: {X-Api-Key: »sk-live-abc}}}"),
            "routes.api.headers.request.set.X-Api-Key: warning: a secret stands in the file, write "
            "${X_API_KEY} or ${file:PATH}",
        ),
        in_file(
            "39 a port without an address",
            TOP.format("listen: »8080"),
            "listen: 8080 has no address, write 127.0.0.1:8080, or 0.0.0.0:8080 to be reachable "
            "from outside",
        ),
        in_file(
            "42 a tab as indentation",
            "routes:\n»\t- name: api\n",
            "YAML cannot be indented with a tab, write two spaces",
        ),
        in_file(
            "42 a tab after a value",
            "limits:\n  connections: 1\n»\tkeepalive: 1s\n",
            "YAML cannot be indented with a tab, write two spaces",
        ),
        # Words from elsewhere, slips and keys in the wrong place
        in_file(
            "20 url for urls, which is not called missing as well",
            UPSTREAM.format("{»url: 'https://a.example/api'}"),
            "upstreams.api.url: unknown key, write urls: [https://a.example/api]",
        ),
        in_file(
            "clusters for upstreams",
            TOP.format("»clusters: {}"),
            "clusters: unknown key, write upstreams",
        ),
        in_file(
            "a prefix beside the match",
            ROUTE.format("»prefix: /v1"),
            "routes.api.prefix: unknown key, write match: /v1/**",
        ),
        in_file(
            "a prefix in the match",
            MATCH.format("{»path_prefix: /v1/}"),
            "routes.api.match.path_prefix: unknown key, write path: /v1/**",
        ),
        in_file(
            "stripPrefix",
            ROUTE.format("»stripPrefix: /v1"),
            "routes.api.stripPrefix: unknown key, write strip_prefix",
        ),
        in_file(
            "another product's word for the processes",
            TOP.format("»worker_processes: 2"),
            "worker_processes: unknown key, write workers",
        ),
        in_file(
            "two letters swapped",
            ROUTE.format("»tiemout: 3s"),
            "routes.api.tiemout: unknown key, did you mean timeout?",
        ),
        in_file(
            "a key of another section",
            ROUTE.format("»connect_timeout: 3s"),
            "routes.api.connect_timeout: unknown key, it belongs to an upstream, write it there",
        ),
        in_file(
            "a word that nobody knows",
            TOP.format("limits: {»colour: red}"),
            "limits.colour: unknown key, write one of header_bytes, header_timeout, body_rate, "
            "keepalive, connections, replay_memory",
        ),
        in_file(
            "a template engine's true for on",
            ROUTE.format("»true: [503]"),
            "routes.api.on: unknown key, it belongs to retry, write it there",
        ),
        in_file(
            "a merge key",
            ROUTE.format("»<<: {timeout: 3s}"),
            "routes.api: << is not supported, write the keys out, or once in policies and policy: "
            "NAME in each route",
        ),
        # Shapes
        in_file(
            "a list where a value belongs",
            ROUTE.format("timeout: »[30s]"),
            "routes.api.timeout: a list stands where a single value belongs, write 30s (say)",
        ),
        in_file(
            "a value where a list belongs",
            MATCH.format("{path: /x, methods: »POST}"),
            "routes.api.match.methods: this has to be a list, write [POST]",
        ),
        in_file(
            "a value where keys belong",
            TOP.format("limits: »5"),
            "limits: keys belong here, write some of header_bytes, header_timeout, body_rate, "
            "keepalive, connections, replay_memory",
        ),
        in_file(
            "a list where names belong",
            TOP.format("policies: »[]"),
            "policies: names with values belong here, write them as a mapping: {payments: …}",
        ),
        in_file(
            "a key without a value",
            ROUTE.format("timeout:» "),
            "routes.api.timeout: there is no value, write 30s (say)",
        ),
        in_file(
            "a match without a value, which must not match everything",
            MATCH.format("»~"),
            "routes.api.match: there is no value, write one or remove it",
        ),
        in_file(
            "a list without an item",
            MATCH.format("{methods: »[]}"),
            "routes.api.match.methods: the list is empty, write an item or remove it",
        ),
        in_file(
            "a route without a match",
            TOP.format("") + "  - »name: b\n    upstream: payments\n",
            "routes.b: match is missing, write match: /v1/** (say)",
        ),
        in_file(
            "a number in quotes",
            TOP.format("limits: {connections: »'5'}"),
            'limits.connections: "5" is text, write 5 without quotes',
        ),
        in_file(
            "a number out of range",
            TOP.format("limits: {connections: »0}"),
            "limits.connections: 0 is out of range, write a number from 1 to 1000000",
        ),
        in_file(
            "neither true nor false",
            UPSTREAM.format("{urls: ['https://a.example'], tls: {verify: »on}}"),
            'upstreams.api.tls.verify: "on" is neither true nor false, write true',
        ),
        in_file(
            "a required key that is nearly right, and not called missing as well",
            MATCH.format("/**").replace("match:", "»mach:"),
            "routes.api.mach: unknown key, did you mean match?",
        ),
        in_file(
            "a word that is nearly right",
            TOP.format("access_log: »notible"),
            'access_log: "notible" is none of notable, all, none; did you mean notable?',
        ),
        in_file(
            "a word that is not right at all",
            TOP.format("access_log: »false"),
            "access_log: false is none of notable, all, none; write one of them",
        ),
        in_file(
            "a name that metrics could not bear",
            TOP.format("policies: {»'a\"b': {}}"),
            'policies.a"b: "a"b" is no name, write ASCII letters, digits and signs (no quotes, no '
            "_ at the beginning)",
        ),
        in_file(
            "no routes",
            "»listen: 127.0.0.1:8080\n",
            "routes: warning: there are none, so every request gets 404, write one with match and "
            "upstream",
        ),
    ],
)
def test_line(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


def test_all_faults_at_once_and_those_that_depend_on_others_later(
    lines: Callable[..., list[str]],
) -> None:
    text = """\
listen: 8080
upstreams:
  payments: api.payments.example:443
policies:
  patient: {timeout: 60}
routes:
  - name: all
    match: /**
    upstream: payments
  - name: charges
    match: {path: /v1/charges/**, methods: [post]}
    upstream: payment
    policy: patient
    retry: {max_retries: 3, attempt_timeout: 60s}
"""
    assert "\n".join(lines(text)) == (
        "holdfast.yaml:1:9: listen: 8080 has no address, write 127.0.0.1:8080, or 0.0.0.0:8080 to "
        "be reachable from outside\n"
        'holdfast.yaml:3:13: upstreams.payments: "api.payments.example:443" has no scheme, write '
        "http://api.payments.example:443 or https://api.payments.example:443\n"
        "holdfast.yaml:5:22: policies.patient.timeout: 60 has no unit, write 60s\n"
        "holdfast.yaml:10:5: routes.charges: warning: never reached, routes.all (line 7) matches "
        "first, move it above line 7\n"
        "holdfast.yaml:11:45: routes.charges.match.methods[0]: methods are upper case, write POST\n"
        'holdfast.yaml:12:15: routes.charges.upstream: no upstream is called "payment", did you '
        'mean "payments"?\n'
        "holdfast.yaml:14:13: routes.charges.retry.max_retries: unknown key, write attempts: 4 "
        "(attempts counts the first call)"
    )


def test_the_summary_counts(loaded: Callable[..., Loaded]) -> None:
    unknown = "; not checked: whether upstreams answer and addresses are free"
    good = loaded(TOP.format(""))
    assert good.summary == f"holdfast.yaml: ok (1 route, 1 upstream){unknown}"
    warned = loaded(TOP.format("policies: {a: {}, b: {}}"))
    assert warned.summary == f"holdfast.yaml: ok (1 route, 1 upstream), 2 warnings{unknown}"
    with pytest.raises(ConfigError) as caught:
        loaded(TOP.format("listen: 80\npolicies: {a: {}}"))
    assert caught.value.report.summary() == "holdfast.yaml: 1 fault, 1 warning"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            TOP.format("store: redis://127.0.0.1"),
            "upstreams and the store answer and addresses are free",
        ),
        (
            TOP.format("store: sqlite:keys.db"),
            "upstreams answer, addresses are free and the store can be written",
        ),
        (
            ROUTE.format("dead_letter: true"),
            "upstreams answer, addresses are free and state_dir can be written",
        ),
        (
            "store: sqlite:keys.db\n" + ROUTE.format("dead_letter: true"),
            "upstreams answer, addresses are free and the store and state_dir can be written",
        ),
        ("routes: []", "addresses are free"),
    ],
)
def test_the_summary_says_what_was_not_checked(
    loaded: Callable[..., Loaded], text: str, expected: str
) -> None:
    assert loaded(text).summary.partition("; ")[2] == f"not checked: whether {expected}"
