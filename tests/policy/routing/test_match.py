from collections.abc import Callable
from timeit import repeat

import pytest
from hypothesis import given, strategies as st

from proxy.policy.routing.match import RouteTable, covers, mismatch
from proxy.policy.settings import Match

Headers = tuple[tuple[bytes, bytes], ...]
Request = tuple[str, str, str, Headers]
ACME = ((b"Accept", b"*/*"), (b"X-Tenant", b"acme"))


@pytest.mark.parametrize(
    ("pattern", "path", "taken"),
    [
        pytest.param("/v1", "/v1", True, id="the very path"),
        pytest.param("/v1", "/v1/", False, id="a final slash makes another path"),
        pytest.param("/v1", "/V1", False, id="case matters"),
        pytest.param("/v1", "/%761", False, id="nothing is decoded"),
        pytest.param("/v1", "/v1x", False, id="a longer segment"),
        pytest.param("/", "/", True, id="the root"),
        pytest.param("/", "//", False, id="an empty segment is a segment"),
        pytest.param("/caf\udce9", "/caf\udce9", True, id="a byte that is no text"),
        pytest.param("/**", "/", True, id="everything, the root"),
        pytest.param("/**", "//a//", True, id="everything, empty segments"),
        pytest.param("/v1/**", "/v1", True, id="the rest may be nothing"),
        pytest.param("/v1/**", "/v1/", True, id="the rest may be a slash"),
        pytest.param("/v1/**", "/v1/a/b/c", True, id="the rest may be long"),
        pytest.param("/v1/**", "/v1x/a", False, id="the rest begins with a segment"),
        pytest.param("/v1/**", "/", False, id="the rest has a beginning"),
        pytest.param("/v1/*", "/v1/a", True, id="one segment"),
        pytest.param("/v1/*", "/v1/", False, id="one segment is not an empty one"),
        pytest.param("/v1/*", "/v1", False, id="one segment is not none"),
        pytest.param("/v1/*", "/v1/a/b", False, id="one segment is not two"),
        pytest.param("/v1/*", "/v1/a/", False, id="one segment, then a slash"),
        pytest.param("/*/a/*", "/x/a/y", True, id="two single segments"),
        pytest.param("/*/a/*", "/x/b/y", False, id="two single segments around another"),
        pytest.param("/*/**", "/a", True, id="at least one segment"),
        pytest.param("/*/**", "/", False, id="at least one segment is not none"),
        pytest.param("/*/**", "//a", False, id="at least one segment is not an empty one"),
        pytest.param("/v1/a*", "/v1/ab", False, id="no wildcard within a segment"),
    ],
)
def test_paths(pattern: str, path: str, *, taken: bool) -> None:
    match = Match(paths=(pattern,))
    assert (mismatch(match, "GET", "", path, ()) is None) is taken
    assert RouteTable((match,)).find("GET", "", path, ()) == (0 if taken else -1)


@pytest.mark.parametrize(
    ("match", "headers", "reason"),
    [
        pytest.param(Match(), (), None, id="no condition"),
        pytest.param(Match(paths=()), (), None, id="no path either"),
        pytest.param(Match(paths=("/a", "/b/*")), (), "the path is not /a or /b/*", id="path"),
        pytest.param(Match(paths=("/a", "/v1/**")), (), None, id="one path of two"),
        pytest.param(Match(methods=("POST",)), (), "the method is not POST", id="method"),
        pytest.param(Match(methods=("HEAD",)), (), "the method is not HEAD", id="GET is not HEAD"),
        pytest.param(
            Match(methods=("POST", "PUT")), (), "the method is not POST or PUT", id="two methods"
        ),
        pytest.param(Match(methods=("GET", "HEAD")), (), None, id="one method of two"),
        pytest.param(Match(hosts=("b.example",)), (), "the host is not b.example", id="host"),
        pytest.param(Match(hosts=("a.b", "*.c")), (), "the host is not a.b or *.c", id="two hosts"),
        pytest.param(Match(hosts=("a.b.example",)), (), None, id="host by name"),
        pytest.param(Match(hosts=("*.b.example",)), (), None, id="host one level below"),
        pytest.param(Match(hosts=("*.example",)), (), None, id="host two levels below"),
        pytest.param(
            Match(hosts=("*.a.b.example",)),
            (),
            "the host is not *.a.b.example",
            id="host at the top",
        ),
        pytest.param(
            Match(hosts=("*.xample",)), (), "the host is not *.xample", id="host with half a label"
        ),
        pytest.param(
            Match(headers=(("x-tenant", "acme"),)),
            (),
            "there is no header x-tenant",
            id="no header",
        ),
        pytest.param(
            Match(headers=(("x-tenant", "acm"),)),
            ACME,
            "the header x-tenant is not acm",
            id="another value, which stays untold",
        ),
        pytest.param(Match(headers=(("x-tenant", "acme"),)), ACME, None, id="this value"),
        pytest.param(Match(headers=(("x-tenant", "ac*"),)), ACME, None, id="this beginning"),
        pytest.param(Match(headers=(("x-tenant", "*"),)), ACME, None, id="any value"),
        pytest.param(
            Match(headers=(("x-tenant", "b"),)),
            (*ACME, (b"x-tenant", b"b")),
            None,
            id="the second line of that name",
        ),
        pytest.param(
            Match(headers=(("x-tenant", "ac*"), ("accept", "text/html"))),
            ACME,
            "the header accept is not text/html",
            id="every header counts",
        ),
        pytest.param(
            Match(headers=(("x-tenant", "acme"), ("accept", "text/html"))),
            ACME,
            "the header accept is not text/html",
            id="every whole value counts",
        ),
        pytest.param(
            Match(headers=(("accept", "*/*"), ("x-tenant", "b*"))),
            ACME,
            "the header x-tenant is not b*",
            id="every beginning counts",
        ),
        pytest.param(
            Match(headers=(("x-tenant", "ad*"),)),
            ACME,
            "the header x-tenant is not ad*",
            id="another beginning",
        ),
        pytest.param(
            Match(headers=(("x-tenant", "acme*"), ("accept", "*"))), ACME, None, id="both begin so"
        ),
        pytest.param(
            Match(headers=(("x-city", "K\u00f6ln"),)),
            ((b"X-City", b"K\xf6ln"),),
            None,
            id="bytes beyond ASCII are Latin-1",
        ),
        pytest.param(
            Match(headers=(("x-city", "\u20ac"),)),
            ((b"X-City", b"?"),),
            "the header x-city is not \u20ac",
            id="a value that Latin-1 cannot hold",
        ),
    ],
)
def test_mismatch(match: Match, headers: Headers, reason: str | None) -> None:
    request = ("GET", "a.b.example", "/v1/x", headers)
    assert mismatch(match, *request) == reason
    assert RouteTable((match,)).find(*request) == (0 if reason is None else -1)


@pytest.mark.parametrize(
    ("matches", "expected"),
    [
        pytest.param((), -1, id="no routes"),
        pytest.param((Match(), Match()), 0, id="the first of equals"),
        pytest.param((Match(("/v1/**",)), Match(("/v1/a",))), 0, id="wide before narrow"),
        pytest.param((Match(("/v1/a",)), Match(("/v1/**",))), 0, id="narrow before wide"),
        pytest.param((Match(("/v2/**",)), Match(("/v1/*",))), 1, id="the only one"),
        pytest.param((Match(("/*/b",)), Match(("/v1/*",))), 1, id="the one whose rest fits"),
        pytest.param((Match(("/*/a",)), Match(("/v1/a",))), 0, id="a wildcard that comes first"),
        pytest.param((Match(("/v1/*/x",)), Match(("/*/a",))), 1, id="past a longer one"),
        pytest.param(
            (Match(("/*/*",), ("POST",)), Match(("/v1/a/**",))), 1, id="a name behind a wildcard"
        ),
        pytest.param(
            (Match(("/*/x/**",)), Match(("/v1/*/**",)), Match()), 1, id="a wildcard behind a name"
        ),
        pytest.param((Match(("/v1/a",), ("POST",)), Match()), 1, id="past another method"),
        pytest.param((Match(hosts=("*.c",)), Match(hosts=("b.c",))), 0, id="a wide host first"),
        pytest.param((Match(hosts=("c",)), Match()), 1, id="past another host"),
        pytest.param((Match(), Match(hosts=("b.c",))), 0, id="any host before this one"),
        pytest.param(
            (Match(headers=(("x", "2"),)), Match(headers=(("x", "1"),))),
            1,
            id="by a header's value",
        ),
        pytest.param(
            (Match(headers=(("x", "*"),)), Match(headers=(("x", "1"),))), 0, id="any value first"
        ),
    ],
)
def test_first_match_wins(matches: tuple[Match, ...], expected: int) -> None:
    assert RouteTable(matches).find("GET", "b.c", "/v1/a", ((b"X", b"1"),)) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/v1/a/x", 0, id="named all the way"),
        pytest.param("/v1/b/y", 1, id="a wildcard in the middle"),
        pytest.param("/v2/a/x", 2, id="a wildcard first"),
        pytest.param("/v1//y", -1, id="an empty segment is none, where both were followed"),
        pytest.param("/v2//x", -1, id="nor here"),
        pytest.param("/v1/a/z", -1, id="no pattern goes on like that"),
    ],
)
def test_where_names_and_wildcards_meet_at_several_depths(path: str, expected: int) -> None:
    table = RouteTable((Match(("/v1/a/x", "/v1/a/x/**")), Match(("/v1/*/y",)), Match(("/*/*/x",))))
    assert table.find("GET", "", path, ()) == expected


def test_a_file_of_only_conditional_routes_may_match_nothing() -> None:
    table = RouteTable((Match(hosts=("a",)), Match(headers=(("x", "1"),))))
    assert table.find("GET", "", "/", ()) == -1


# Few words, so that patterns and requests often meet.
segments = st.sampled_from(["", "a", "b", "A"])
methods = st.sampled_from(["GET", "HEAD", "POST"])
names = st.sampled_from(["x-a", "x-b"])
values = st.sampled_from(["", "1", "12", "*", "1*"])


def paths(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(parts, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


patterns = st.just("/**") | st.builds(
    str.__add__, paths(segments | st.just("*")), st.sampled_from(["", "/**"])
)
hosts = st.lists(st.sampled_from(["a", "b"]), max_size=3).map(".".join)
host_patterns = hosts.filter(bool).flatmap(lambda host: st.sampled_from([host, f"*.{host}"]))


def some(items: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(items, max_size=3).map(tuple)


def conditions() -> st.SearchStrategy[Match]:
    return st.builds(
        Match,
        paths=st.lists(patterns, min_size=1, max_size=2).map(tuple),
        methods=some(methods),
        hosts=some(host_patterns),
        headers=st.lists(st.tuples(names, values), max_size=2).map(tuple),
    )


def lines() -> st.SearchStrategy[tuple[bytes, bytes]]:
    return st.tuples(
        st.sampled_from([b"X-A", b"x-a", b"X-B", b"Other"]),
        values.map(lambda value: value.encode()),
    )


requests = st.tuples(methods, hosts, paths(segments), st.lists(lines(), max_size=3).map(tuple))


@given(st.lists(conditions() | st.builds(Match, st.tuples(patterns)), max_size=8), requests)
def test_find_is_the_first_without_a_mismatch(matches: list[Match], request: Request) -> None:
    taken = [index for index, match in enumerate(matches) if mismatch(match, *request) is None]
    assert RouteTable(tuple(matches)).find(*request) == (taken[0] if taken else -1)


@given(st.lists(patterns, max_size=12), paths(segments))
def test_find_is_right_among_many_paths(many: list[str], path: str) -> None:
    matches = tuple(Match((pattern,), ("GET",)) for pattern in many)
    for method, expected in (("GET", matches), ("POST", ())):
        taken = [
            i for i, match in enumerate(expected) if mismatch(match, "GET", "", path, ()) is None
        ]
        assert RouteTable(matches).find(method, "", path, ()) == (taken[0] if taken else -1)


@pytest.mark.parametrize(
    ("earlier", "later", "covered"),
    [
        pytest.param(Match(), Match(("/v1/**",)), True, id="everything before a part"),
        pytest.param(Match(("/v1/**",)), Match(), False, id="a part before everything"),
        pytest.param(Match(("/v1/**",)), Match(("/v1",)), True, id="the rest may be nothing"),
        pytest.param(Match(("/v1/**",)), Match(("/v1/*/x",)), True, id="segments in the rest"),
        pytest.param(Match(("/v1/*",)), Match(("/v1/a",)), True, id="a segment in a wildcard"),
        pytest.param(Match(("/v1/**",)), Match(("/v1/a/**",)), True, id="a longer rest"),
        pytest.param(Match(("/v1/a/**",)), Match(("/v1/**",)), False, id="a shorter rest"),
        pytest.param(Match(("/v1/*/**",)), Match(("/v1/**",)), False, id="a rest that is nothing"),
        pytest.param(Match(("/v1/*",)), Match(("/v1/",)), False, id="an empty segment"),
        pytest.param(Match(("/v1/*",)), Match(("/v1/**",)), False, id="one segment of the rest"),
        pytest.param(Match(("/*/**",)), Match(("/**",)), False, id="the root is left over"),
        pytest.param(Match(("/*/a",)), Match(("/b/*",)), False, id="wildcards crosswise"),
        pytest.param(Match(("/a", "/b")), Match(("/b", "/a")), True, id="each path in one of them"),
        pytest.param(Match(("/a",)), Match(("/a", "/b")), False, id="a path is left over"),
        pytest.param(Match(), Match(methods=("GET",)), True, id="all methods before one"),
        pytest.param(Match(methods=("GET",)), Match(), False, id="one method before all"),
        pytest.param(
            Match(methods=("GET", "POST")), Match(methods=("POST",)), True, id="one method of two"
        ),
        pytest.param(
            Match(methods=("GET",)), Match(methods=("HEAD",)), False, id="HEAD is not GET"
        ),
        pytest.param(Match(), Match(hosts=("a.b",)), True, id="all hosts before one"),
        pytest.param(Match(hosts=("a.b",)), Match(), False, id="one host before all"),
        pytest.param(Match(hosts=("*.b",)), Match(hosts=("a.b",)), True, id="a name below"),
        pytest.param(Match(hosts=("*.b",)), Match(hosts=("*.a.b",)), True, id="all names below"),
        pytest.param(Match(hosts=("*.a.b",)), Match(hosts=("*.b",)), False, id="names above"),
        pytest.param(Match(hosts=("*.b",)), Match(hosts=("b",)), False, id="the name itself"),
        pytest.param(Match(), Match(headers=(("x", "1"),)), True, id="all headers before one"),
        pytest.param(Match(headers=(("x", "1"),)), Match(), False, id="one header before all"),
        pytest.param(
            Match(headers=(("x", "a*"),)), Match(headers=(("x", "ab"),)), True, id="a beginning"
        ),
        pytest.param(
            Match(headers=(("x", "ab*"),)), Match(headers=(("x", "a*"),)), False, id="a longer one"
        ),
        pytest.param(
            Match(headers=(("x", "a*"),)), Match(headers=(("x", "ab*"),)), True, id="a shorter one"
        ),
        pytest.param(
            Match(headers=(("x", "*"),)), Match(headers=(("x", "*"),)), True, id="any value twice"
        ),
        pytest.param(
            Match(headers=(("x", "a*"),)), Match(headers=(("x", "*"),)), False, id="of any value"
        ),
        pytest.param(
            Match(headers=(("x", "a"),)), Match(headers=(("x", "a*"),)), False, id="of a beginning"
        ),
        pytest.param(
            Match(headers=(("x", "a**"),)), Match(headers=(("x", "a*"),)), False, id="with a star"
        ),
        pytest.param(
            Match(headers=(("x", "a"),)), Match(headers=(("y", "a"),)), False, id="another header"
        ),
        pytest.param(
            Match(headers=(("x", "1"),)),
            Match(headers=(("y", "2"), ("x", "1"))),
            True,
            id="one header of two",
        ),
    ],
)
def test_covers(earlier: Match, later: Match, *, covered: bool) -> None:
    assert covers(earlier, later) is covered


@given(conditions(), conditions(), requests)
def test_covers_is_never_true_wrongly(earlier: Match, later: Match, request: Request) -> None:
    if covers(earlier, later) and mismatch(later, *request) is None:
        assert mismatch(earlier, *request) is None


@given(conditions())
def test_a_match_covers_itself(match: Match) -> None:
    assert covers(match, match)
    assert covers(Match(), match)


def cost(table: RouteTable, request: Request) -> float:
    """Seconds for 500 look-ups at the best of several tries: noise only ever adds."""
    call = {"find": table.find, "request": request}
    return min(repeat("find(*request)", globals=call, number=500, repeat=15))


@pytest.mark.alone
@pytest.mark.parametrize(
    ("match", "request_of"),
    [
        pytest.param(
            lambda n: Match((f"/v1/thing{n}/**",), ("GET",)),
            lambda n: ("GET", "a.example", f"/v1/thing{n}/x", ACME),
            id="apart by path",
        ),
        pytest.param(
            lambda n: Match((f"/*/thing{n}",)),
            lambda n: ("GET", "a.example", f"/v1/thing{n}", ACME),
            id="apart behind a wildcard",
        ),
        pytest.param(
            lambda n: Match(hosts=(f"*.h{n}.example",)),
            lambda n: ("GET", f"a.h{n}.example", "/v1/x", ACME),
            id="apart by host",
        ),
        pytest.param(
            lambda n: Match(headers=(("x-tenant", f"t{n}"),)),
            lambda n: ("GET", "a.example", "/v1/x", ((b"X-Tenant", b"t%d" % n),)),
            id="apart by tenant",
        ),
    ],
)
def test_a_thousand_routes_cost_little_more_than_ten(
    match: Callable[[int], Match], request_of: Callable[[int], Request]
) -> None:
    few = RouteTable(tuple(match(n) for n in range(10)))
    many = RouteTable(tuple(match(n) for n in range(1000)))
    assert few.find(*request_of(9)) == 9
    assert many.find(*request_of(999)) == 999
    # Measured 1.0 to 1.05; trying them in turn would be near 100.
    assert cost(many, request_of(999)) < 2 * cost(few, request_of(9))


@pytest.mark.alone
@pytest.mark.parametrize(
    ("host", "path"),
    [
        pytest.param("a.example", "/v1" + 10_000 * "/a", id="10,000 segments"),
        pytest.param("a.example", "/v1" + 10_000 * "/", id="10,000 slashes"),
        pytest.param(10_000 * "a." + "example", "/v1/a/b", id="10,000 labels"),
    ],
)
def test_a_hostile_request_costs_little_more_than_a_short_one(host: str, path: str) -> None:
    table = RouteTable((Match(("/v1/*/x/**",)), Match(hosts=("*.b.example",)), Match(("/v2/**",))))
    short: Request = ("GET", "a.example", "/v1/a/b", ())
    # Measured 1.2 to 2; without bounds it would be some hundreds.
    assert cost(table, ("GET", host, path, ())) < 20 * cost(table, short)
