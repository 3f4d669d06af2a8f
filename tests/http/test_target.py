import pytest
from hypothesis import given, strategies as st

from proxy.http.refusal import Refusal
from proxy.http.target import rewrite_target, split_target

VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
HIGH_BYTES = "\udc80\udcff\u00e9"
PIECES = st.sampled_from(
    ["/", ".", "..", ";", "%2e", "%2E", "%2f", "%5C", "%00", "%zz", "%", "\\", "a", "?", "#", " "]
)


@pytest.mark.parametrize(
    ("method", "target", "path", "forwarded", "authority"),
    [
        pytest.param("GET", "/v1/x", "/v1/x", "/v1/x", None, id="a path"),
        pytest.param("GET", "/v1/x?a=1", "/v1/x", "/v1/x?a=1", None, id="a path with a query"),
        pytest.param("GET", "/v1/x?", "/v1/x", "/v1/x?", None, id="an empty query is kept"),
        pytest.param("GET", "/?a?b", "/", "/?a?b", None, id="a second question mark is data"),
        pytest.param(
            "GET", "//host/x", "//host/x", "//host/x", None, id="two slashes name no host"
        ),
        pytest.param(
            "GET", "/a%2Fb", "/a%2Fb", "/a%2Fb", None, id="an encoded slash stays encoded"
        ),
        pytest.param("GET", "/a%5Cb", "/a%5Cb", "/a%5Cb", None, id="so does an encoded backslash"),
        pytest.param("GET", "/%7Ea", "/%7Ea", "/%7Ea", None, id="needless escapes stay"),
        pytest.param("GET", "/%09", "/%09", "/%09", None, id="an encoded tab is harmless"),
        pytest.param("GET", "/a;v=1/b", "/a;v=1/b", "/a;v=1/b", None, id="path parameters"),
        pytest.param(
            "GET", "/.well-known/x", "/.well-known/x", "/.well-known/x", None, id="hidden"
        ),
        pytest.param(
            "GET", "/..a/a../...", "/..a/a../...", "/..a/a../...", None, id="dots in names"
        ),
        pytest.param(
            "GET", "/%252e%252e/", "/%252e%252e/", "/%252e%252e/", None, id="twice encoded"
        ),
        pytest.param("GET", "/x?q=100%", "/x", "/x?q=100%", None, id="a lone percent in a query"),
        pytest.param("GET", "/x?t=a%0Ab", "/x", "/x?t=a%0Ab", None, id="a line break in a query"),
        pytest.param("GET", "/x?d=/../\\", "/x", "/x?d=/../\\", None, id="dots in a query"),
        pytest.param(
            "GET", "/caf\udcc3\udca9", "/caf\udcc3\udca9", "/caf\udcc3\udca9", None, id="raw"
        ),
        pytest.param("OPTIONS", "*", "*", "*", None, id="the server as a whole"),
        pytest.param("GET", "http://a.example/x?y", "/x", "/x?y", "a.example", id="a whole URL"),
        pytest.param(
            "GET", "HTTPS://A.example:8443/x", "/x", "/x", "A.example:8443", id="any case"
        ),
        pytest.param("GET", "http://a.example", "/", "/", "a.example", id="a URL without a path"),
        pytest.param("GET", "http://a.example?x", "/", "/?x", "a.example", id="only with a query"),
        pytest.param("GET", "http://[::1]:80/", "/", "/", "[::1]:80", id="a URL with an address"),
        pytest.param("OPTIONS", "http://a.example", "*", "*", "a.example", id="* as a URL"),
        pytest.param("OPTIONS", "http://a.example/", "/", "/", "a.example", id="/ is not *"),
    ],
)
def test_accepted(
    method: str, target: str, path: str, forwarded: str, authority: str | None
) -> None:
    assert split_target(method, target) == (path, forwarded, authority)


@pytest.mark.parametrize(
    ("target", "detail"),
    [
        pytest.param("", "begins with '/'", id="nothing"),
        pytest.param("v1/x", "begins with '/'", id="a path without its slash"),
        pytest.param("a.example:80", "begins with '/'", id="an authority"),
        pytest.param("ftp://a.example/x", "begins with '/'", id="another scheme"),
        pytest.param("http:/a.example/x", "begins with '/'", id="a URL with one slash"),
        pytest.param("*", "OPTIONS alone", id="* with another method"),
        pytest.param("http:///x", "host", id="a URL without a host"),
        pytest.param("http://me@a.example/x", "host", id="a URL with a user"),
        pytest.param("http://a.example\\@b/x", "host", id="a URL with a backslash"),
        pytest.param("/a b", "percent-encode", id="a space"),
        pytest.param("/a\tb", "percent-encode", id="a tab"),
        pytest.param("/a?b\r\nX: 1", "percent-encode", id="a line break in the query"),
        pytest.param("/a\x7f", "percent-encode", id="a delete character"),
        pytest.param("/a#b", "%23", id="a fragment"),
        pytest.param("/a?b#c", "%23", id="a fragment behind a query"),
        pytest.param("/a\\b", "%5C", id="a backslash"),
        pytest.param("/.", "resolves", id="one dot at the end"),
        pytest.param("/a/..", "resolves", id="two dots at the end"),
        pytest.param("/a/../b", "resolves", id="two dots in between"),
        pytest.param("/a/..?b", "resolves", id="two dots before a query"),
        pytest.param("/a/%2E%2e/b", "resolves", id="encoded dots"),
        pytest.param("/a/..;v=1/b", "resolves", id="dots with a path parameter"),
        pytest.param("/a/.;/b", "resolves", id="one dot with an empty parameter"),
        pytest.param("/a/..%3B/b", "resolves", id="an encoded semicolon behind dots"),
        pytest.param("/a/..%2fb", "resolves", id="an encoded slash behind dots"),
        pytest.param("/a%5C..%5cb", "resolves", id="dots between encoded backslashes"),
        pytest.param("http://a.example/../b", "resolves", id="dots in a URL"),
        pytest.param("/a%", "%25", id="a lone percent"),
        pytest.param("/a%4", "%25", id="half an escape"),
        pytest.param("/a%u002e", "%25", id="an escape that is not HTTP's"),
        pytest.param("/a%00", "NUL", id="an encoded NUL"),
        pytest.param("/a%0D%0aX:1", "NUL", id="an encoded line break"),
    ],
)
def test_refused(target: str, detail: str) -> None:
    refusal = split_target("GET", target)
    assert isinstance(refusal, Refusal)
    assert refusal.status == 400
    assert detail in refusal.detail


@given(st.text(VISIBLE + HIGH_BYTES) | st.lists(PIECES).map("".join))
def test_a_path_is_kept_to_the_byte_or_refused(rest: str) -> None:
    target = f"/{rest}"
    split = split_target("GET", target)
    if not isinstance(split, Refusal):
        path, forwarded, authority = split
        assert forwarded == target
        assert path == target.partition("?")[0]
        assert authority is None


@given(st.lists(PIECES).map("".join))
def test_a_path_is_judged_alike_in_both_forms(rest: str) -> None:
    plain = split_target("GET", f"/{rest}")
    absolute = split_target("GET", f"http://a.example/{rest}")
    if isinstance(plain, Refusal):
        assert absolute == plain
    else:
        assert absolute == (*plain[:2], "a.example")


@given(st.lists(PIECES).map("".join))
def test_no_accepted_path_leaves_its_place_however_it_is_resolved(rest: str) -> None:
    split = split_target("GET", f"/{rest}")
    if isinstance(split, Refusal):
        return
    decoded = split[0].lower()
    for escape, character in (("%2e", "."), ("%2f", "/"), ("%5c", "/"), ("%3b", ";")):
        decoded = decoded.replace(escape, character)
    names = [segment.split(";")[0] for segment in decoded.split("/")]
    assert not {".", ".."} & {*names}


@pytest.mark.parametrize(
    ("target", "strip_prefix", "base_path", "forwarded"),
    [
        pytest.param("/a?b", "", "", "/a?b", id="nothing to do"),
        pytest.param("/a?b", "", "/v1", "/v1/a?b", id="the base path comes in front"),
        pytest.param("/", "", "/v1", "/v1/", id="a lone slash is a path too"),
        pytest.param("/api/x?b", "/api", "", "/x?b", id="the prefix goes"),
        pytest.param("/api/x", "/api", "/v1", "/v1/x", id="one takes the other's place"),
        pytest.param("/api", "/api", "", "/", id="all of the path is the prefix"),
        pytest.param("/api", "/api", "/v1", "/v1", id="then the base path is all"),
        pytest.param("/api/", "/api", "/v1", "/v1/", id="with its slash"),
        pytest.param("/api?x=1", "/api", "", "/?x=1", id="only a query is left"),
        pytest.param("/api?x=1", "/api", "/v1", "/v1?x=1", id="a query behind the base path"),
        pytest.param("/apix", "/api", "", "/apix", id="half a segment is no prefix"),
        pytest.param("/API/x", "/api", "/v1", "/v1/API/x", id="case matters"),
        pytest.param("/api//x", "/api", "", "//x", id="an empty segment stays"),
        pytest.param("/api/api/x", "/api", "", "/api/x", id="taken off once"),
    ],
)
def test_rewrite(target: str, strip_prefix: str, base_path: str, forwarded: str) -> None:
    assert rewrite_target(target, strip_prefix, base_path) == forwarded


@given(
    st.text(VISIBLE + HIGH_BYTES).map("/{}".format),
    st.sampled_from(["", "/api", "/a/b"]),
    st.sampled_from(["", "/v1", "/v1/x"]),
)
def test_rewrite_keeps_every_byte_behind_the_prefix(rest: str, prefix: str, base: str) -> None:
    assert rewrite_target(prefix + rest, prefix, base) == base + rest
