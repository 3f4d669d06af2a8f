"""``match``: the ways to write it, and what cannot be written. » marks the position."""

from collections.abc import Callable

import pytest

from proxy.config import Loaded
from proxy.policy.settings import Match

FILE = """\
upstreams: {{a: "http://127.0.0.1:1"}}
routes:
  - name: api
    upstream: a
    match: {}
  - {{name: rest, match: /**, upstream: a}}
"""
ANY = ("/**",)


@pytest.mark.parametrize(
    ("written", "match"),
    [
        ("/v1/**", Match(paths=("/v1/**",))),
        ("POST /v1/charges", Match(paths=("/v1/charges",), methods=("POST",))),
        ("{path: /a/*/b}", Match(paths=("/a/*/b",))),
        ("{path: [/a, /b/]}", Match(paths=("/a", "/b/"))),
        ("{path: /caf%C3%A9/~x;v=1/@me}", Match(paths=("/caf%C3%A9/~x;v=1/@me",))),
        ("{methods: [GET, M-SEARCH]}", Match(paths=ANY, methods=("GET", "M-SEARCH"))),
        ("{host: Api.Example.com.}", Match(paths=ANY, hosts=("api.example.com",))),
        ("{host: ['*.a.example', '[::1]']}", Match(paths=ANY, hosts=("*.a.example", "[::1]"))),
        ("{headers: {X-Tenant: acme-*}}", Match(paths=ANY, headers=(("x-tenant", "acme-*"),))),
        ("{headers: {X-Version: 2}}", Match(paths=ANY, headers=(("x-version", "2"),))),
    ],
)
def test_ways_to_write_it(loaded: Callable[..., Loaded], written: str, match: Match) -> None:
    assert loaded(FILE.format(written)).settings.routes[0].match == match


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("»/v1/**/x", 'match: ** can only end a path, write * for one segment in "/v1/**/x"'),
        (
            "»/v1/a*",
            'match: * stands for a whole segment, write * in place of "a*", or list the paths',
        ),
        (
            "»/v1/.*",
            (
                "match: regular expressions are not supported, write a path such as /v1/** (* is "
                "one segment, a final /** the rest)"
            ),
        ),
        (
            "»/users/{id}",
            'match: "/users/{id}" has a named segment, write /users/* (* is any segment)',
        ),
        ("»PathPrefix(`/v1`)", 'match: "PathPrefix(`/v1`)" is no path, write /v1/**'),
        ("»/a/../b", 'match: "." and ".." cannot stand in a path, write it without them'),
        ("»/a/%2e%2E/b", 'match: "." and ".." cannot stand in a path, write it without them'),
        (
            "»/a/%zz",
            "match: the path has characters that must be escaped, write %20 for a space (say)",
        ),
        ("»GET POST /x", 'match: "GET POST /x" is no path, write /v1/** or POST /v1/charges (say)'),
        ("»get /x", "match: methods are upper case, write GET"),
        ("»[/a, /b]", "match: a list stands where a path belongs, write match: {path: [/a, /b]}"),
        ("»CONNECT /x", "match: CONNECT is always answered with 405, remove it"),
        ("{methods: [»trace]}", "match.methods[0]: TRACE is always answered with 405, remove it"),
        (
            "{methods: [»'*']}",
            "match.methods[0]: * is no method, remove methods to match every one",
        ),
        ("{methods: [»'A B']}", 'match.methods[0]: "A B" is no method, write POST (say)'),
        ("{path: [/a, »b]}", 'match.path[1]: a path begins with "/", write /b'),
        ("{host: »'*'}", "match.host: * is no host, remove host to match every one"),
        (
            "{host: »'a.example:80'}",
            "match.host: a host is matched without its port, write a.example",
        ),
        ("{host: »'http://a'}", 'match.host: "http://a" is a URL, write its host only'),
        (
            "{host: »'a.*.example'}",
            'match.host: * can only begin a host, as in *.example.com; "a.*.example" cannot be',
        ),
        ("{host: »'a b'}", 'match.host: "a b" is no host name, write api.example.com (say)'),
        (
            "{headers: {»'X Tenant': a}}",
            'match.headers.X Tenant: "X Tenant" is no name of a header, write X-Tenant (say)',
        ),
        (
            "{headers: {X-Tenant: »[a]}}",
            (
                "match.headers.X-Tenant: a list stands where a single value belongs, write "
                '"text" (say)'
            ),
        ),
    ],
)
def test_what_cannot_be_written(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(FILE.format(marked), f"routes.api.{expected}")


def test_no_hint_about_stars_where_another_route_takes_the_rest(
    lines: Callable[..., list[str]],
) -> None:
    assert lines(FILE.format("/v1/*")) == []


def test_a_star_for_everything(only_line: Callable[..., None]) -> None:
    only_line(
        "upstreams: {a: 'http://127.0.0.1:1'}\nroutes: [{match: »/*, upstream: a}]\n",
        "routes[0].match: warning: * is one segment, so /a/b gets 404, write /** for everything",
    )


@pytest.mark.parametrize(
    ("earlier", "later", "is_reached"),
    [
        ("/v1/**", "/v1/a", False),
        ("/v1/a", "/v1/**", True),
        ("GET /v1/**", "/v1/a", True),
        ("{path: /**, methods: [post]}", "/v1/a", True),
        ("{path: /**, host: 'a:1'}", "/v1/a", True),
        ("/**", "{path: nonsense}", False),
    ],
)
def test_order_is_judged_by_what_can_be_read(
    lines: Callable[..., list[str]], earlier: str, later: str, *, is_reached: bool
) -> None:
    text = (
        "upstreams: {a: 'http://127.0.0.1:1'}\n"
        f"routes: [{{name: a, match: {earlier}, upstream: a}}, "
        f"{{name: b, match: {later}, upstream: a}}]\n"
    )
    assert any("never reached" in line for line in lines(text)) is not is_reached


@pytest.mark.parametrize(
    ("pattern", "prefix", "fits"),
    [
        ("/v1/**", "/v1", True),
        ("/v1/**", "/v1/a", True),
        ("/**", "/v1", True),
        ("/*/a", "/v1", True),
        ("/v1", "/v1", True),
        ("/v1", "/v1/a", False),
        ("/v10/**", "/v1", False),
    ],
)
def test_a_prefix_that_no_path_begins_with(
    lines: Callable[..., list[str]], pattern: str, prefix: str, *, fits: bool
) -> None:
    text = FILE.format(f"{pattern}\n    strip_prefix: {prefix}")
    assert any("nothing is stripped" in line for line in lines(text)) is not fits


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("»v1", 'a path begins with "/", write /v1'),
        ("»/", "/ strips nothing, write /v1 (say) or remove it"),
        ("»/v1/", '"/v1/" ends in a slash, write /v1'),
        ("»/v1/**", '"/v1/**" cannot hold *, write /v1'),
        ("»/v1/..", '"." and ".." cannot stand in a path, write it without them'),
    ],
)
def test_a_prefix_is_whole_segments(
    only_line: Callable[..., None], marked: str, expected: str
) -> None:
    only_line(
        FILE.format(f"/v1/**\n    strip_prefix: {marked}"), f"routes.api.strip_prefix: {expected}"
    )


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("»h2c", '"h2c" would hide requests from the proxy, remove it'),
        ("»TLS/1.2", '"TLS/1.2" would hide requests from the proxy, remove it'),
        ("»spdy", '"spdy" cannot be tunnelled, write websocket'),
        ("»'web socket'", '"web socket" cannot be tunnelled, write websocket'),
    ],
)
def test_protocols_that_cannot_be_switched_to(
    only_line: Callable[..., None], marked: str, expected: str
) -> None:
    only_line(
        FILE.format(f"/v1/**\n    upgrades: [{marked}]"), f"routes.api.upgrades[0]: {expected}"
    )
