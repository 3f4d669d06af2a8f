"""Messages for wrong values of idempotency. » marks the position to be reported."""

import re
from collections.abc import Callable

import pytest

from tests.config.templates import LAYERS, MATCH, ROUTE, TOP, UPSTREAM, in_file

IDEMPOTENCY = ROUTE.replace("{}", "idempotency: {{{}}}")
REDIS = "store: redis://redis\n"
SQLITE = "store: sqlite:keys.db\n"


def honouring(file: str) -> str:
    """Return *file* with an upstream that honours keys."""
    short = re.compile(r"""(payments|a): ["']?(http://[^"'\n}]+)["']?""")
    return short.sub(r'\1: {urls: ["\2"], honours_key: true}', file)


TWO = """\
upstreams: {{a: "http://127.0.0.1:9000"}}
defaults: {{{}}}
routes:
  - {{name: one, match: /one, upstream: a, {}}}
  - {{name: two, match: /two, upstream: a, {}}}
"""
PATH = "routes.api.idempotency"
ONLY_HEADERS = "only headers tell callers apart, write header:X-Tenant (say)"
METHODS = "POST, PATCH, PUT, DELETE"
FIRST_HAND = ("unknown key", "is no ", "no unit", "none of", "neither", "no value", "needs no key")
"""Parts of messages about a single value."""


def value(identifier: str, key: str, written: str, expected: str) -> object:
    """Return a row: the value of a key of the section, and the message it gets."""
    return in_file(
        identifier, IDEMPOTENCY.format(f"{key}: »{written}"), f"{PATH}.{key}: {expected}"
    )


def scope(identifier: str, written: str, expected: str) -> object:
    """Return a row: an item of scope, and the message it gets."""
    return in_file(
        identifier, IDEMPOTENCY.format(f"scope: [»{written}]"), f"{PATH}.scope[0]: {expected}"
    )


def kept(identifier: str, written: str, expected: str) -> object:
    """Return a row: an item of keep, and the message it gets."""
    return in_file(
        identifier, IDEMPOTENCY.format(f"keep: [2xx, »{written}]"), f"{PATH}.keep[1]: {expected}"
    )


def method(identifier: str, written: str, expected: str) -> object:
    """Return a row: an item of methods, and the message it gets."""
    return in_file(
        identifier, IDEMPOTENCY.format(f"methods: [»{written}]"), f"{PATH}.methods[0]: {expected}"
    )


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        scope("a header's name alone", "X-Tenant", '"X-Tenant" is no scope, write header:X-Tenant'),
        scope(
            "a usual header",
            "Authorization",
            '"Authorization" is no scope, write header:Authorization',
        ),
        scope(
            "the same in small letters",
            "authorization",
            '"authorization" is no scope, write header:authorization',
        ),
        scope("capitals", "HEADER:X-A", '"HEADER:X-A" is no scope, write header:X-A'),
        scope("the address", "client_ip", f'"client_ip" is no scope, {ONLY_HEADERS}'),
        scope(
            "the address in other words", "client-ip", f'"client-ip" is no scope, {ONLY_HEADERS}'
        ),
        scope("a query parameter", "query:tenant", f'"query:tenant" is no scope, {ONLY_HEADERS}'),
        scope("a cookie", "cookie:session", f'"cookie:session" is no scope, {ONLY_HEADERS}'),
        scope("a word", "tenant", f'"tenant" is no scope, {ONLY_HEADERS}'),
        scope("no name", "'header:'", '"header:" names none, write header:X-Tenant (say)'),
        scope(
            "no name of a header",
            "header:Bad Name",
            '"Bad Name" is no name of a header, write header:Authorization (say)',
        ),
        scope(
            "in quotes, with a space",
            "'header: X-A'",
            '"header: X-A" has a space in it, write header:X-A',
        ),
        scope(
            "two keys to YAML, as an item",
            "header: X-A",
            '"header: X-A" is two keys to YAML, write header:X-A (no space)',
        ),
        in_file(
            "two keys to YAML, as an item on a line",
            ROUTE.format("idempotency:\n      scope:\n        - »header: X-A"),
            f'{PATH}.scope[0]: "header: X-A" is two keys to YAML, write header:X-A (no space)',
        ),
        in_file(
            "two keys to YAML, alone",
            ROUTE.format("idempotency:\n      scope: header»: X-A"),
            f'{PATH}.scope: "header: X-A" is two keys to YAML, write header:X-A (no space)',
        ),
        in_file(
            "two keys to YAML, within braces",
            IDEMPOTENCY.format("scope: header»: X-A, ttl: 1h"),
            f'{PATH}.scope: "header: X-A" is two keys to YAML, write header:X-A (no space)',
        ),
        value(
            "none",
            "scope",
            "none",
            '"none" is no scope, write scope: [] if all callers are to share their keys',
        ),
        in_file(
            "a key without a value, which must not let callers share",
            ROUTE.format("idempotency:\n      scope:»"),
            f"{PATH}.scope: there is no value, write [] if all callers are to share their keys",
        ),
        in_file(
            "nobody can show who it is",
            IDEMPOTENCY.format("scope: [], scope_required: »true"),
            f"{PATH}.scope_required: no caller could pass, since scope names no header, write "
            "scope: [header:Authorization] (say) or scope_required: false",
        ),
        in_file(
            "nobody of one route can",
            TWO.format("idempotency: {scope_required: »true}", "", "idempotency: {scope: []}"),
            "defaults.idempotency.scope_required: no caller of routes.two could pass, since scope "
            "names no header, write scope: [header:Authorization] (say) or scope_required: false",
        ),
    ],
)
def test_scopes(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        value("13 a week", "ttl", "2w", '"w" is no unit of time, write 14d'),
        value("a time without a unit", "ttl", "24", "24 has no unit, write 24s"),
        value(
            "no time",
            "ttl",
            "0s",
            "0s keeps no result, write 24h (say), or idempotency: false if that is meant",
        ),
        value("for ever", "ttl", "none", '"none" is no duration, write 30s (say)'),
        value("for years", "ttl", "400d", "400d is longer than a year, write 365d or less"),
        value(
            "a short lease",
            "lease",
            "500ms",
            "500ms is too short to be renewed in time, write 1s or more",
        ),
        value("no lease", "lease", "0", "0 is too short to be renewed in time, write 1s or more"),
        value(
            "no header",
            "header",
            "'a b'",
            '"a b" is no name of a header, write Idempotency-Key (say)',
        ),
        value(
            "a header with a meaning",
            "header",
            "Connection",
            "Connection has a meaning of its own, write Idempotency-Key (say)",
        ),
        value("yes", "required", "yes", '"yes" is neither true nor false, write true'),
        value(
            "a word for waiting",
            "in_flight",
            "block",
            '"block" is none of wait, reject; write wait',
        ),
        value(
            "a status for rejecting",
            "in_flight",
            "409",
            "409 is none of wait, reject; write reject",
        ),
        value(
            "nearly", "in_flight", "rejct", '"rejct" is none of wait, reject; did you mean reject?'
        ),
        value(
            "a status that means something else",
            "mismatch_status",
            "400",
            "400 is neither 422 nor 409, write one of them",
        ),
        value(
            "a status in quotes",
            "mismatch_status",
            "'409'",
            '"409" is text, write 409 without quotes',
        ),
        value(
            "a word for a status",
            "mismatch_status",
            "conflict",
            '"conflict" is neither 422 nor 409, write one of them',
        ),
        value(
            "another word for hold",
            "on_ambiguous",
            "lock",
            '"lock" is none of release, hold; write hold',
        ),
        value("a size without a unit", "max_response", "1000", "1000 has no unit, write 1000B"),
        value(
            "a word of the throttle",
            "on_store_error",
            "local",
            '"local" is none of closed, open; write closed (503), or open to run without a record '
            "of it",
        ),
        value(
            "another word for open",
            "on_store_error",
            "fail_open",
            '"fail_open" is none of closed, open; write open',
        ),
        method("in small letters", "post", "methods are upper case, write POST"),
        method(
            "a method that changes nothing",
            "GET",
            f"GET changes nothing and needs no key, remove it ({METHODS} can have one)",
        ),
        method(
            "another of them",
            "OPTIONS",
            f"OPTIONS changes nothing and needs no key, remove it ({METHODS} can have one)",
        ),
        method("all of them", "'*'", f"* is no method, write {METHODS}"),
        method("another one", "LOCK", f"LOCK cannot have a key, write some of {METHODS}"),
        method(
            "one that is never sent on", "TRACE", "TRACE is always answered with 405, remove it"
        ),
        value("no list", "methods", "POST", "this has to be a list, write [POST]"),
        value("no method", "methods", "[]", "the list is empty, write an item or remove it"),
        kept("a class in capitals", "5XX", '"5XX" is no status, write 5xx'),
        kept("a range", "400-499", '"400-499" is no status, write 4xx'),
        kept("everything", "all", '"all" is no status, write 2xx, 3xx, 4xx, 5xx'),
        kept("a word", "success", '"success" is no status, write 2xx'),
        kept(
            "another word", "errors", '"errors" is no status, write 2xx, 3xx, 4xx, 5xx or a number'
        ),
        kept(
            "what is only the beginning",
            "1xx",
            "1xx is no final status, write one from 200 to 599, or a class: 2xx",
        ),
        kept(
            "no status",
            "700",
            "700 is no final status, write one from 200 to 599, or a class: 2xx",
        ),
        kept("the built-in ones", "default", "default has no meaning here, write 2xx, 3xx, 4xx"),
        value("nothing is kept", "keep", "[]", "the list is empty, write an item or remove it"),
        in_file(
            "a list in short",
            ROUTE.format("idempotency: »24h"),
            f"{PATH}: keys belong here, write some of header, methods, required, ttl, scope, "
            "scope_required, in_flight, mismatch_status, keep, on_ambiguous, lease, max_response, "
            "on_store_error",
        ),
        in_file(
            "no value",
            ROUTE.format("idempotency:»"),
            f"{PATH}: there is no value, write true to switch it on or false for off",
        ),
    ],
)
def test_values(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        in_file(
            "41 a route without such requests",
            MATCH.format("{path: /**, methods: [GET]}") + "    »idempotency: true\n",
            f"{PATH}: warning: the route matches GET only and idempotency acts on POST and PATCH, "
            "remove it or widen match.methods",
        ),
        in_file(
            "41 several methods, and others",
            MATCH.format("{methods: [GET, HEAD, POST]}")
            + "    »idempotency: {methods: [PUT, PATCH, DELETE]}\n",
            f"{PATH}: warning: the route matches GET, HEAD and POST only and idempotency acts on "
            "PUT, PATCH and DELETE, remove it or widen match.methods",
        ),
        in_file(
            "no success is kept",
            IDEMPOTENCY.format("»keep: [500, 503]"),
            f"{PATH}.keep: warning: this list replaces the built-in one, so no success is kept and "
            "a duplicate runs again, write keep: [2xx, 3xx, 4xx, 500, 503] to add 500, 503",
        ),
        in_file(
            "nor is it beside what is built in",
            IDEMPOTENCY.format("»keep: [4xx]"),
            f"{PATH}.keep: warning: this list replaces the built-in one, so no success is kept and "
            "a duplicate runs again, write keep: [2xx, 3xx, 4xx] to keep these too",
        ),
        in_file(
            "held in memory",
            honouring(IDEMPOTENCY.format("on_ambiguous: »hold")),
            f"{PATH}.on_ambiguous: warning: memory forgets at a restart what is held, write store: "
            "sqlite:PATH or store: redis://… at the top of the file",
        ),
        in_file(
            "held in memory by several routes, said once",
            honouring(TWO.format("idempotency: {on_ambiguous: »hold}", "", "")),
            "defaults.idempotency.on_ambiguous: warning: memory forgets at a restart what is held, "
            "write store: sqlite:PATH or store: redis://… at the top of the file",
        ),
        in_file(
            "held by each 503 of a load balancer",
            SQLITE + IDEMPOTENCY.format("on_ambiguous: »hold"),
            f"{PATH}.on_ambiguous: warning: each 503 holds a key, also that of a load balancer "
            "with no server, write honours_key: true in upstreams.payments if it runs a request "
            "with the same key once, or refused: [421, 425, 429, 503] if its 503 says that it did "
            "nothing",
        ),
        in_file(
            "a response beyond all memory",
            IDEMPOTENCY.format("max_response: »1GiB"),
            f"{PATH}.max_response: warning: 1GiB is above store.bytes 64MiB, so a response that "
            "large is never kept, write a larger bytes or a smaller max_response",
        ),
        in_file(
            "a key that is known for less time than its request may take",
            IDEMPOTENCY.format("ttl: »20s"),
            f"{PATH}.ttl: warning: 20s is below timeout 30s, so a request that takes longer loses "
            "its key while it runs, write a longer ttl or a shorter timeout",
        ),
        in_file(
            "a ttl of all routes below the timeout of one",
            TWO.format("idempotency: {ttl: »1m}", "timeout: 2m", ""),
            "defaults.idempotency.ttl: warning: 1m is below timeout 2m of routes.one, so a request "
            "that takes longer loses its key while it runs, write a longer ttl or a shorter "
            "timeout",
        ),
        in_file(
            "a timeout above the usual ttl",
            ROUTE.format("idempotency: true\n    timeout: »25h"),
            "routes.api.timeout: warning: 25h is above idempotency.ttl 24h, so a request that "
            "takes longer loses its key while it runs, write a longer ttl or a shorter timeout",
        ),
        in_file(
            "too little memory for a response",
            "store: {url: memory, bytes: »64KiB}\n" + ROUTE.format("idempotency: true"),
            "store.bytes: warning: 64KiB is below idempotency.max_response 1MiB, so a response "
            "that large is never kept, write a larger bytes or a smaller max_response",
        ),
        in_file(
            "the key is removed",
            ROUTE.format(
                "idempotency: true\n    headers: {request: {remove: [Cookie, »idempotency-key]}}"
            ),
            "routes.api.headers.request.remove[1]: warning: idempotency-key carries the caller's "
            "key, and the upstream would not get it, remove it here or write another "
            "idempotency.header",
        ),
        in_file(
            "the key is replaced",
            ROUTE.format(
                "idempotency: {header: X-Key}\n    headers: {request: {set: {»x-key: same}}}"
            ),
            "routes.api.headers.request.set.x-key: warning: x-key carries the caller's key, and "
            "the upstream would get another, remove it here or write another idempotency.header",
        ),
        in_file(
            "the key of one route is removed for all",
            TWO.format(
                "headers: {request: {remove: [»X-Key]}}", "", "idempotency: {header: X-Key}"
            ),
            "defaults.headers.request.remove[0]: warning: X-Key carries the caller's key of "
            "routes.two, and the upstream would not get it, remove it here or write another "
            "idempotency.header",
        ),
    ],
)
def test_values_that_do_not_go_together(
    only_line: Callable[..., None], marked: str, expected: str
) -> None:
    only_line(marked, expected)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        in_file(
            "30 a store of its own",
            IDEMPOTENCY.format("»store: redis://:hunter2@redis"),
            f"{PATH}.store: unknown key, write store: redis://… at the top of the file",
        ),
        in_file(
            "30 a file of its own",
            IDEMPOTENCY.format("»store: sqlite:keys.db"),
            f"{PATH}.store: unknown key, write store: sqlite:keys.db at the top of the file",
        ),
        in_file(
            "30 a store of the throttle's own",
            ROUTE.format("throttle: {rate: 100/s, »store: memory}"),
            "routes.api.throttle.store: unknown key, write store: memory at the top of the file",
        ),
        in_file(
            "30 a store of the route's own",
            ROUTE.format("»store: {url: redis://redis}"),
            "routes.api.store: unknown key, write store: redis://… at the top of the file",
        ),
        in_file(
            "a whole section",
            ROUTE.format("»idempotent: true"),
            "routes.api.idempotent: unknown key, write idempotency",
        ),
        in_file(
            "the same by another word",
            ROUTE.format("»dedupe: {}"),
            "routes.api.dedupe: unknown key, write idempotency",
        ),
        in_file(
            "an upstream has none",
            UPSTREAM.format("{urls: ['http://a.example'], »idempotency: true}"),
            "upstreams.api.idempotency: unknown key, it belongs to a route, a policy or defaults, "
            "write it there",
        ),
        in_file(
            "the header",
            IDEMPOTENCY.format("»key_header: X-Key"),
            f"{PATH}.key_header: unknown key, write header",
        ),
        in_file(
            "the header in short",
            IDEMPOTENCY.format("»key: X-Key"),
            f"{PATH}.key: unknown key, write header",
        ),
        in_file(
            "the header beside the section",
            ROUTE.format("»header_name: X-Key"),
            "routes.api.header_name: unknown key, write idempotency: {header: …}",
        ),
        in_file(
            "how long",
            IDEMPOTENCY.format("»retention: 24h"),
            f"{PATH}.retention: unknown key, write ttl",
        ),
        in_file(
            "how long, in another word",
            IDEMPOTENCY.format("»expiry: 24h"),
            f"{PATH}.expiry: unknown key, write ttl",
        ),
        in_file(
            "how long, in yet another",
            ROUTE.format("»expires: 24h"),
            "routes.api.expires: unknown key, write idempotency: {ttl: …}",
        ),
        in_file(
            "a lock",
            IDEMPOTENCY.format("»lock_timeout: 30s"),
            f"{PATH}.lock_timeout: unknown key, write lease",
        ),
        in_file(
            "a lock, in other words",
            IDEMPOTENCY.format("»lock_ttl: 30s"),
            f"{PATH}.lock_ttl: unknown key, write lease",
        ),
        in_file(
            "what is under way",
            IDEMPOTENCY.format("»in_progress: wait"),
            f"{PATH}.in_progress: unknown key, write in_flight",
        ),
        in_file(
            "the largest response",
            IDEMPOTENCY.format("»max_size: 1MiB"),
            f"{PATH}.max_size: unknown key, write max_response",
        ),
        in_file(
            "the largest body",
            ROUTE.format("»max_size: 1MiB"),
            "routes.api.max_size: unknown key, write max_body",
        ),
        in_file(
            "what is kept",
            IDEMPOTENCY.format("»status_codes: [200]"),
            f"{PATH}.status_codes: unknown key, write keep",
        ),
        in_file(
            "a key of the section beside it",
            ROUTE.format("»mismatch_status: 409"),
            "routes.api.mismatch_status: unknown key, it belongs to idempotency, write it there",
        ),
        in_file(
            "methods of the route, which are not those of the section",
            ROUTE.format("»methods: [POST]"),
            "routes.api.methods: unknown key, write match: {methods: …}",
        ),
        in_file(
            "another word for them",
            ROUTE.format("»verbs: [POST]"),
            "routes.api.verbs: unknown key, write match: {methods: …}",
        ),
        in_file(
            "a bound of the store",
            TOP.format("»entries: 5"),
            "entries: unknown key, it belongs to store, write it there",
        ),
    ],
)
def test_words_from_elsewhere(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(IDEMPOTENCY.format("scope: []"), id="no scope, on purpose"),
        pytest.param(
            IDEMPOTENCY.format("scope: [], scope_required: false"), id="and nobody needs one"
        ),
        pytest.param(
            MATCH.format("POST /**") + "    idempotency: true\n", id="a route of such requests"
        ),
        pytest.param(
            MATCH.format("{methods: [GET, POST]}") + "    idempotency: true\n",
            id="a route of such requests and others",
        ),
        pytest.param(
            "defaults: {idempotency: true}\n" + MATCH.format("GET /**"),
            id="for all routes, and one has no use for it",
        ),
        pytest.param(
            honouring(REDIS + IDEMPOTENCY.format("on_ambiguous: hold, max_response: 1GiB")),
            id="redis remembers, and bounds itself",
        ),
        pytest.param(
            honouring(SQLITE + IDEMPOTENCY.format("on_ambiguous: hold")).replace(
                "honours_key: true", "refused: [429, 503]"
            ),
            id="a 503 that says that nothing was done holds nothing",
        ),
        pytest.param(
            SQLITE + IDEMPOTENCY.format("on_ambiguous: hold, keep: [2xx, 503]"),
            id="nor does one that is kept",
        ),
        pytest.param(
            LAYERS.format(
                "idempotency: {on_ambiguous: hold, scope: [], keep: [500]}",
                "",
                "idempotency: false",
            ),
            id="whatever is wrong with what is off",
        ),
        pytest.param(
            "store: {url: memory, bytes: 64KiB}\n" + ROUTE.format("timeout: 5s"),
            id="little memory, and no keys",
        ),
        pytest.param(
            ROUTE.format("headers: {request: {remove: [Idempotency-Key]}}"),
            id="a key that nobody looks at may be removed",
        ),
        pytest.param(
            ROUTE.format(
                "idempotency: {header: X-Key}\n"
                "    headers: {request: {remove: [Idempotency-Key]}, response: {remove: [X-Key]}}"
            ),
            id="and so may another one, or one on the way back",
        ),
        pytest.param(
            LAYERS.format(
                "headers: {request: {remove: [Idempotency-Key]}}",
                "",
                "idempotency: true\n    headers: {request: {remove: []}}",
            ),
            id="a removal that the route took away",
        ),
    ],
)
def test_nothing_to_say(lines: Callable[..., list[str]], text: str) -> None:
    assert lines(text) == []


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param("scope: [client_ip], scope_required: true", id="the scope"),
        pytest.param("scopes: [header:X-A], scope_required: true", id="the scope, nearly right"),
        pytest.param("scope: [], scope_required: yes", id="whether it is required"),
        pytest.param("keep: [500, fine]", id="what is kept"),
        pytest.param("on_ambiguous: lock", id="what is held"),
        pytest.param("max_response: 1GB", id="the size"),
        pytest.param("header: 'a b'", id="the header"),
    ],
)
def test_what_cannot_be_read_is_all_that_is_said(
    lines: Callable[..., list[str]], broken: str
) -> None:
    (found,) = lines(IDEMPOTENCY.format(broken))
    assert any(word in found for word in FIRST_HAND)


@pytest.mark.parametrize(
    ("match", "keys"),
    [
        pytest.param("{methods: [get]}", "true", id="the methods of the route"),
        pytest.param("{methods: [GET]}", "{methods: [GET, POST]}", id="those of the section"),
    ],
)
def test_methods_are_not_compared_with_what_cannot_be_read(
    lines: Callable[..., list[str]], match: str, keys: str
) -> None:
    (found,) = lines(MATCH.format(match) + f"    idempotency: {keys}\n")
    assert "upper case" in found or "needs no key" in found


def test_nothing_is_said_about_a_store_that_cannot_be_read(
    lines: Callable[..., list[str]],
) -> None:
    held = honouring(IDEMPOTENCY.format("on_ambiguous: hold, max_response: 1GiB"))
    (found,) = lines("store: redis\n" + held)
    assert "is no store" in found


def test_values_from_outside_are_not_shown(only_line: Callable[..., None]) -> None:
    only_line(
        IDEMPOTENCY.format("max_response: »'${SIZE}'"),
        f"{PATH}.max_response: warning: the value of ${{SIZE}} is above store.bytes 64MiB, so a "
        "response that large is never kept, write a larger bytes or a smaller max_response",
        {"SIZE": "71GiB"},
    )
    only_line(
        IDEMPOTENCY.format("scope: [»'header:${NAME}']"),
        f"{PATH}.scope[0]: the value of ${{NAME}} is no scope, write header:Authorization (say)",
        {"NAME": "hunter 2"},
    )
    only_line(
        IDEMPOTENCY.format("mismatch_status: »'${N}'"),
        f"{PATH}.mismatch_status: the value of ${{N}} is no status for a mismatch, write 422 (say)",
        {"N": "71"},
    )
